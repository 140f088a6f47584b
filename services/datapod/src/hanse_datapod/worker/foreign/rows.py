"""What code of another framework needs of the data that Hanse reads beside it: how many examples there are."""

from __future__ import annotations

from dataclasses import replace

from hanse_datapod.data.load import SiteData
from hanse_datapod.worker.work.context import WorkContext
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.schema import TabularSchema


def rows_alone(work: WorkContext) -> WorkContext:
    """The work on a table's rows as they are: categories, dates and empty cells are the code's own matter."""
    if not isinstance(work.schema, TabularSchema):
        return work
    return replace(work, data=lambda: _rows(work))


def _rows(work: WorkContext) -> SiteData:
    if work.tables is None:
        return work.data()
    try:
        tables = work.tables()
    except HanseError as error:
        if error.code is not ErrorCode.SCHEMA_MISMATCH:
            raise
        return work.data()  # arrays of a file that is no table, or the same error with the cell that is wrong
    return SiteData(tables.train.examples, None if tables.test is None else tables.test.examples)
