"""Metrics of a private run's test examples: counts with noise, the same in memory, deployed, masked and after a
coordinator's death where the noise is the same; each evaluation is charged, once."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from clocks import in_virtual_time
from hanse.jobs import read_job
from hanse_coordinator.records import RunRecord
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import Result, Task, TaskKind
from hanse_fabric.subjects import RESULT, TASK
from hanse_fabric.virtual_time import VirtualClock
from hanse_learning.site import dp_sgd, site_privacy
from hanse_privacy.ledger import NAME as LEDGER
from hanse_privacy.noise import source
from hanse_workflows.memory import conduct
from simulation.league import League
from simulation.stories import answers, completed, ended, hub_of, outcomes_when_killed
from simulation.wards import SCHEMA, WARDS, Wards, ward_job

NAMED = ["auroc", "average_precision", "f1", "specificity", "brier"]
DECLARED: dict[str, Any] = {
    "numbers": {"scale": "none", "missing": "constant", "indicator": False}, "categories": {"missing": "own"},
    "columns": [{"name": "age", "scale": "minmax"}, {"name": "smoker", "missing": "constant", "indicator": False}],
}  # fmt: skip
DP = {"placement": "local", "mechanism": "dp_sgd", "clip": 1.0, "noise_multiplier": 1.0}
EPSILON = 8.0


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that all who draw it draw alike: what came of it may be compared."""
    fixed = partial(source.NoiseSource, bytes(range(32)))
    for module in (source, dp_sgd, site_privacy):
        monkeypatch.setattr(module, "NoiseSource", fixed)


def private_job(mode: str | None, evaluate: dict[str, Any] | None = None, **metrics: Any) -> Any:
    asked = {"metrics": NAMED} if evaluate is None else evaluate
    privacy = DP | {"metrics": {"epsilon": EPSILON} | metrics}
    whole = {"epochs": 2, "batch_size": "all"}  # of whole batches the accountant knows at once what they cost
    return ward_job(mode, rounds=2, prepare=DECLARED, weighting="uniform", evaluate=asked, privacy=privacy, train=whole)


def body(mode: str | None, evaluate: dict[str, Any] | None = None, **metrics: Any) -> dict[str, Any]:
    """As an owner sends it."""
    return read_job(private_job(mode, evaluate, **metrics))


def said(data: dict[str, Any]) -> object:
    """What a round's news say of metrics that are made of counts."""
    found = {name: data["metrics"].get(name) for name in NAMED}, data.get("undefined"), data.get("curves")
    return json.loads(json.dumps(found))


def charged(made: League, site: str) -> list[tuple[str, dict[str, Any], str]]:
    """(step, event, note) of what the site's ledger has for metrics."""
    entries = [entry for entry in read_chain(made.folder / site, LEDGER) if entry["what"] == "charge"]
    return [
        (entry["work"].split("/")[0], entry["event"], entry["note"])
        for entry in entries if entry["work"].endswith("/metrics")
    ]  # fmt: skip


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("mode", ["compensator", "pairwise", None])
@in_virtual_time
async def test_deployed_sites_find_what_the_run_in_memory_finds_where_the_noise_is_the_same(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path, mode: str | None
) -> None:
    rounds: list[dict[str, Any]] = []

    def told(kind: str, _round: int, data: dict[str, Any]) -> None:
        if kind == "round-finished":
            rounds.append(data)

    rules = {"privacy": {"required": True, "epsilon": 100.0}}  # of a site without a ceiling noise opens nothing
    with threadpool_limits(1):
        sites = wards.in_memory(tmp_path / "memory", "keyed")
        conduct(private_job(mode), sites, schema=SCHEMA, told=told, sites_add_noise=True)
        async with hub_of(clock, tmp_path / "hub", *WARDS, rules=rules, **there) as made:
            record = await completed(made, body(mode))
    deployed = [event.data for event in made.events("round-finished")]
    assert said(deployed[-1]) == said(rounds[-1])
    assert set(NAMED) <= set(deployed[-1]["metrics"])
    assert record.metrics["auroc"] == deployed[-1]["metrics"]["auroc"]
    noise = deployed[-1]["curves"]["noise"]
    assert noise["scale"] == 1 / EPSILON
    assert set(noise["standard_error"]) == set(NAMED)
    assert [bool(each.get("curves")) for each in deployed] == [False, True]  # after the last round alone
    for site in WARDS:
        event = {"kind": "pure", "amount": EPSILON, "rate": 1.0}
        note = f"counts for {', '.join(NAMED)}: epsilon {EPSILON:g}"
        assert charged(made, site) == [("r2-evaluate", event, note)]
    answered = [each for each in made.published(RESULT, Result) if "-evaluate" in each.step]
    assert {each.counted is None for each in answered} == {mode is not None}


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("mode", ["compensator", "pairwise", None])
def test_a_coordinator_that_dies_tells_the_same_and_nobody_is_charged_twice(
    there: dict[str, Any], tmp_path: Path, mode: str | None
) -> None:
    def told(made: League, _record: RunRecord) -> object:
        assert set(answers(made).values()) == {1}
        for site in WARDS:
            assert len(charged(made, site)) == 1
        return str([said(event.data) for event in made.events("round-finished")])

    with threadpool_limits(1):
        killed = outcomes_when_killed(tmp_path, WARDS, body(mode), every=61, told=told, **there)
    assert len(killed) > 1
    assert len(set(killed)) == 1


@in_virtual_time
async def test_without_known_noise_two_runs_tell_of_the_same_examples_otherwise(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, **there) as made:
            job = body(None, {"metrics": NAMED}, epsilon=0.5)
            await completed(made, job)
            await made.submit("run000000002", **job)
            await made.ended("run000000002")
            asked = [each for each in made.published(RESULT, Result) if each.step == "r2-evaluate"]
            assert len({each.counted for each in asked}) == 2 * len(WARDS)
            for site in WARDS:
                assert len(charged(made, site)) == 2  # who asks again is charged again


@in_virtual_time
async def test_a_budget_that_cannot_pay_the_evaluation_is_refused_before_anybody_is_charged(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    rules = {"privacy": {"project": {"epsilon": 5.0, "delta": 1e-5}}}  # enough for the updates, not for the metrics
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, rules=rules, **there) as made:
            record = await ended(made, body(None))
            assert record.state == "failed"
            assert "budget" in record.reason
            for site in WARDS:
                assert charged(made, site) == []


@in_virtual_time
async def test_bands_of_ages_have_noise_too_and_no_site_refuses_a_small_one(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    by_age = {"metrics": ["sensitivity"], "subgroups": {"column": "age", "smallest": 30}}
    rules = {"asking": {"group": 30}, "privacy": {"epsilon": 100.0}}  # exact counts of a few are refused
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, rules=rules, **there) as made:
            await completed(made, body(None, by_age))
    (last,) = [event.data for event in made.events("round-finished") if event.data.get("curves")]
    assert last["curves"]["subgroups"]["column"] == "age"


@in_virtual_time
async def test_evaluations_after_each_round_are_charged_each(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *WARDS, **there) as made:
            await completed(made, body(None, {"metrics": ["auroc"], "every": 1}))
    assert [step for step, _, _ in charged(made, "east")] == ["r1-evaluate", "r2-evaluate"]
    configs = [task.config["evaluate"] for task in made.published(TASK, Task) if task.kind is TaskKind.EVALUATE]
    assert {config["counts"]["scale"] for config in configs} == {1 / EPSILON}
