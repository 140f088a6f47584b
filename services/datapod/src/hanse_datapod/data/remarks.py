"""Looks a site's table through for what is odd about it as a whole, though no cell of it is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.load import SiteData
from hanse_datapod.data.remark import MOST, Remark
from hanse_datapod.data.tables import SiteTables
from hanse_learning.preparation.cells import Cells, blocks
from hanse_learning.site.mapped import in_blocks
from hanse_schemas.schema import Column, TabularSchema


def remarks(data: SiteData | SiteTables, schema: TabularSchema) -> tuple[Remark, ...]:
    """The first `MOST` things, of the training rows."""
    if isinstance(data, SiteTables):
        return tuple(islice(_found(blocks(data.train.columns), data.train.examples.y, schema), MOST))
    x, names = data.train.x, [column.name for column in schema.features]
    columns = ({name: x[rows, at] for at, name in enumerate(names)} for rows in in_blocks(x))
    return tuple(islice(_found(columns, data.train.y, schema), MOST))


def _found(parts: Iterable[Mapping[str, Cells]], y: NDArray[Any], schema: TabularSchema) -> Iterator[Remark]:
    looks = [(at, column.name, _Look(column)) for at, column in enumerate(schema.features) if column.kind != "text"]
    for columns in parts:
        for _, name, look in looks:
            if name in columns:
                look.take(columns[name])
    yield from (Remark(look.about, at) for at, _, look in looks if look.about is not None)
    if schema.task == "classification" and schema.classes is not None:
        there = set(np.unique(y).astype(int).tolist())
        yield from (Remark("class", at) for at in range(schema.classes) if at not in there)


class _Look:
    """What is seen of a column, block by block."""

    def __init__(self, column: Column) -> None:
        self._strange = column.kind == "category" and bool(column.values)
        self._values = frozenset(column.values)
        self._taken = False
        self._cells = 0
        self._first: Any = None
        self._alike = True

    def take(self, cells: Cells) -> None:
        """Look at the next cells."""
        self._taken = True
        there = cells[~np.isnan(cells)] if cells.dtype.kind == "f" else cells[cells != None]  # noqa: E711 - of each
        if not len(there):
            return
        if not self._cells:
            self._first = there[0]
        self._cells += len(there)
        self._alike = self._alike and bool((there == self._first).all())
        if self._strange:
            self._strange = self._values.isdisjoint(there.tolist())

    @property
    def about(self) -> Literal["empty", "strange", "constant"] | None:
        """What is odd; None: nothing is."""
        if not self._taken:
            return None
        if not self._cells:
            return "empty"
        if self._strange:
            return "strange"
        return "constant" if self._cells > 1 and self._alike else None
