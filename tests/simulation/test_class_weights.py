"""`class_weights: balanced`: the weights of all sites' examples together, found before the first round, with the
preparation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight
from threadpoolctl import threadpool_limits

from clocks import in_virtual_time
from hanse.jobs import read_job
from hanse_coordinator.api.submission import closed_protocols
from hanse_coordinator.records import RunRecord
from hanse_datapod.data.load import read_site_tables
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.subjects import TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.job import check_job
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import ArraySchema
from hanse_workflows.memory import conduct
from hanse_workflows.submission import check_submitted
from simulation.league import League
from simulation.stories import completed, ended, hub_of, outcomes_when_killed
from simulation.wards import SCHEMA, WARDS, Wards, ward_job

BALANCED = {"loss": {"name": "cross_entropy", "class_weights": "balanced"}}


def body(mode: str | None = "compensator", weights: Any = "balanced", **changes: Any) -> dict[str, Any]:
    loss = {"name": "cross_entropy", "class_weights": weights}
    job = ward_job(mode, train={"epochs": 2, "batch_size": 16, "loss": loss}, **changes)
    return read_job(job)


def pooled(wards: Wards) -> list[float]:
    y = np.concatenate([read_site_tables(wards.settings(name), SCHEMA).train.examples.y for name in WARDS])
    return [float(each) for each in compute_class_weight("balanced", classes=np.array([0, 1]), y=y)]


@pytest.mark.parametrize("mode", ["compensator", "pairwise", None])
@in_virtual_time
async def test_they_are_scikit_learns_of_the_pooled_table_and_the_model_is_that_of_the_numbers(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path, mode: str | None
) -> None:
    expected = pooled(wards)
    assert abs(expected[1] - 1) > 0.01  # they are not alike
    with threadpool_limits(1):
        memory = conduct(check_job(body(mode)), wards.in_memory(tmp_path / "memory"), schema=SCHEMA)
        by_numbers = conduct(check_job(body(mode, expected)), wards.in_memory(tmp_path / "numbers"), schema=SCHEMA)
        async with hub_of(clock, tmp_path / "hub", *WARDS, **there) as made:
            record = await completed(made, body(mode))
    assert memory.job.train["loss"]["class_weights"] == pytest.approx(expected, rel=1e-15)
    assert memory.model is not None
    assert memory.model == by_numbers.model
    asked = [task.config["train"] for task in made.published(TASK, Task) if task.kind is TaskKind.TRAIN]
    assert asked
    assert all(each["loss"]["class_weights"] == memory.job.train["loss"]["class_weights"] for each in asked)
    assert record.metrics["balanced_accuracy" if "balanced_accuracy" in record.metrics else "f1"] > 0
    notes = [event.data["reason"] for event in made.events("note") if "class_weights" in event.data.get("reason", "")]
    assert len(notes) == 1


def test_a_coordinator_that_dies_finds_the_same(there: dict[str, Any], tmp_path: Path) -> None:
    def told(made: League, record: RunRecord) -> object:
        tasks = [task for task in made.published(TASK, Task) if task.kind is TaskKind.TRAIN]
        return str(([task.config["train"] for task in tasks[-1:]], record.metrics))

    with threadpool_limits(1):
        killed = outcomes_when_killed(tmp_path, WARDS, body(), every=67, told=told, **there)
    assert len(killed) > 1
    assert len(set(killed)) == 1


@in_virtual_time
async def test_a_site_that_must_mask_counts_its_classes_where_its_policy_opens_it(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    cautious: dict[str, Any] = {"masking": {"required": True, "minimum": 3}, "asking": {"group": 1}}
    opened = cautious | {"asking": {"group": 1, "protocols": ["moments", "category_counts"]}}
    with threadpool_limits(1):
        for name, rules in (("closed", cautious), ("open", opened)):
            async with hub_of(clock, tmp_path / name, *WARDS, rules=rules, **there) as made:
                record = await ended(made, body("pairwise", evaluate={"metrics": []}))
                assert (record.state == "completed") == (name == "open"), record.reason
                assert name == "open" or "asking.protocols" in record.reason
    [warning] = closed_protocols(check_job(body()), {"north": ("moments",)})
    assert "category_counts" in warning
    assert "train.loss.class_weights are numbers" in warning


@pytest.mark.parametrize(
    ("schema", "changes", "words"),
    [
        (SCHEMA, {"prepare": "none"}, "prepare"),
        (ArraySchema(shape=(3,), classes=2), {}, "train.loss.class_weights: 'balanced'.*numbers, or a table"),
        (SCHEMA.model_copy(update={"classes": None}), {}, "train.loss.class_weights: 'balanced'.*number of classes"),
        (
            SCHEMA,
            {"prepare": {"numbers": {"scale": "none", "missing": "constant", "indicator": False}},
             "privacy": {"mechanism": "gaussian", "placement": "local", "noise_multiplier": 1.0}},
            "balanced.*whole sites are hidden, not rows",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_refused_at_submission(schema: Any, changes: dict[str, Any], words: str) -> None:
    job = check_job({"rounds": 1, "model": {"name": "logistic"}, "train": BALANCED} | changes)
    with pytest.raises(HanseError, match=words):
        check_submitted(completed_job(job, schema), schema=schema)


def test_a_class_of_which_there_is_none_is_said(wards: Wards, tmp_path: Path) -> None:
    schema = SCHEMA.model_copy(update={"classes": 3})
    job = completed_job(check_job({"rounds": 1, "model": {"name": "logistic"}, "train": BALANCED}), schema)
    with threadpool_limits(1), pytest.raises(HanseError, match="examples of every class, of 2 there are none"):
        conduct(job, wards.in_memory(tmp_path), schema=schema)
