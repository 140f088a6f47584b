"""A run's preparation at this site: what it tells of its table, and the work on what is made of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import ValidationError

from hanse_datapod.data.check import mismatch
from hanse_datapod.data.load import SiteData
from hanse_datapod.data.tables import SiteTable, SiteTables
from hanse_datapod.worker.port import DataState, WorkOutcome
from hanse_datapod.worker.work.context import WorkContext
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import TaskKind
from hanse_fabric.messages.explained import explain
from hanse_fabric.tensors.file import layout_like, write_tensors
from hanse_learning.preparation.contributions import contributed
from hanse_learning.preparation.histograms import histograms
from hanse_learning.preparation.measured import fewest, measured
from hanse_learning.preparation.noisy import NOISY, VARIANCE, released, told_variance
from hanse_learning.preparation.order import question_of
from hanse_learning.preparation.plan import HISTOGRAM, classes_in
from hanse_privacy.noise.counts import CountNoise
from hanse_schemas.preparation import Preparation, PreparedCategory, prepared_schema
from hanse_schemas.prepare import rules_of
from hanse_schemas.schema import TabularSchema


def measure(work: WorkContext) -> WorkOutcome:
    """Count and sum the columns of the training table, or count cells by their bits.

    Raises:
        HanseError: SCHEMA_MISMATCH for what a rule refuses; INVALID_INPUT for rules that are none.
    """
    tables = tables_of(work)
    if work.config.get("privacy") is not None:
        return _measure_privately(work, tables.train)
    table, rules = tables.train, rules_of(work.config.get("prepare"))
    classes = classes_in(work.config)
    asked = work.config.get("quantiles")
    arrays: dict[str, Any] = (
        dict(measured(rules, table.columns, tables.told, table.examples.y, classes)) if asked is None
        else {HISTOGRAM: histograms(question_of(asked, rules), table.columns)}
    )  # fmt: skip
    write_tensors(work.output, layout_like(arrays), arrays)
    return WorkOutcome(work.output, len(table), {}, data=DataState(group=fewest(rules, table.columns)))


def _measure_privately(work: WorkContext, table: SiteTable) -> WorkOutcome:
    """The vector that is released, with the site's noise. It never fails on a cell, which would tell of it."""
    told = work.config["privacy"]
    noise = CountNoise.from_json(told.get("counts") or {})
    rules, classes = rules_of(work.config.get("prepare")), classes_in(work.config)
    vector = released(rules, classes, of_sites=bool(told.get("of_sites")))
    people = table.examples
    counted = contributed(vector, table.columns, len(table), labels=people.y if classes else None, whose=people.whose)
    variance = np.array([told_variance(noise.variance)], np.int64)
    arrays: dict[str, Any] = {NOISY: noise.add(counted), VARIANCE: variance}
    write_tensors(work.output, layout_like(arrays), arrays)
    return WorkOutcome(work.output, len(table), {}, data=DataState(group=fewest(rules, table.columns)))


def on_prepared(work: WorkContext) -> WorkContext:
    """The work on prepared data, where the task has a preparation.

    Raises:
        HanseError: INVALID_INPUT where it is none; SCHEMA_MISMATCH where it is of other columns.
    """
    given = work.config.get("preparation")
    if given is None:
        return work
    try:
        preparation = Preparation.model_validate(given)
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"task.config.preparation: {explain(error, Preparation)}",
            hint="upgrade hub or datapod",
        ) from None
    if work.config.get("privacy") or work.kind is TaskKind.INITIALIZE:
        # Whether a cell is refused is an exact answer to a question that a hub may put by values of its choice. A first
        # model needs no cell, is under no mask, and is charged to nobody.
        preparation = preparation.lenient
    if not isinstance(work.schema, TabularSchema):
        raise mismatch("preparation: it is of a table's columns, the project's data are none")
    if [column.name for column in preparation.columns] != [column.name for column in work.schema.features]:
        raise mismatch("preparation: it is of other columns than the project's schema")
    preparation = _as_declared(preparation, work.schema)
    return replace(
        work, schema=prepared_schema(work.schema, preparation),
        data=lambda: SiteData(*tables_of(work).prepared(preparation)),
    )  # fmt: skip


def _as_declared(preparation: Preparation, schema: TabularSchema) -> Preparation:
    """The same, by which values that are none of the schema's are refused where it says so, and no others: one that is
    left out of its list, as rare ones are, or by a hub that would know who has it, is an unknown value."""
    declared = {column.name: set(column.values) for column in schema.features}
    kept = [
        column.model_copy(update={"unknown": "zeros"})
        if isinstance(column, PreparedCategory)
        and column.unknown == "refuse"
        and declared[column.name] - {*column.values}
        else column
        for column in preparation.columns
    ]
    return preparation.model_copy(update={"columns": tuple(kept)})


def tables_of(work: WorkContext) -> SiteTables:
    """The site's raw tables.

    Raises:
        HanseError: SCHEMA_MISMATCH where it has none.
    """
    if work.tables is None:
        raise mismatch("data: a preparation is of tables, this site has none")
    return work.tables()
