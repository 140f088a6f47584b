"""A site's raw tables: what it is asked of before a run knows how columns are prepared, and what it trains on then."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.stored_columns import StoredColumns
from hanse_fabric.errors import HanseError
from hanse_learning.preparation.apply import apply
from hanse_learning.preparation.cells import Cells, blocks
from hanse_learning.site.examples import Examples
from hanse_learning.site.mapped import BLOCK_BYTES, Growing, mapped, written
from hanse_privacy.works.people import people_of, rows, sketches
from hanse_schemas.preparation import Preparation


@dataclass(frozen=True, slots=True)
class SiteTable:
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

    @property
    def head(self) -> bytes:
        """How many rows of which columns."""
        return f"{len(self)}{sorted(self.columns)}".encode()

    def parted(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> tuple[SiteTable, SiteTable]:
        """Some rows, and others, each ascending; a stored table is used up.

        Raises:
            HanseError: NO_SPACE.
        """
        both = first, second
        if isinstance(self.columns, StoredColumns):
            columns: Sequence[Mapping[str, Cells]] = self.columns.parted(first, second)
        else:
            columns = [{name: cells[rows] for name, cells in self.columns.items()} for rows in both]
        one, other = (
            replace(
                self, columns=found, examples=self.examples.take(rows),
                rows=rows if self.rows is None else self.rows[rows],
            )
            for found, rows in zip(columns, both, strict=True)
        )  # fmt: skip
        return one, other

    def prepared(self, preparation: Preparation) -> Examples:
        """What a model sees of it.

        Raises:
            HanseError: SCHEMA_MISMATCH for a cell that the preparation refuses; NO_SPACE.
        """
        if not isinstance(self.columns, StoredColumns):
            return replace(self.examples, x=self._features(preparation, self.columns, self.rows))
        x = mapped((len(self), len(preparation.outputs)), np.float32, self.columns.folder)
        try:
            self._fill(x, preparation)
        except HanseError:
            # Column by column, as a table in memory is looked through: the first of them that is refused is named.
            for column in preparation.columns:
                alone = preparation.model_copy(update={"columns": (column,)})
                self._fill(np.empty((0, len(alone.outputs)), np.float32), alone)
            raise
        return replace(self.examples, x=x)

    def _fill(self, x: NDArray[np.float32], preparation: Preparation) -> None:
        """Write the prepared rows (n, k), block by block; where `x` has none, only look at them."""
        start = 0
        for block in blocks(self.columns):
            count = len(next(iter(block.values())))
            rows = np.arange(start, start + count) if self.rows is None else self.rows[start : start + count]
            found = self._features(preparation, block, rows)
            if len(x):
                x[start : start + count] = found
                written(x[start : start + count])
            start += count

    def _features(
        self, preparation: Preparation, columns: Mapping[str, Cells], rows: NDArray[np.int64] | None
    ) -> NDArray[np.float32]:
        features = apply(preparation, columns, where=self.where, row=self.row, first=self.first, rows=rows)
        with np.errstate(over="ignore"):
            return features.astype(np.float32)

    def people(self, seen: Callable[[bytes], object]) -> Iterable[bytes]:
        """The people, each by all that is known of them; the rows, where nothing says whose they are.

        Of numbers alone, they are told apart as those of the examples that are trained on without a preparation: were
        they others in another form, two sums of one work could tell of one who has gone meanwhile.

        Args:
            seen: is given each row of `known` on the way, from the first to the last.
        """
        told, whose = self._told(seen), self.examples.whose
        if whose is None:
            return told
        # A person's rows may lie far from each other.
        stored = self.columns if isinstance(self.columns, StoredColumns) else None
        return people_of(list(told) if stored is None else _Spooled(told, stored.folder), whose)

    def known(self) -> Iterable[bytes]:
        """The rows, each by all that is known of it."""
        for block, y, weights in self._blocks():
            yield from _known(block, y, weights)

    def _told(self, seen: Callable[[bytes], object]) -> Iterator[bytes]:
        for block, y, weights in self._blocks():
            people = iter(_as_examples(block, y, weights)) if of_numbers_alone(block) else None
            for row in _known(block, y, weights):
                seen(row)
                yield row if people is None else next(people)

    def _blocks(self) -> Iterator[tuple[Mapping[str, Cells], NDArray[Any], NDArray[np.float64] | None]]:
        """(columns, targets, weights if there are such) of rows that are to be worked on at once."""
        start, examples = 0, self.examples
        for block in blocks(self.columns):
            here = slice(start, start + (len(next(iter(block.values()))) if block else len(self)))
            yield block, examples.y[here], None if examples.weights is None else examples.weights[here]
            start = here.stop


def _known(columns: Mapping[str, Cells], y: NDArray[Any], weights: NDArray[np.float64] | None) -> Iterator[bytes]:
    cells = [column.tolist() for _, column in sorted(columns.items())]
    if weights is not None:
        cells.append(weights.tolist())
    for *row, target in zip(*cells, y.tolist(), strict=True):
        yield repr((row, target)).encode()


def of_numbers_alone(columns: Mapping[str, Cells]) -> bool:
    """Whether a table can be trained on as it is."""
    return bool(columns) and all(column.dtype.kind == "f" for column in columns.values())


def _as_examples(columns: Mapping[str, Cells], y: NDArray[Any], weights: NDArray[np.float64] | None) -> Iterable[bytes]:
    x = np.stack(list(columns.values()), axis=1).astype(np.float32)
    return rows(*((x, y) if weights is None else (x, y, weights)))


class _Spooled:
    """What is known of each row, in a file: `people.Known`."""

    def __init__(self, known: Iterable[bytes], folder: Path) -> None:
        file, ends, gathered = Growing(folder), array("q", [0]), bytearray()
        for row in known:
            gathered += row
            ends.append(file.size + len(gathered))
            if len(gathered) >= BLOCK_BYTES:
                file.append(gathered)
                gathered.clear()
        file.append(gathered)
        self._rows, self._ends = file.whole(), ends

    def __iter__(self) -> Iterator[bytes]:
        return (self[row] for row in range(len(self._ends) - 1))

    def __getitem__(self, row: int) -> bytes:
        return self._rows[self._ends[row] : self._ends[row + 1]].tobytes()


@dataclass(slots=True)
class SiteTables:
    """The tables that a site trains and tests on; what was prepared of them last is kept.

    Attributes:
        set_aside: bad cells, which the site tolerates.
        told: of these, those that the preparation's sums may have.
        keyed: see `SiteData`.
    """

    train: SiteTable
    test: SiteTable | None
    set_aside: int = 0
    told: int = 0
    keyed: bool = False
    _kept: tuple[str, Examples, Examples | None] | None = field(default=None, repr=False)

    @property
    def parts(self) -> tuple[SiteTable, ...]:
        """Those that are there."""
        return (self.train,) if self.test is None else (self.train, self.test)

    @property
    def nbytes(self) -> int:
        """In memory, prepared once; texts are counted by their places alone, what lies in files not at all."""
        held = [part.columns for part in self.parts if not isinstance(part.columns, StoredColumns)]
        return sum(cells.nbytes * 2 for columns in held for cells in columns.values())

    def prepared(self, preparation: Preparation) -> tuple[Examples, Examples | None]:
        """(training, test) examples."""
        if self._kept is None or self._kept[0] != preparation.digest:
            self._kept = None  # what it holds need not be there at the same time as the next
            test = None if self.test is None else self.test.prepared(preparation)
            self._kept = preparation.digest, self.train.prepared(preparation), test
        return self._kept[1:]

    def fingerprint(self) -> str:
        """SHA-256 over all rows."""
        digest = hashlib.sha256()
        for part in self.parts:
            digest.update(part.head)
            for row in part.known():
                digest.update(row)
        return digest.hexdigest()

    def fingerprint_and_people(self) -> tuple[str, bytes]:
        """(`fingerprint`, the people's `sketches`): each row of a table that lies in files is read once for both."""
        digest = hashlib.sha256()

        def people() -> Iterator[Iterable[bytes]]:
            for part in self.parts:
                digest.update(part.head)
                yield part.people(digest.update)

        sketched = sketches(people(), keyed=self.keyed)
        return digest.hexdigest(), sketched
