"""An owner is told before a run that stops after its best model that nothing keeps that one; and of a metric to stop
by that no site will report."""

from typing import Any

import pytest

from hanse_coordinator.api.submission import left_behind
from hanse_fabric.errors import HanseError
from hanse_schemas.job import Job, check_job
from hanse_schemas.schema import ArraySchema
from hanse_workflows.submission import check_submitted

JOB: dict[str, Any] = {"rounds": 9, "model": {"name": "mlp"}, "participants": {"minimum": 3}}
MASKED = {"secure_aggregation": {"mode": "compensator"}}


def job(**sections: Any) -> Job:
    return check_job({**JOB, **sections})


def test_patience_without_keeping_the_best_is_warned_of() -> None:
    [warning] = left_behind(job(stop={"metric": "loss", "patience": 5}))
    assert "5 evaluations after its best model" in warning
    assert "keep: best" in warning


@pytest.mark.parametrize(
    "sections",
    [{}, {"stop": {"metric": "loss", "target": 0.1}}, {"stop": {"metric": "loss", "patience": 5}, "keep": "best"}],
)
def test_nothing_is_said_where_the_best_is_kept_or_the_target_ends_the_run(sections: dict[str, Any]) -> None:
    assert left_behind(job(**sections)) == ()


@pytest.mark.parametrize(
    ("task", "metric", "sections", "expected"),
    [
        ("classification", "mse", {}, "loss, accuracy, matthews, loss_min, accuracy_min, matthews_min"),
        ("regression", "accuracy", {}, "loss, mse, r2, loss_min, mse_min, r2_min"),
        ("regression", "mse_min", MASKED, "loss, mse, r2"),
    ],
)
def test_a_metric_that_the_run_will_not_have_is_refused(
    task: Any, metric: str, sections: dict[str, Any], expected: str
) -> None:
    schema = ArraySchema(shape=(4,), task=task, classes=3 if task == "classification" else None)
    if sections:
        sections = {"secure_aggregation": {"mode": "compensator", "metrics": [metric]}}
    wrong = job(stop={"metric": metric, "patience": 2}, keep="best", **sections)
    with pytest.raises(HanseError) as refusal:
        check_submitted(wrong, schema=schema)
    assert f"stop.metric: {metric!r}" in refusal.value.message
    assert refusal.value.message.endswith(f"will have: {expected}")
    check_submitted(job(stop={"metric": "loss", "patience": 2}, **(MASKED if sections else {})), schema=schema)
