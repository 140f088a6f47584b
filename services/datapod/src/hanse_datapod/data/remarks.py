"""Looks a site's table through for what is odd about it as a whole, though no cell of it is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.data.load import SiteData
from hanse_datapod.data.remark import MOST, Remark
from hanse_datapod.data.tables import SiteTables
from hanse_learning.preparation.cells import Cells
from hanse_schemas.schema import Column, TabularSchema


def remarks(data: SiteData | SiteTables, schema: TabularSchema) -> tuple[Remark, ...]:
    """The first `MOST` things, of the training rows."""
    if isinstance(data, SiteTables):
        return tuple(islice(_found(data.train.columns, data.train.examples.y, schema), MOST))
    columns = {column.name: data.train.x[:, at] for at, column in enumerate(schema.features)}
    return tuple(islice(_found(columns, data.train.y, schema), MOST))


def _found(columns: Mapping[str, Cells], y: NDArray[Any], schema: TabularSchema) -> Iterator[Remark]:
    for at, column in enumerate(schema.features):
        if column.kind != "text" and column.name in columns:
            yield from _of_column(at, column, columns[column.name])
    if schema.task == "classification" and schema.classes is not None:
        there = set(np.unique(y).astype(int).tolist())
        yield from (Remark("class", at) for at in range(schema.classes) if at not in there)


def _of_column(at: int, column: Column, cells: Cells) -> Iterator[Remark]:
    there = cells[~np.isnan(cells)] if cells.dtype.kind == "f" else cells[cells != None]  # noqa: E711 - of each
    if not len(there):
        yield Remark("empty", at)
    elif column.kind == "category" and column.values and not set(there.tolist()) & set(column.values):
        yield Remark("strange", at)
    elif len(there) > 1 and (there == there[0]).all():
        yield Remark("constant", at)
