"""A file as what makes it of an older one: how a model goes to a site that holds the model before.

    "HANSDEL1" | u32 length of the head | head, JSON | for each block: u32 bytes, u8 width, u32 packed | blocks

Both files are as long, and are taken as whole numbers, of as many bytes as their elements have. From round to round the
leading bytes of most of them stay as they are. So the difference of the numbers is small, and its bytes, the first of
all, then the second, pack well. Nothing is lost: what comes out has the very bits of the file. Whoever applies a delta
holds that against the digest of what was announced, and needs to believe nobody.

A block is read, reckoned and written by itself, so that memory stays at one block, whatever the size of the model.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.strict_json import SMALL, parse_json
from hanse_fabric.tensors.digest import Digester
from hanse_fabric.tensors.layout import DTYPES, Layout, parse_header
from hanse_learning.codecs.chain import build_chain
from hanse_learning.codecs.config import check_chain, sections_of
from hanse_learning.codecs.frames import MAGIC as ENCODED_MAGIC
from hanse_learning.codecs.frames import ROW as FRAME_ROW
from hanse_learning.codecs.frames import frames_of, head_length, read_head
from hanse_learning.codecs.stages import Packer

MAGIC = b"HANSDEL1"
FORMAT = 1
BLOCK_WORDS = 1 << 17
"""Of each byte of so many numbers Zstandard makes a block of its own, of 128 KiB: they differ in how they pack."""
MAX_HEAD_BYTES = 16 << 10
_ROW = np.dtype([("bytes", "<u4"), ("width", "u1"), ("packed", "<u4")])
_WIDTHS = (1, 2, 4, 8)
_CODECS = ["delta", "zstd"]

Read = Callable[[int], bytes]
"""The next so many bytes of a file."""
Run = tuple[int, int]
"""Bytes of adjacent numbers, and of each of them."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Numbers as their differences to older ones, modulo what their bytes hold; the sign in the lowest bit."""

    def write(self, new: bytes, old: bytes, width: int) -> bytes:
        """The differences of whole numbers of `width` bytes: the lowest byte of all, then the next."""
        change = (np.frombuffer(new, f"<u{width}") - np.frombuffer(old, f"<u{width}")).view(f"<i{width}")
        folded = (change << 1) ^ (change >> (8 * width - 1))
        return np.ascontiguousarray(folded.view(np.uint8).reshape(-1, width).T).tobytes()

    def read(self, data: bytes, old: bytes, width: int) -> NDArray[np.uint8]:
        """The new numbers' bytes."""
        planes = np.frombuffer(data, np.uint8).reshape(width, -1)
        folded = np.ascontiguousarray(planes.T).reshape(-1).view(f"<u{width}")
        change = (folded >> 1) ^ (np.zeros(1, f"<u{width}") - (folded & 1))
        made: NDArray[np.uint8] = (np.frombuffer(old, f"<u{width}") + change).view(np.uint8)
        return made


@dataclass(frozen=True, slots=True)
class DeltaHead:
    """What a delta says of itself.

    Attributes:
        chain: the codecs' sections, with every setting: a difference, and what packs it.
        base, makes: digests of the file that it begins with, and of what comes out.
        size: bytes of either.
        blocks: how many there are.
    """

    chain: tuple[Mapping[str, Any], ...]
    base: str
    makes: str
    size: int
    blocks: int

    def encode(self) -> bytes:
        text = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True, separators=(",", ":")).encode()
        return MAGIC + len(text).to_bytes(4, "little") + text


def write_delta(
    file: BinaryIO, runs: Iterable[Run], new: Read, old: Read, sections: Sequence[Mapping[str, Any]], *, base: str,
    makes: str,
) -> None:  # fmt: skip
    """Write what makes one file of another.

    Args:
        file: empty, and open for writing anywhere in it.
        runs: of the files, from front to back (`runs_of`).
        new, old: the files' bytes, from front to back.
        sections: a difference, and what packs it.
        base, makes: digests of `old` and `new`.

    Raises:
        HanseError: INVALID_INPUT for another chain.
    """
    difference, packer, told = _built(sections)
    cut = list(_blocks(runs))
    head = DeltaHead(told, base, makes, sum(size for size, _ in cut), len(cut)).encode()
    table = np.zeros(len(cut), _ROW)
    file.write(head)
    file.write(table.tobytes())
    for row, (size, width) in zip(table, cut, strict=True):
        packed = packer.pack(difference.write(new(size), old(size), width))
        row["bytes"], row["width"], row["packed"] = size, width, len(packed)
        file.write(packed)
    file.seek(len(head))
    file.write(table.tobytes())


def apply_delta(base: Path, delta: Path, made: Path) -> tuple[str, tuple[str, ...]]:
    """Make a file of an older one. Blocks.

    Returns:
        (digest, leaves) of what was made, which the caller holds against what was announced.

    Raises:
        HanseError: INVALID_INPUT for a delta of another file, or one that was not written by `write_delta`;
            UNKNOWN_SCHEMA of a version that is not known here.
    """
    digester = Digester()
    with base.open("rb") as before, delta.open("rb") as told, made.open("wb") as file, ExitStack() as stack:
        head, table = _opened(told, delta.stat().st_size)
        if (size := base.stat().st_size) != head.size:
            raise _bad(f"it is of a file of {head.size} bytes, the one at hand has {size}")
        difference, packer, _ = _built(head.chain)
        data = stack.enter_context(mmap.mmap(told.fileno(), 0, access=mmap.ACCESS_READ))
        at = told.tell()
        for size, width, packed in table.tolist():
            planes = packer.unpack(data[at : at + packed], size)
            if len(planes) != size:
                raise _bad(f"a block becomes {len(planes)} bytes, {size} were expected")
            block = difference.read(planes, before.read(size), width).data
            digester.update(block)
            file.write(block)
            at += packed
    return digester.result()


def runs_of(read: Callable[[int, int], bytes], size: int) -> list[Run]:
    """Where in a tensor file, or in an encoded model that is not packed, numbers of which width lie.

    Args:
        read: bytes from a place on, so many.

    Raises:
        HanseError: INVALID_INPUT for a file of another form.
    """

    def part(at: int, count: int) -> bytes:
        if not 0 <= count <= size - at:
            raise _bad(f"a model of {size} bytes ends within its header")
        return read(at, count)

    first = part(0, min(12, size))
    if first[:8] == ENCODED_MAGIC:
        runs = list(_of_encoded(part))
    else:
        runs = list(_of_layout(parse_header(part(0, 8 + int.from_bytes(first[:8], "little")), size=size)))
    if (found := sum(length for length, _ in runs)) != size:
        raise _bad(f"a model of {size} bytes has numbers of {found}")
    return runs


def runs_of_bytes(data: bytes) -> list[Run]:
    """The same, of a file in memory."""
    return runs_of(lambda at, size: data[at : at + size], len(data))


def delta_of(new: bytes, old: bytes, sections: Sequence[Mapping[str, Any]], *, base: str, makes: str) -> bytes:
    """As `write_delta`, in memory."""
    file = BytesIO()
    write_delta(file, runs_of_bytes(new), BytesIO(new).read, BytesIO(old).read, sections, base=base, makes=makes)
    return file.getvalue()


def _of_layout(layout: Layout) -> Iterator[Run]:
    yield layout.data_start, 1
    for segment in layout.segments:
        each = DTYPES[segment.dtype].itemsize
        yield segment.stop - segment.start, each if each in _WIDTHS else 1


def _of_encoded(read: Callable[[int, int], bytes]) -> Iterator[Run]:
    start = head_length(read(0, 12))
    head = read_head(read(0, start))
    middle = start + head.frames * FRAME_ROW.itemsize
    table = np.frombuffer(read(start, middle - start), FRAME_ROW)
    layout = parse_header(read(middle, head.header), size=head.size)
    chain = build_chain(head.chain)
    quantized = getattr(chain.quantizer, "width", None)
    yield middle + head.header + head.columns, 1
    for frame, length in zip(frames_of(layout), table["length"].tolist(), strict=True):
        width = quantized if frame.parameter else 0
        runs = [run for portion in frame.portions for run in ((1, 1), _of_portion(portion.size, width, frame.dtype))]
        # What has scales in it, or leaves zeros out, is taken as single bytes.
        yield from runs if width is not None and sum(size for size, _ in runs) == length else [(length, 1)]


def _of_portion(count: int, width: int | None, dtype: np.dtype[Any]) -> Run:
    each = width or dtype.itemsize
    return count * each, each


def _blocks(runs: Iterable[Run]) -> Iterator[Run]:
    for size, width in runs:
        for start in range(0, size, BLOCK_WORDS * width):
            yield min(BLOCK_WORDS * width, size - start), width


def _built(sections: Sequence[Mapping[str, Any]]) -> tuple[Difference, Packer, tuple[dict[str, Any], ...]]:
    # Looked at before they are read: no package of whoever's choice is loaded for this.
    if (names := [each.get("name") for each in sections]) != _CODECS:
        raise _bad(f"its codecs are {names}, {' and '.join(_CODECS)} were expected")
    checked = check_chain(sections, "codec.down")
    return cast(Difference, checked[0].build()), cast(Packer, checked[1].build()), sections_of(checked)


def _opened(file: BinaryIO, size: int) -> tuple[DeltaHead, NDArray[np.void]]:
    """Head and table, which agree with each other and with the file; it stands at the first block then."""
    first = file.read(12)
    if first[:7] == MAGIC[:7] and first[7:8] != MAGIC[7:]:
        raise _unknown(f"its form is version {first[7:8]!r}, {MAGIC[7:].decode()} is known here")
    length = int.from_bytes(first[8:12], "little")
    if len(first) < 12 or first[:8] != MAGIC or length > MAX_HEAD_BYTES:
        raise _bad("it does not begin as one")
    text = file.read(length)
    body = parse_json(text, "delta", SMALL)
    if isinstance(body, dict) and type(body.get("format")) is int and body["format"] != FORMAT:
        raise _unknown(f"it is written in version {body['format']}, {FORMAT} is known here")
    try:
        head = DeltaHead(tuple(body["chain"]), body["base"], body["makes"], body["size"], body["blocks"])
        known = head.encode() == first + text and all(isinstance(each, dict) for each in head.chain)
    except (KeyError, TypeError, ValueError):
        known = False
    if not known or not all(type(each) is int and 0 <= each < 2**48 for each in (head.size, head.blocks)):
        raise _bad("its head is not written as Hanse writes it")
    if file.tell() + head.blocks * _ROW.itemsize > size:
        raise _bad(f"it has {size} bytes, and {head.blocks} blocks by its head")
    table = np.frombuffer(file.read(head.blocks * _ROW.itemsize), _ROW)
    counted = file.tell() + int(np.sum(table["packed"], dtype=np.int64))
    widths = np.isin(table["width"], _WIDTHS).all() and not np.any(table["bytes"] % np.maximum(table["width"], 1))
    if len(table) != head.blocks or counted != size or int(np.sum(table["bytes"], dtype=np.int64)) != head.size:
        raise _bad(f"it has {size} bytes, its table describes {counted}")
    if not widths or int(np.max(table["bytes"], initial=0)) > BLOCK_WORDS * max(_WIDTHS):
        raise _bad(f"a block has numbers of other than {_WIDTHS} bytes, or more than {BLOCK_WORDS} of them")
    return head, table


def _unknown(why: str) -> HanseError:
    return HanseError(ErrorCode.UNKNOWN_SCHEMA, f"delta: {why}", hint="upgrade the site's software")


def _bad(why: str) -> HanseError:
    return HanseError(ErrorCode.INVALID_INPUT, f"delta: {why}", hint="the whole model is fetched instead")
