"""The form of an encoded update: a head, a table of frames, and the frames.

    "HANSENC1" | u32 length of the head | head, JSON | for each frame: u32 length, SHA-256 | layout | columns | frames

The head names the chain, the layout of the update (its digest, and the bytes that it has decoded), the number of frames
and the seed. Which frames there are, and what is in each, follows from the layout: of every run of adjacent entries of
one dtype and rule, at most FRAME_ELEMENTS elements each. Who has the head and the table, verified, can verify and
decode any frame alone. The columns are of products (`hanse_learning.codecs.factors`), where the chain makes some. The
layout is there, as the header of the decoded file, where the receiver does not know it: in
models that go down, not in updates that go up.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.strict_json import SMALL, parse_json
from hanse_fabric.tensors.layout import DTYPES, Entry, Layout, Rule
from hanse_learning.codecs.stages import Draw, Raw

MAGIC = b"HANSENC1"
FORMAT = 1
"""Of the head: how it tells of a chain."""
FRAME_ELEMENTS = 1 << 16
MAX_HEAD_BYTES = 16 << 10
ROW = np.dtype([("length", "<u4"), ("digest", "V32")])
"""Of the table."""

PACKED_ROOM = 1 << 10
"""Bytes that packing may add to what it cannot make smaller."""
_PORTION_BYTES = 64
"""More than the bytes of a portion beside its values and bits."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Elements [first, last) of an entry; the `index`-th portion of the update."""

    entry: Entry
    first: int
    last: int
    index: int

    @property
    def size(self) -> int:
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class Frame:
    """Adjacent portions of entries of one dtype and rule, at bytes [start, stop) of the decoded file."""

    start: int
    stop: int
    portions: tuple[Portion, ...]

    @property
    def parameter(self) -> bool:
        """Whether the codecs change it; buffers are as they are."""
        return self.portions[0].entry.rule is Rule.PARAMETER

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.portions[0].entry.numpy

    @property
    def most(self) -> int:
        """Bytes that it has encoded, at most, before it is packed."""
        elements = (self.stop - self.start) // self.dtype.itemsize
        return self.stop - self.start + -(-elements // 8) + _PORTION_BYTES * len(self.portions)

    @property
    def longest(self) -> int:
        """Bytes that it has when it is packed, at most: those of numbers that cannot be packed, and of the packer's
        form."""
        return self.most + self.most // 256 + PACKED_ROOM


@lru_cache(maxsize=16)
def frames_of(layout: Layout) -> tuple[Frame, ...]:
    """The frames of an update in a layout, in the order of the file."""
    return tuple(_frames(layout))


def _frames(layout: Layout) -> Iterator[Frame]:
    numbers = count()
    for segment in layout.segments:
        size = DTYPES[segment.dtype].itemsize
        portions: list[Portion] = []
        start, room = segment.start, FRAME_ELEMENTS
        for entry in layout:
            at = layout.offsets[entry.name]
            if not segment.start <= at < segment.stop:
                continue
            first = 0
            while first < entry.count:
                last = min(entry.count, first + room)
                portions.append(Portion(entry, first, last, next(numbers)))
                room -= last - first
                first = last
                if not room:
                    yield Frame(start, start + FRAME_ELEMENTS * size, tuple(portions))
                    start, room, portions = start + FRAME_ELEMENTS * size, FRAME_ELEMENTS, []
        if portions:
            yield Frame(start, segment.stop, tuple(portions))


@dataclass(frozen=True, slots=True)
class Head:
    """What an encoded update says of itself.

    Attributes:
        chain: the codecs' sections, with every setting.
        layout: SHA-256 of the decoded file's header.
        size: bytes of the decoded file.
        frames: how many there are.
        seed: of what is random in the codecs.
        header: bytes of the decoded file's header that stand before the frames; 0: the receiver knows the layout.
        columns: bytes of the columns of products, packed.
    """

    chain: tuple[Mapping[str, Any], ...]
    layout: str
    size: int
    frames: int
    seed: int
    header: int = 0
    columns: int = 0

    def encode(self) -> bytes:
        body = {"format": FORMAT, "chain": self.chain, "layout": self.layout, "size": self.size, "frames": self.frames,
                "seed": self.seed, "header": self.header}  # fmt: skip
        if self.columns:  # of which no release before 0.2.0 knows
            body["columns"] = self.columns
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        return MAGIC + len(text).to_bytes(4, "little") + text


def head_of(
    layout: Layout, chain: tuple[Mapping[str, Any], ...], seed: int, *, with_layout: bool = False, columns: int = 0
) -> Head:  # fmt: skip
    """The head of an update in a layout, or of a model `with_layout`."""
    digest, header = hashlib.sha256(layout.header).hexdigest(), layout.data_start if with_layout else 0
    return Head(chain, digest, layout.size, len(frames_of(layout)), seed, header, columns)


def head_length(first: bytes) -> int:
    """Bytes of the head with what stands before it, from the file's first 12 bytes.

    Raises:
        HanseError: INVALID_INPUT where it is no encoded update; UNKNOWN_SCHEMA of a version that is not known here.
    """
    if first[:7] == MAGIC[:7] and first[7:8] != MAGIC[7:]:
        raise _unknown(f"its form is version {first[7:8]!r}, {MAGIC[7:].decode()} is known here")
    if len(first) < 12 or first[:8] != MAGIC:
        raise _bad("it does not begin as one", hint="the job's codec.up says that updates are encoded")
    length = int.from_bytes(first[8:12], "little")
    if length > MAX_HEAD_BYTES:
        raise _bad(f"its head has {length} bytes, {MAX_HEAD_BYTES} at most were expected")
    return 12 + length


def read_head(data: bytes) -> Head:
    """The head, from its bytes with what stands before it.

    Raises:
        HanseError: INVALID_INPUT; UNKNOWN_SCHEMA of a version of the chain's form that is not known here.
    """
    body = parse_json(data[12:], "encoded update", SMALL)
    if isinstance(body, dict) and type(body.get("format")) is int and body["format"] != FORMAT:
        raise _unknown(f"its chain is written in version {body['format']}, {FORMAT} is known here")
    try:
        head = Head(
            tuple(body["chain"]), body["layout"], body["size"], body["frames"], body["seed"], body["header"],
            body.get("columns", 0),
        )  # fmt: skip
        known = head.encode() == data
    except (KeyError, TypeError, ValueError):
        known = False
    numbers = (head.size, head.frames, head.seed, head.header, head.columns) if known else ()
    if not known or not all(isinstance(each, dict) for each in head.chain):
        raise _bad("its head is not written as Hanse writes it")
    if not all(type(number) is int and 0 <= number < 2**63 for number in numbers):
        raise _bad(
            f"size, frames, seed, header and columns are {numbers}, whole numbers from 0 to 2^63 - 1 were expected"
        )
    return head


def check_table(table: NDArray[np.void], frames: Sequence[Frame]) -> None:
    """Check that no frame is told to be longer than it can be: whoever decodes it holds it whole in memory.

    Raises:
        HanseError: INVALID_INPUT naming the first that is.
    """
    most = np.fromiter((frame.longest for frame in frames), np.int64, len(frames))
    longer = np.flatnonzero(table["length"] > most)
    if len(longer):
        first = int(longer[0])
        raise _bad(
            f"its table says that frame {first} has {int(table['length'][first])} bytes, at most {int(most[first])} "
            "were expected",
            hint="send the bytes that were encoded",
        )


def draw_of(seed: int, index: int, of: int) -> Draw:
    """Random bits of portion `index` of an update, for its codecs (`of` 0) or for the places that are sent (1).

    Philox by its raw output, which is the same in every version of numpy. Nothing secret hangs on it.
    """

    def draw(n: int) -> Raw:
        return np.random.Philox(key=[seed, 2 * index + of]).random_raw(n)

    return draw


def _unknown(why: str) -> HanseError:
    return HanseError(
        ErrorCode.UNKNOWN_SCHEMA, f"encoded update: {why}", hint="upgrade the hub, or use the site's older release"
    )


def _bad(why: str, *, hint: str = "") -> HanseError:
    return HanseError(ErrorCode.INVALID_INPUT, f"encoded update: {why}", hint=hint)
