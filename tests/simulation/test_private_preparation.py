"""A private run of raw tables: the preparation's sums have noise, each site pays for them once, whoever is killed, and
without noise they are the plain ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from clocks import in_virtual_time
from hanse.jobs import read_job
from hanse_coordinator.records import RunRecord
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import balances
from hanse_datapod.worker.work import preparing
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.subjects import TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.ledger import NAME as LEDGER
from hanse_privacy.noise.counts import CountNoise
from hanse_schemas.preparation import Preparation, PreparedNumber
from hanse_schemas.prepare import Prepare
from hanse_workflows.memory import conduct
from simulation.league import League
from simulation.stories import answers, completed, ended, hub_of, outcomes_when_killed
from simulation.wards import SCHEMA, WARDS, Wards, ward_job

PREPARE: dict[str, Any] = {
    "columns": [{"name": "creatinine", "clip": [0, 400]}, {"name": "lactate", "clip": [0, 10]}],
}  # fmt: skip
ROWS = {"placement": "local", "mechanism": "dp_sgd", "clip": 1.0, "epsilon": 3.0}
SITES = {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 4.0}
SHARES = {"placement": "distributed", "mechanism": "discrete_gaussian", "clip": 1.0, "epsilon": 20.0}
GAMMA = {
    "placement": "distributed", "mechanism": "discrete_laplace", "noise": "distributed-gamma", "clip": 1.0,
    "epsilon": 20.0, "colluding": 1,
}  # fmt: skip
MASKS = {"mode": "compensator", "bits": 64}
REQUIRED = {"privacy": {"required": True, "uncovered": ["evaluation", "examples", "seconds"]}}


@pytest.fixture
def there(there: dict[str, Any]) -> dict[str, Any]:
    """With sites that require privacy."""
    return there | {"rules": REQUIRED}


def body(privacy: dict[str, Any], mode: str | None, **changes: Any) -> dict[str, Any]:
    masks = {} if mode is None else {"secure_aggregation": MASKS | {"mode": mode}}
    job = ward_job(None, **{"privacy": privacy, "prepare": PREPARE, "weighting": "uniform"} | masks | changes)
    return read_job(job)


def preparation(made: League) -> Preparation:
    """The one that all tasks of the run had."""
    tasks = [task for task in made.published(TASK, Task) if task.kind in (TaskKind.TRAIN, TaskKind.EVALUATE)]
    (found,) = {Preparation.model_validate(task.config["preparation"]) for task in tasks}
    return found


def charged(made: League, site: str) -> dict[str, ReleaseEvent]:
    """By work what a site's ledger was charged, each once."""
    entries = [entry for entry in read_chain(made.folder / site, LEDGER) if entry["what"] == "charge"]
    found = {entry["work"]: ReleaseEvent.from_json(entry["event"]) for entry in entries}
    assert len(found) == len(entries)
    return found


def of_preparation(made: League, site: str) -> ReleaseEvent:
    (event,) = (event for work, event in charged(made, site).items() if work.startswith("prepare"))
    return event


MODES = [
    (ROWS, None), (ROWS, "compensator"), (SITES, "pairwise"), (SHARES, "compensator"), (SHARES, "pairwise"),
    (GAMMA, "compensator"),
]  # fmt: skip


@pytest.mark.parametrize(("privacy", "mode"), MODES)
@in_virtual_time
async def test_every_site_is_charged_what_the_job_says_before_the_rounds(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path, privacy: dict[str, Any], mode: str | None
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, **there) as made:
            record = await completed(made, body(privacy, mode))
    found = preparation(made)
    assert record.model_digest is not None
    assert [column.name for column in found.columns] == [column.name for column in SCHEMA.features]
    for site in WARDS:
        event = of_preparation(made, site)
        accountant = make_accountant("pld")
        accountant.compose(event)
        if "epsilon" in privacy:
            # A tenth of the run's epsilon and delta, which the rounds do not have.
            delta = 0.0 if event.kind == "pure" else 0.1 * 1e-5
            share = 0.1 * privacy["epsilon"]
            assert 0.99 * share < accountant.epsilon(delta) <= share * (1 + 1e-9)
        else:
            assert event == ReleaseEvent("gaussian", 10.0)
        whole = balances(made.folder / site, PrivacyPolicy())[0]
        if privacy["mechanism"] == "dp_sgd":  # releases of two kinds, which the first task has said
            assert whole.added_by == "plan"
            assert 2.0 < whole.spent <= privacy["epsilon"]
    terms = {task.privacy.privacy.preparation for task in made.published(TASK, Task) if task.privacy is not None}
    assert len(terms) == 1


@pytest.mark.parametrize(("privacy", "mode"), [(ROWS, "compensator"), (SHARES, "pairwise")])
@pytest.mark.parametrize("process", ["coordinator-0", "north"])
def test_whoever_is_killed_noise_is_drawn_once_and_charged_once(
    there: dict[str, Any], tmp_path: Path, privacy: dict[str, Any], mode: str | None, process: str
) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert set(answers(made).values()) == {1}
        assert record.model_digest is not None
        for site in WARDS:
            of_preparation(made, site)
        return preparation(made).outputs[0]

    every = 61 if process == "coordinator-0" else 7
    with threadpool_limits(1):
        killed = outcomes_when_killed(
            tmp_path, WARDS, body(privacy, mode, rounds=2), every=every, process=process, told=told, known=True, **there
        )  # fmt: skip
    assert len(killed) > 2
    assert set(killed) == {"age"}


@pytest.mark.parametrize("privacy", [ROWS, SHARES], ids=["rows", "sites"])
@in_virtual_time
async def test_without_noise_it_is_the_plain_preparation(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    privacy: dict[str, Any],
) -> None:  # fmt: skip
    """Where sites are hidden each counts as one row, so means are of the sites' means."""
    monkeypatch.setattr(CountNoise, "add", lambda _self, vector: vector)
    monkeypatch.setattr(preparing, "told_variance", lambda _variance: 0)
    with threadpool_limits(1):
        sites = wards.in_memory(tmp_path / "memory", "keyed" if privacy is ROWS else "shuffled")
        plain = conduct(ward_job(), sites, schema=SCHEMA).job.prepare
        async with hub_of(clock, tmp_path / "hub", *WARDS, **there) as made:
            await completed(made, body(privacy, "compensator"))
    assert isinstance(plain, Prepare)
    assert plain.fitted is not None
    noisy = preparation(made)
    assert noisy.outputs == plain.fitted.outputs
    close = 1e-5 if privacy is ROWS else 0.3
    for ours, theirs in zip(noisy.columns, plain.fitted.columns, strict=True):
        if isinstance(ours, PreparedNumber) and isinstance(theirs, PreparedNumber):
            numbers = (ours.centre, ours.scale, ours.fill)
            assert numbers == pytest.approx((theirs.centre, theirs.scale, theirs.fill), rel=close)
            if privacy is SHARES and ours.name == "age":
                assert numbers != pytest.approx((theirs.centre, theirs.scale, theirs.fill), rel=1e-6)
        else:
            assert ours == theirs


@in_virtual_time
async def test_where_one_budget_lacks_what_the_preparation_takes_nobody_is_charged(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    """The rounds' epsilon alone would be within it."""
    rules = {"privacy": REQUIRED["privacy"] | {"epsilon": 1.8}}
    whole = {"train": {"epochs": 2, "batch_size": "all"}}  # without sampling, noise for an epsilon is found quickly
    async with hub_of(clock, tmp_path, *WARDS, **there | {"rules": rules}) as made:
        record = await ended(made, body(ROWS | {"preparation": {"share": 0.5}}, "compensator", **whole))
        assert record.state == "failed"
        assert "the budget of east, north, south does not suffice for this run; nobody was charged" in record.reason
        for site in WARDS:
            assert not (made.folder / site / f"{LEDGER}.jsonl").exists() or not charged(made, site)
        declared = {
            "numbers": {"scale": "none", "missing": "constant", "indicator": False}, "categories": {"missing": "own"},
            "columns": [{"name": "smoker", "missing": "constant", "indicator": False}],
        }  # fmt: skip
        with threadpool_limits(1):
            less = body(ROWS | {"epsilon": 1.7}, "compensator", prepare=declared, **whole)
            await made.submit("run000000002", **less)
            record = await made.ended("run000000002")
    assert (record.state, record.reason) == ("completed", "")


@in_virtual_time
async def test_a_site_that_requires_privacy_still_refuses_exact_sums(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    job = read_job(ward_job("compensator"))
    async with hub_of(clock, tmp_path, *WARDS, **there) as made:
        record = await ended(made, job)
    assert record.state == "failed"
    assert "privacy.required" in record.reason
