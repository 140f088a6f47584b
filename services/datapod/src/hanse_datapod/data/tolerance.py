"""Bad cells of a table, which may come in pieces: refused, or set aside where the site tolerates so many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.check import mismatch
from hanse_datapod.data.settings import Tolerance
from hanse_fabric.errors import HanseError
from hanse_learning.preparation.cells import Cells, refused

Check = tuple[NDArray[np.bool_], str]
"""(which cells are bad, what was expected)."""


@dataclass(slots=True)
class _Bad:
    """Bad cells of a column: how many, and of each check that found some, the first (row, what was expected, cell)."""

    cells: int = 0
    first: dict[int, tuple[int, str, str]] = field(default_factory=dict)


class Tolerated:
    """What of one file was set aside.

    Attributes:
        count: cells.
        dropped: (n,) rows that go with them.
        taken: rows of the pieces that have ended.
    """

    def __init__(self, where: str, row: str, first: int, rows: int, tolerance: Tolerance) -> None:
        self._where, self._row, self._first, self._tolerance = where, row, first, tolerance
        self._bad: dict[str, _Bad] = {}
        self.count = self.taken = 0
        self.dropped = np.zeros(rows, bool)

    def take(self, name: str, given: Any, found: Cells, checks: Sequence[Check], *, target: bool = False) -> None:
        """Make bad cells of a column missing ones, or drop their rows; those of a target are always dropped.

        Args:
            given: the column as it stands in the piece.
            found: what was read of it, which is changed.
        """
        known = self._bad.setdefault(name, _Bad())
        bad = np.zeros(len(found), bool)
        for number, (wrong, wanted) in enumerate(checks):
            bad |= wrong
            if number not in known.first and wrong.any():
                at = int(np.argmax(wrong))
                known.first[number] = self.taken + at, wanted, repr(given.iloc[at])
        cells = int(bad.sum())
        known.cells += cells
        self.count += cells
        if target:
            found[bad] = 0
        elif found.dtype.kind == "f":
            found[bad] = np.nan
        if target or self._tolerance.then == "drop":
            self.dropped[self.taken : self.taken + len(found)] |= bad

    def end_of_piece(self, rows: int) -> None:
        """The next piece begins behind so many rows."""
        self.taken += rows

    @contextmanager
    def settling(self) -> Iterator[None]:
        """All pieces are taken within it.

        Raises:
            HanseError: SCHEMA_MISMATCH naming the first bad cell of the first column that has more than the site
                tolerates; it goes before what is wrong with a later column.
        """
        try:
            yield
        except HanseError:
            self._settle()
            raise
        self._settle()

    def kept(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(rows that stay, rows that are dropped).

        Raises:
            HanseError: SCHEMA_MISMATCH where none stays.
        """
        if self.dropped.all():
            raise mismatch(f"{self._where}: there are no examples without a bad cell")
        return np.flatnonzero(~self.dropped), np.flatnonzero(self.dropped)

    def _settle(self) -> None:
        for name, bad in self._bad.items():
            if bad.cells > self._tolerance.cells * len(self.dropped):
                at, wanted, cell = bad.first[min(bad.first)]
                raise refused(self._where, name, self._row, at + self._first, wanted, cell)
