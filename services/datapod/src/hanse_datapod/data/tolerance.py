"""Bad cells of a table: refused, or set aside where the site tolerates so many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.settings import Tolerance
from hanse_learning.preparation.cells import Cells, refused

Check = tuple[NDArray[np.bool_], str]
"""(which cells are bad, what was expected)."""


class Tolerated:
    """What of one file was set aside.

    Attributes:
        count: cells.
        dropped: (n,) rows that go with them.
    """

    def __init__(self, where: str, row: str, first: int, rows: int, tolerance: Tolerance) -> None:
        self._where, self._row, self._first, self._tolerance = where, row, first, tolerance
        self.count = 0
        self.dropped = np.zeros(rows, bool)

    def clear(self, name: str, given: Any, found: Cells, checks: Sequence[Check], *, target: bool = False) -> None:
        """Make bad cells of a column missing ones, or drop their rows; those of a target are always dropped.

        Args:
            given: the column as it stands in the file.
            found: what was read of it, which is changed.

        Raises:
            HanseError: SCHEMA_MISMATCH naming the first of them, where there are more than the site tolerates.
        """
        bad = np.zeros(len(found), bool)
        for wrong, _ in checks:
            bad |= wrong
        if bad.sum() > self._tolerance.cells * len(found):
            wrong, wanted = next(check for check in checks if check[0].any())
            at = int(np.argmax(wrong))
            raise refused(self._where, name, self._row, at + self._first, wanted, repr(given.iloc[at]))
        self.count += int(bad.sum())
        if target:
            found[bad] = 0
        elif found.dtype.kind == "f":
            found[bad] = np.nan
        if target or self._tolerance.then == "drop":
            self.dropped |= bad
