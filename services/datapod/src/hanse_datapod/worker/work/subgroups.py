"""Of which group each of the site's test examples is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_datapod.worker.work.context import WorkContext
from hanse_datapod.worker.work.preparing import tables_of
from hanse_fabric.errors import invalid, unfit
from hanse_learning.pooled.layout import Counts
from hanse_learning.pooled.subgroups import group_of
from hanse_learning.site.examples import Examples
from hanse_schemas.schema import DataSchema, unit_of


def groups_of(work: WorkContext, counts: Counts) -> NDArray[np.int64] | None:
    """The group (n,) of each test example; None where it is not counted by groups.

    Raises:
        HanseError: INVALID_INPUT where the work is on no prepared table; SCHEMA_MISMATCH where the site has none.
    """
    asked = counts.subgroups
    if asked is None:
        return None
    table = tables_of(work).test if work.config.get("preparation") is not None else None
    if table is None or asked.column not in table.columns:
        raise invalid("evaluate.counts.subgroups", asked.column, "a column of a prepared table of test examples")
    return group_of(asked, table.columns[asked.column])


def fewest_of(groups: NDArray[np.int64]) -> int | None:
    """The examples of the group that has fewest, but some; None where there are none."""
    there = np.bincount(groups) if len(groups) else np.zeros(0, np.int64)
    return min((int(number) for number in there if number), default=None)


def check_whose(examples: Examples, schema: DataSchema) -> None:
    """Check that it is known whose the test examples are, where the noise of counts is to hide a unit.

    Raises:
        HanseError: SCHEMA_MISMATCH.
    """
    unit = unit_of(schema)
    if unit is not None and examples.whose is None:
        raise unfit(
            f"test data: nothing says whose an example is ({unit}), and counts with noise are to hide who has many",
            hint="the site sets a part of its training data aside for tests (test_fraction), and gives no file",
        )  # fmt: skip
