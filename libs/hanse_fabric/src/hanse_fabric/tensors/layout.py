"""The layout of a tensor file: safetensors whose header is the same, byte for byte, for the same model.

Entries are typed: parameters, and buffers with a rule each. They are ordered by element size (widest first), then
parameters before buffers, then name, so that every element is aligned and equal things are contiguous; the header is
padded so that data start at a multiple of 64. Two files of one layout have entry and leaf boundaries at the same
offsets, which is what the reduction engine lives on. The typing is in the header's `__metadata__` under `hanse`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.strict_json import parse_json
from hanse_fabric.tensors.headers import HEADER_LIMITS, MAX_HEADER_BYTES, shape_of

_KEPT_HEADER_BYTES = 64 << 10
_WRITE = "write it with hanse_fabric.tensors"
_ALIGN = 64

DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"), "U32": np.dtype("<u4"), "U16": np.dtype("<u2"), "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"), "U48": np.dtype("V6"), "U40": np.dtype("V5"),
}  # fmt: skip
"""Little-endian, all of them. numpy has no numbers of five or six bytes: `hanse_privacy.ring.words` has."""
RINGS = ("U64", "U48", "U40", "U32", "U16", "U8")
"""Of ring elements, in file order."""
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Rule(StrEnum):
    """How an entry is reduced.

    PARAMETER: by the strategy; updates carry differences. The others are buffers; updates carry values.
    AVERAGE: weighted mean (floats only). POOL_VARIANCE: with its `mean` entry, the variance of the pooled examples.
    KEEP_NEWEST: the largest value (counters only grow). Entries that stay at the site are not in the layout at all.
    RING: elements of Z_2^bits (U8 to U64), summed modulo 2^bits: what a masked update consists of. Its
    name on the wire is as long as PARAMETER's, so that a 32-bit masked update and the F32 model have headers of one
    length, and a leaf of the one covers a leaf of the other. Among themselves they stand as given, not by name: in the
    model's order, so that what is adjacent in the model is adjacent in a masked update of it.
    """

    PARAMETER = "parameter"
    AVERAGE = "average"
    POOL_VARIANCE = "pool_variance"
    KEEP_NEWEST = "keep_newest"
    RING = "ring_term"


@dataclass(frozen=True, slots=True)
class Entry:
    """One named array. `mean` names the entry of means that a POOL_VARIANCE entry belongs to."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    rule: Rule = Rule.PARAMETER
    mean: str | None = None

    @property
    def numpy(self) -> np.dtype:
        return DTYPES[self.dtype]

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.count * self.numpy.itemsize


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of adjacent entries with one dtype and one rule: bytes [start, stop) of the file."""

    dtype: str
    rule: Rule
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """The entries of a tensor file in file order."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Layout:
        """Order and check the entries.

        Raises:
            HanseError: INVALID_INPUT for a duplicate name, an unknown dtype, a rule that does not fit the dtype
                (integers are never averaged into floats), a POOL_VARIANCE without its mean, or a mean of another.
        """
        listed = sorted(
            entries,
            key=lambda e: (
                -_known(e).numpy.itemsize, e.rule is not Rule.PARAMETER, e.dtype, e.rule,
                "" if e.rule is Rule.RING else e.name,
            ),
        )  # fmt: skip
        by_name: dict[str | None, Entry] = {entry.name: entry for entry in listed}
        if len(by_name) != len(listed):
            raise invalid("entries", [e.name for e in listed], "a set of distinct names")
        for entry in listed:
            floating = entry.numpy.kind == "f"
            if entry.rule in (Rule.PARAMETER, Rule.AVERAGE, Rule.POOL_VARIANCE) and not floating:
                raise invalid(
                    f"entry {entry.name}", f"{entry.rule} of {entry.dtype}", "a rule for integers",
                    hint="give integer buffers the rule keep_newest, or keep them at the site",
                )  # fmt: skip
            if entry.rule is Rule.RING and entry.dtype not in RINGS:
                raise invalid(f"entry {entry.name}", f"{entry.rule} of {entry.dtype}", "a ring element: U8 to U64")
            if entry.dtype in ("U48", "U40") and entry.rule is not Rule.RING:
                raise invalid(
                    f"entry {entry.name}", f"{entry.rule} of {entry.dtype}", "a ring element, as all such are"
                )
            if entry.rule is Rule.POOL_VARIANCE:
                mean = by_name.get(entry.mean)
                if mean is None or mean.shape != entry.shape or mean.dtype != entry.dtype:
                    raise invalid(f"entry {entry.name}.mean", entry.mean, "an entry of the same shape and dtype")
            elif entry.mean is not None:
                raise invalid(f"entry {entry.name}.mean", entry.mean, f"none: it belongs to {Rule.POOL_VARIANCE} alone")
        return cls(tuple(listed))

    @cached_property
    def header(self) -> bytes:
        """The 8-byte length and the padded JSON header."""
        typing = {e.name: {"rule": e.rule.value} | ({} if e.mean is None else {"mean": e.mean}) for e in self.entries}
        body: dict[str, object] = {
            "__metadata__": {
                "hanse": json.dumps({"layout": 1, "entries": typing}, sort_keys=True, separators=(",", ":"))
            }
        }
        offset = 0
        for entry in self.entries:
            body[entry.name] = {
                "dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [offset, offset + entry.nbytes],
            }  # fmt: skip
            offset += entry.nbytes
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-(8 + len(text)) % _ALIGN)
        return len(text).to_bytes(8, "little") + text

    @property
    def data_start(self) -> int:
        return len(self.header)

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Byte offset in the file by entry name."""
        offset, found = self.data_start, {}
        for entry in self.entries:
            found[entry.name] = offset
            offset += entry.nbytes
        return found

    @cached_property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.data_start + self.data_bytes

    @cached_property
    def data_bytes(self) -> int:
        """Bytes behind the header."""
        return sum(entry.nbytes for entry in self.entries)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Runs of equal dtype and rule, in file order, covering all data."""
        runs: list[Segment] = []
        for entry in self.entries:
            start = self.offsets[entry.name]
            stop = start + entry.nbytes
            if runs and (runs[-1].dtype, runs[-1].rule) == (entry.dtype, entry.rule):
                runs[-1] = Segment(entry.dtype, entry.rule, runs[-1].start, stop)
            elif entry.nbytes:
                runs.append(Segment(entry.dtype, entry.rule, start, stop))
        return tuple(runs)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def difference(self, other: Layout) -> str:
        """In words, the first way in which `other` differs from this layout; empty if it does not."""
        mine = {e.name: e for e in self.entries}
        theirs = {e.name: e for e in other.entries}
        for name in sorted(mine.keys() | theirs.keys()):
            a, b = mine.get(name), theirs.get(name)
            if b is None:
                return f"entry {name} is missing"
            if a is None:
                return f"entry {name} is not in the model"
            if a.shape != b.shape:
                return f"entry {name} has shape {list(b.shape)}, {list(a.shape)} was expected"
            if a.dtype != b.dtype:
                return f"entry {name} has dtype {b.dtype}, {a.dtype} was expected"
            if (a.rule, a.mean) != (b.rule, b.mean):
                return f"entry {name} has rule {b.rule}, {a.rule} was expected"
        return ""


def dtype_name(dtype: np.dtype) -> str:
    """The safetensors name of a numpy dtype."""
    name = _NAMES.get(dtype.newbyteorder("<"))
    if name is None:
        raise invalid("dtype", str(dtype), "one of " + ", ".join(DTYPES))
    return name


def header_length(first: bytes) -> int:
    """Bytes of the header including its length field, from the file's first 8 bytes."""
    if len(first) < 8:
        raise HanseError(ErrorCode.INVALID_INPUT, "tensor file: shorter than 8 bytes, not safetensors", hint=_WRITE)
    length = int.from_bytes(first[:8], "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"tensor file: header of {length} bytes, not safetensors", hint=_WRITE
        )
    return 8 + length


def parse_header(header: bytes, *, size: int | None = None) -> Layout:
    """Read a header (with its length field). Files that others wrote are accepted if the order is this module's.

    Raises:
        HanseError: INVALID_INPUT when it is not safetensors, when offsets overlap, leave holes, or exceed `size`
            (the file's bytes), or when entries stand in another order.
    """
    # The updates of a round have one header among them: it is read once.
    layout = _read_before(header) if len(header) <= _KEPT_HEADER_BYTES else _read(header)
    described = len(header) + layout.data_bytes
    if size is not None and described != size:
        raise HanseError(ErrorCode.INVALID_INPUT, f"tensor file: {size} bytes, its header describes {described}")
    return layout


def _read(header: bytes) -> Layout:
    try:
        body = parse_json(header[8:], "tensor file", HEADER_LIMITS)
        meta = body.pop("__metadata__", {})
        typing = parse_json(meta.get("hanse", "{}").encode(), "tensor file: hanse", HEADER_LIMITS).get("entries", {})
        entries, spans = [], []
        for name, item in body.items():
            typed = typing.get(name, {})
            rule = Rule(typed.get("rule", "parameter"))
            shape = shape_of(item["shape"])
            start, stop = item["data_offsets"]
            dtype, mean = item["dtype"], typed.get("mean")
            if not isinstance(dtype, str) or not isinstance(mean, str | None):
                raise TypeError(f"entry {name}: dtype and mean are names")
            entries.append(Entry(name, dtype, shape, rule, mean))
            spans.append((int(start), int(stop), name))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"tensor file: malformed safetensors header ({error})") from None
    layout = Layout.of(entries)
    expected, offset = {}, 0
    for entry in layout:
        expected[entry.name] = (offset, offset + entry.nbytes)
        offset += entry.nbytes
    for start, stop, name in spans:
        if expected[name] != (start, stop):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"tensor file: entry {name} lies at bytes {start}..{stop}, not at {expected[name]}",
                hint=_WRITE,
            )
    return layout


_read_before = lru_cache(maxsize=16)(_read)


def _known(entry: Entry) -> Entry:
    if entry.dtype not in DTYPES:
        raise invalid(f"entry {entry.name}.dtype", entry.dtype, "one of " + ", ".join(DTYPES))
    if any(n < 0 for n in entry.shape):
        raise invalid(f"entry {entry.name}.shape", entry.shape, "a shape without negative lengths")
    return entry
