"""Text files of PLINK: lines of words between spaces or tabs, read fast and refused with file and line.

A .bim file has a million lines: words are split by one call for the whole file, and that every line has its words is
checked on the bytes. Only where something is wrong is the file looked at line by line, to say where.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, unfit

_BLANK = np.zeros(256, dtype=bool)
_BLANK[[9, 11, 12, 13, 32]] = True
_BLANK[10] = True
_BINARY = np.zeros(256, dtype=bool)
_BINARY[:32] = True
_BINARY[[9, 10, 11, 12, 13]] = False
_MARK = b"\xef\xbb\xbf"
"""Of UTF-8, which some editors put at a file's begin; it is no part of the first word."""


class TextTable:
    """The words of a file.

    Attributes:
        path: the file, for messages.
        words: of all lines, one after the other; `width` to a line.
        rows: lines that are not empty.
    """

    __slots__ = ("_lines", "path", "rows", "width", "words")

    def __init__(self, path: Path, words: list[str], width: int, lines: np.ndarray | None) -> None:
        self.path = path
        self.words = words
        self.width = width
        self.rows = len(words) // width
        self._lines = lines

    def column(self, number: int) -> list[str]:
        """The words of a column, counted from 0: (rows,)."""
        return self.words[number :: self.width]

    def line(self, row: int) -> int:
        """The number in the file, from 1, of a row."""
        return row + 1 if self._lines is None else int(self._lines[row])

    def require(self, what: str) -> None:
        """Refuse a file without any line: `what` is what a line stands for."""
        if not self.rows:
            raise HanseError(ErrorCode.INVALID_INPUT, f"{self.path.name}: is empty, expected at least one {what}")

    def refuse(self, row: int, column: str, value: str, expected: str, *, hint: str = "") -> HanseError:
        """The error for a word: file, line, column and what was expected; the word itself stays at the site."""
        return refusal(self.path, self.line(row), f"{column}: expected {expected}", value, hint=hint)


def read_table(path: Path, width: int, columns: str) -> TextTable:
    """The words of a file whose lines all have `width` of them; empty lines are passed over.

    Args:
        columns: what they are, for the message of refusal.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when it is not text, or a line has more or fewer words.
    """
    data, raw = _read(path)
    if data.isascii():
        words = data.decode("ascii").split()
    else:
        try:
            words = [word.decode() for word in data.split()]
        except UnicodeDecodeError as error:
            raise unfit(f"{path.name}: it is not UTF-8", error.object, code=ErrorCode.INVALID_INPUT) from None
    if _plain(raw, len(words), width):
        return TextTable(path, words, width, None)
    ends = np.flatnonzero(raw == 10)
    if len(raw) and raw[-1] != 10:
        ends = np.append(ends, len(raw))
    blank = _BLANK[raw]
    starts = np.flatnonzero(~blank[1:] & blank[:-1]) + 1 if len(raw) else np.zeros(0, np.int64)
    if len(raw) and not blank[0]:
        starts = np.insert(starts, 0, 0)
    if len(starts) == width * len(ends) and _aligned(starts, ends, width):
        return TextTable(path, words, width, None)
    counts = np.diff(np.searchsorted(starts, ends), prepend=0)
    full = counts > 0
    wrong = np.flatnonzero(full & (counts != width))
    if len(wrong):
        line = int(wrong[0])
        raise refusal(path, line + 1, f"{counts[line]} columns, expected {width}: {columns}")
    return TextTable(path, words, width, np.flatnonzero(full) + 1)


def read_headed(path: Path) -> tuple[list[str], TextTable]:
    """Header and words of a file whose first line names its columns, FID and IID first.

    Raises:
        HanseError: NOT_FOUND; INVALID_INPUT when the header does not begin with FID and IID or names a column twice, or
            a line has more or fewer words than it.
    """
    data, _ = _read(path)
    first = next((line for line in data.split(b"\n", 64)[:64] if line.strip()), b"")
    header = first.decode(errors="replace").split()
    if not is_header(header):
        raise refusal(
            path, 1, "expected a header that begins with FID IID", " ".join(header[:2]),
            hint="name the columns in the first line: FID IID AGE ...",
        )  # fmt: skip
    twice = next((name for at, name in enumerate(header) if name in header[:at]), None)
    if twice is not None:
        raise refusal(path, 1, "a column stands twice in the header, expected names that differ", twice)
    table = read_table(path, len(header), "as many as the header")
    lines = np.array([table.line(row) for row in range(1, table.rows)], dtype=np.int64)
    return header, TextTable(path, table.words[len(header) :], len(header), lines)


def is_header(words: Sequence[str]) -> bool:
    """Whether the words of a line are those of a header of PLINK: FID and IID first."""
    return [word.lstrip("#").upper() for word in words[:2]] == ["FID", "IID"]


def refusal(path: Path, line: int, told: str, found: object = "", *, hint: str = "") -> HanseError:
    """INVALID_INPUT that names file and line (`unfit`). Only the name: a path tells of the site's machine."""
    return unfit(f"{path.name}, line {line}: {told}", found, code=ErrorCode.INVALID_INPUT, hint=hint)


def _read(path: Path) -> tuple[bytes, np.ndarray]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise HanseError(ErrorCode.NOT_FOUND, f"{path.name}: there is no such file") from None
    except OSError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"{path.name}: cannot be read: {error.strerror}") from None
    data = data.removeprefix(_MARK)
    raw = np.frombuffer(data, dtype=np.uint8)
    # Two passes over bytes, where a look at the table for each would take as long as splitting the words.
    if (raw < 9).any() or (raw - np.uint8(14) < 18).any():
        at = int(_BINARY[raw].argmax())
        line = data.count(b"\n", 0, at) + 1
        raise refusal(path, line, "expected text: is it compressed, or another file?", f"byte 0x{data[at]:02x}")
    return data, raw


def _plain(raw: np.ndarray, words: int, width: int) -> bool:
    """Whether there is one blank after each word, and a line feed after each `width` of them and nowhere else."""
    gaps = np.flatnonzero(raw <= 32)
    if not words or len(gaps) != words or len(gaps) % width or gaps[-1] != len(raw) - 1:
        return False
    feeds = (raw[gaps] == 10).reshape(-1, width)
    return bool(feeds[:, -1].all()) and not feeds[:, :-1].any()


def _aligned(starts: np.ndarray, ends: np.ndarray, width: int) -> bool:
    """Whether every line has exactly `width` words, given that there are as many as that in all."""
    first, last = starts[::width], starts[width - 1 :: width]
    return bool((last < ends).all() and (first[1:] > ends[:-1]).all())
