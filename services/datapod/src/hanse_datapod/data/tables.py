"""A site's raw tables: what it is asked of before a run knows how columns are prepared, and what it trains on then."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hanse_learning.preparation.apply import apply
from hanse_learning.preparation.cells import Cells
from hanse_learning.site.examples import Examples
from hanse_privacy.works.people import people_of
from hanse_schemas.preparation import Preparation


@dataclass(frozen=True, slots=True)
class Table:
    """A file's cells.

    Attributes:
        where, row, first: what the file and a row of it are called in messages, and the first row's number.
        columns: cells (n,) by name.
        examples: the targets, and whose each row is; of no features.
        rows: of the file, (n,), where these are some of them.
        set_aside: bad cells of the file, which the site tolerates.
    """

    where: str
    row: str
    first: int
    columns: Mapping[str, Cells]
    examples: Examples
    rows: NDArray[np.int64] | None = None
    set_aside: int = 0

    def __len__(self) -> int:
        return len(self.examples)

    def take(self, indices: NDArray[np.int64]) -> Table:
        """Some of the rows."""
        columns = {name: cells[indices] for name, cells in self.columns.items()}
        rows = indices if self.rows is None else self.rows[indices]
        return replace(self, columns=columns, examples=self.examples.take(indices), rows=rows)

    def prepared(self, preparation: Preparation) -> Examples:
        """What a model sees of it.

        Raises:
            HanseError: SCHEMA_MISMATCH for a cell that the preparation refuses.
        """
        features = apply(preparation, self.columns, where=self.where, row=self.row, first=self.first, rows=self.rows)
        with np.errstate(over="ignore"):
            return replace(self.examples, x=features.astype(np.float32))

    def people(self) -> Iterable[bytes]:
        """The people, each by all that is known of them; the rows, where nothing says whose they are."""
        whose = self.examples.whose
        return people_of(self.known(), None if whose is None else whose.tolist())

    def known(self) -> Iterable[bytes]:
        """The rows, each by all that is known of it."""
        columns = [cells.tolist() for _, cells in sorted(self.columns.items())]
        if self.examples.weights is not None:
            columns.append(self.examples.weights.tolist())
        for *row, y in zip(*columns, self.examples.y.tolist(), strict=True):
            yield repr((row, y)).encode()


@dataclass(slots=True)
class SiteTables:
    """The tables that a site trains and tests on; what was prepared of them last is kept.

    Attributes:
        set_aside: bad cells, which the site tolerates.
        told: of these, those that the preparation's sums may have.
    """

    train: Table
    test: Table | None
    set_aside: int = 0
    told: int = 0
    _kept: tuple[str, Examples, Examples | None] | None = field(default=None, repr=False)

    @property
    def parts(self) -> tuple[Table, ...]:
        """Those that are there."""
        return (self.train,) if self.test is None else (self.train, self.test)

    @property
    def nbytes(self) -> int:
        """In memory, prepared once; texts are counted by their places alone."""
        return sum(cells.nbytes * 2 for part in self.parts for cells in part.columns.values())

    def prepared(self, preparation: Preparation) -> tuple[Examples, Examples | None]:
        """(training, test) examples."""
        if self._kept is None or self._kept[0] != preparation.digest:
            test = None if self.test is None else self.test.prepared(preparation)
            self._kept = preparation.digest, self.train.prepared(preparation), test
        return self._kept[1:]

    def fingerprint(self) -> str:
        """SHA-256 over all rows."""
        digest = hashlib.sha256()
        for part in self.parts:
            digest.update(f"{len(part)}{sorted(part.columns)}".encode())
            for row in part.known():
                digest.update(row)
        return digest.hexdigest()
