"""Metrics of a job that says nothing about them: what people ask for of such a task, and no reason to refuse it."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_coordinator.api.submission import as_sites_allow, closed_protocols
from hanse_learning.pooled.layout import counts_of_job, is_optional
from hanse_schemas.job import Job, check_job
from hanse_schemas.metrics import COUNTED, by_default
from hanse_schemas.prepare import completed_job
from hanse_schemas.protocols import asked_by_counts
from hanse_schemas.schema import ArraySchema, Column, DataSchema, OpenSchema, TabularSchema
from hanse_workflows.round_asks import config_of
from hanse_workflows.submission import check_submitted

COLUMNS = (Column(name="age", minimum=0, maximum=120), Column(name="dose", minimum=0, maximum=9))
TABLE = TabularSchema(features=COLUMNS, target="died", classes=2)
MASKED = {"secure_aggregation": {"mode": "pairwise"}, "participants": {"minimum": 3}}
PRIVATE: dict[str, Any] = {
    "prepare": "none", "privacy": {"mechanism": "dp_sgd", "placement": "local", "noise_multiplier": 1.0}
}  # fmt: skip
OPEN, CLOSED = ("moments", "score_histograms", "calibration", "confusion"), ("moments",)


def submitted(schema: DataSchema = TABLE, **changes: Any) -> Job:
    job = completed_job(check_job({"rounds": 1, "model": {"name": "mlp"}} | changes), schema)
    check_submitted(job, schema=schema)
    return job


@pytest.mark.parametrize("classes", [2, 3, 64, 0])
@pytest.mark.parametrize("changes", [{}, MASKED])
def test_a_job_of_a_table_is_given_those_of_its_task(classes: int, changes: dict[str, Any]) -> None:
    task = "classification" if classes else "regression"
    job = submitted(TabularSchema(features=COLUMNS, target="y", task=task, classes=classes or None), **changes)
    assert job.evaluate.named == by_default(task, classes)
    assert {COUNTED[name].task for name in job.evaluate.named} == {task}
    assert job.evaluate.optional
    assert job.evaluate.classes == classes
    assert is_optional(config_of(job))
    assert counts_of_job(job) is not None
    again = check_job(job.model_dump(mode="json"))
    assert completed_job(again, None) == again == job


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluate": {"metrics": []}}, {"evaluate": {"every": 0}}, PRIVATE, {"prepare": "none"} | MASKED,
        {"code": {"name": "own", "digest": "0" * 64}, "prepare": "none"},
    ],
    ids=["none are wanted", "no evaluation", "private", "sites of 0.1.0", "site code"],
)  # fmt: skip
def test_none_are_given_where_none_are_wanted_or_none_can_be(changes: dict[str, Any]) -> None:
    assert submitted(**changes).evaluate.named == ()
    assert counts_of_job(submitted(**changes)) is None


def test_none_are_given_of_other_data_or_of_nobody_knows_how_many_classes() -> None:
    assert submitted(ArraySchema(shape=(4,), classes=2)).evaluate.metrics is None
    assert submitted(OpenSchema(), model={"name": "mlp", "inputs": [4], "outputs": 2}).evaluate.metrics is None
    assert submitted(TABLE.model_copy(update={"classes": None})).evaluate.metrics is None
    assert submitted(TABLE.model_copy(update={"classes": 65})).evaluate.metrics is None


def test_what_the_owner_has_named_is_insisted_on() -> None:
    job = submitted(evaluate={"metrics": ["f1"]})
    assert (job.evaluate.named, job.evaluate.optional) == (("f1",), False)
    assert not is_optional(config_of(job))
    stopped = submitted(rounds=2, stop={"metric": "auroc", "patience": 1})
    assert (stopped.evaluate.named, stopped.evaluate.optional) == (("auroc",), False)


def test_where_a_site_has_closed_fine_histograms_they_are_coarse_and_a_check_says_so() -> None:
    job = submitted()
    assert as_sites_allow(job, {"north": OPEN, "old": None}) == (job, ())
    coarse, [why] = as_sites_allow(job, {"north": OPEN, "south": CLOSED})
    without = tuple(name for name in job.evaluate.named if name != "brier")
    assert coarse.evaluate == job.evaluate.model_copy(update={"metrics": without, "bins": 32})
    assert "up to 0.01 off, and not counted: brier, for the policy of south closes calibration, score_histograms" in why
    assert closed_protocols(coarse, {"south": CLOSED}) == ()
    check_submitted(coarse, schema=TABLE)
    named = submitted(evaluate={"metrics": ["auroc"]})  # the control: its owner decides
    assert as_sites_allow(named, {"south": CLOSED}) == (named, ())
    assert len(closed_protocols(named, {"south": CLOSED})) == 1


@pytest.mark.parametrize(("classes", "names", "bins"), [(3, ("auroc", "balanced_accuracy", "f1"), 8), (40, (), None),
                                                        (17, ("balanced_accuracy", "f1"), None)])  # fmt: skip
def test_of_many_classes_sites_are_asked_for_what_is_coarse_of_all_together(
    classes: int, names: tuple[str, ...], bins: int | None
) -> None:
    job, [_] = as_sites_allow(submitted(TABLE.model_copy(update={"classes": classes})), {"south": CLOSED})
    assert (job.evaluate.named, job.evaluate.bins) == (names, bins)
    assert asked_by_counts(job.evaluate.named, job.evaluate.bins, classes) == {}


def test_sites_of_the_first_release_are_asked_for_no_masked_counts() -> None:
    job = submitted(**MASKED)
    without, [why] = as_sites_allow(job, {"north": OPEN, "old": None})
    assert counts_of_job(without) is None
    assert "old is of release 0.1.0" in why
