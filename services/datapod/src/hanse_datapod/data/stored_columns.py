"""The cells of a table that is larger than memory, in files: numbers by column, texts one behind the other.

Whoever works on such columns takes them `blocks` by blocks; a whole column is a copy in memory where it has texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_learning.preparation.cells import Cells
from hanse_learning.site.mapped import BLOCK_BYTES, Growing, mapped, part, will_need, written

_CELL_BYTES, _TEXT_BYTES = 8, 128


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts in one file, in UTF-8.

    Attributes:
        starts, lengths: (n,) of each; a missing one has none.
        blob: all of them.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int32]
    blob: NDArray[np.uint8]

    def cells(self, rows: slice) -> Cells:
        """Some of them; those that are alike are one object."""
        found = np.empty(len(range(*rows.indices(len(self.starts)))), object)
        alike: dict[bytes, str] = {}
        for at, (start, length) in enumerate(zip(self.starts[rows].tolist(), self.lengths[rows].tolist(), strict=True)):
            if length:
                text = self.blob[start : start + length].tobytes()
                found[at] = alike.get(text) or alike.setdefault(text, text.decode("utf-8", "surrogatepass"))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class StoredColumns(Mapping[str, Cells]):
    """Cells (n,) by column.

    Attributes:
        rows: n.
        folder: where the files are.
    """

    rows: int
    folder: Path
    _names: tuple[str, ...]
    _numbers: NDArray[np.float64]
    _numbered: Mapping[str, int]
    _starts: NDArray[np.int64]
    _lengths: NDArray[np.int32]
    _texts: Mapping[str, int]
    _blob: NDArray[np.uint8]

    def __getitem__(self, name: str) -> Cells:
        return self._cells(name, slice(0, self.rows))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def nbytes(self) -> int:
        """Of the files."""
        return self._numbers.nbytes + self._starts.nbytes + self._lengths.nbytes + self._blob.nbytes

    def blocks(self) -> Iterator[dict[str, Cells]]:
        """The columns of rows that are to be worked on at once, from the first to the last."""
        row = _CELL_BYTES * len(self._numbered) + _TEXT_BYTES * len(self._texts)
        at_once = max(1, BLOCK_BYTES // max(1, row))
        self._will_need(slice(0, at_once))
        for start in range(0, self.rows, at_once):
            end = min(start + at_once, self.rows)
            self._will_need(slice(end, end + at_once))  # the disk works on them while the caller works on these
            yield self.some(slice(start, end))

    def some(self, rows: slice) -> dict[str, Cells]:
        """The columns of some rows, in memory."""
        return {name: np.array(self._cells(name, rows)) for name in self._names}

    def _will_need(self, rows: slice) -> None:
        """Each column's part of these rows lies apart: to wait for one after the other takes many times as long."""
        for array in (self._numbers, self._starts, self._lengths):
            for column in array:
                will_need(column[rows])

    def parted(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> tuple[StoredColumns, StoredColumns]:
        """Some rows, and others; these columns are used up (`mapped.parted`).

        Raises:
            HanseError: NO_SPACE.
        """
        pairs = [_parted(array, first, second, self.folder) for array in (self._numbers, self._starts, self._lengths)]
        one, other = (
            replace(self, rows=len(rows), _numbers=pairs[0][at], _starts=pairs[1][at], _lengths=pairs[2][at])
            for at, rows in enumerate((first, second))
        )  # fmt: skip
        return one, other

    def _cells(self, name: str, rows: slice) -> Cells:
        if name in self._numbered:
            return self._numbers[self._numbered[name], rows]
        at = self._texts[name]
        return _Texts(self._starts[at], self._lengths[at], self._blob).cells(rows)


class ColumnsStore:
    """Takes the columns of a table piece by piece.

    Args:
        names: of the columns, in order; texts: those of them that hold texts, all others hold numbers.
        rows: of the table.
    """

    def __init__(self, names: Sequence[str], texts: Iterable[str], rows: int, folder: Path) -> None:
        told = frozenset(texts)
        self._names = tuple(names)
        self._texts = {name: at for at, name in enumerate(name for name in names if name in told)}
        self._numbered = {name: at for at, name in enumerate(name for name in names if name not in told)}
        self._rows, self._folder, self._taken = rows, folder, 0
        self._numbers = mapped((len(self._numbered), rows), np.float64, folder)
        self._starts = mapped((len(self._texts), rows), np.int64, folder)
        self._lengths = mapped((len(self._texts), rows), np.int32, folder)
        self._blob = Growing(folder)

    def take(self, columns: Mapping[str, Cells]) -> None:
        """The next rows.

        Raises:
            HanseError: NO_SPACE.
        """
        count = len(next(iter(columns.values())))
        rows = slice(self._taken, self._taken + count)
        for name, at in self._numbered.items():
            self._numbers[at, rows] = columns[name]
        for name, at in self._texts.items():
            told = [b"" if cell is None else cell.encode("utf-8", "surrogatepass") for cell in columns[name].tolist()]
            lengths = np.array([len(text) for text in told], np.int32)
            self._lengths[at, rows] = lengths
            self._starts[at, rows] = self._blob.size + np.cumsum(lengths, dtype=np.int64) - lengths
            self._blob.append(b"".join(told))
        for array in (self._numbers, self._starts, self._lengths):
            written(array)
        self._taken += count

    def whole(self) -> StoredColumns:
        """All of them."""
        return StoredColumns(
            self._rows, self._folder, self._names, self._numbers, self._numbered, self._starts, self._lengths,
            self._texts, self._blob.whole(),
        )  # fmt: skip


def _parted(
    array: NDArray[Any], first: NDArray[np.int64], second: NDArray[np.int64], folder: Path
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Columns (k, `first`) and (k, `second`) of an array (k, n), which is used up."""
    other = mapped((len(array), len(second)), array.dtype, folder)
    for row, column in enumerate(array):
        part(column, first, second, other[row])
    return array[:, : len(first)], other
