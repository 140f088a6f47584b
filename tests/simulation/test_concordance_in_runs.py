"""Concordance of a regression: masked in either way, plain, in memory, and through a coordinator's death the same
numbers; and what sites whose policies keep it closed are asked instead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from clocks import in_virtual_time
from hanse.jobs import read_job
from hanse_datapod.rehearsal.training import rehearse
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import HanseError
from hanse_fabric.virtual_time import VirtualClock
from hanse_learning.pooled.layout import check_counts
from hanse_privacy.ledger import NAME as LEDGER
from hanse_schemas.job import check_job
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import TabularSchema
from hanse_workflows.memory import conduct
from simulation.league import League
from simulation.stories import completed, ended, hub_of, outcomes_when_killed
from simulation.wards import SCHEMA, WARDS, Wards

NAMED = ["concordance", "concordance_correlation", "mae"]
VALUES = TabularSchema(
    features=tuple(column for column in SCHEMA.features if column.name in ("age", "lactate", "ward", "smoker")),
    target="creatinine", task="regression", target_bounds=(0, 50, 100, 150, 400),
)  # fmt: skip


@pytest.fixture(scope="module")
def wards(wards: Wards) -> Wards:
    return replace(wards, schema=VALUES)


def body(mode: str | None, **changes: Any) -> dict[str, Any]:
    job: dict[str, Any] = {
        "rounds": 2, "model": {"name": "linear"}, "checkpoint_every": 0, "seed": 3,
        "train": {"epochs": 3, "batch_size": 16, "optimizer": {"name": "adam", "lr": 0.5}},
        "participants": {"minimum": 3, "deadline": 30.0, "patience": 30.0}, "evaluate": {"metrics": NAMED},
    }  # fmt: skip
    sums = {} if mode is None else {"secure_aggregation": {"mode": mode}}
    return read_job(completed_job(check_job(job | sums | changes), VALUES))


def said(data: dict[str, Any]) -> object:
    found = {name: data["metrics"].get(name) for name in NAMED}, data.get("undefined"), data["curves"]
    return json.loads(json.dumps(found))


def in_memory(wards: Wards, folder: Path, mode: str | None) -> list[object]:
    rounds: list[object] = []

    def told(kind: str, _round: int, data: dict[str, Any]) -> None:
        if kind == "round-finished":
            rounds.append(said(data))

    with threadpool_limits(1):
        conduct(check_job(body(mode)), wards.in_memory(folder), schema=VALUES, told=told)
    return rounds


@pytest.mark.parametrize("mode", ["compensator", "pairwise", None])
@in_virtual_time
async def test_deployed_sites_find_what_the_run_in_memory_finds(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path, mode: str | None
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "hub", *WARDS, **there) as made:
            record = await completed(made, body(mode))
    deployed = [said(event.data) for event in made.events("round-finished")]
    assert deployed == in_memory(wards, tmp_path / "memory", mode)
    least, most = made.events("round-finished")[-1].data["curves"]["concordance_between"]
    assert least <= record.metrics["concordance"] <= most
    assert most - least < 0.05


def test_a_coordinator_that_dies_tells_the_same(wards: Wards, there: dict[str, Any], tmp_path: Path) -> None:
    def told(made: League, _record: object) -> object:
        return json.dumps([said(event.data) for event in made.events("round-finished")], sort_keys=True)

    with threadpool_limits(1):
        killed = outcomes_when_killed(tmp_path, WARDS, body("compensator"), every=67, told=told, known=True, **there)
    assert len(killed) > 1
    assert set(killed) == {json.dumps(in_memory(wards, tmp_path / "memory", "compensator"), sort_keys=True)}


@in_virtual_time
async def test_a_rehearsal_tells_of_a_site_what_its_deployed_run_tells(
    clock: VirtualClock, wards: Wards, there: dict[str, Any], tmp_path: Path
) -> None:
    alone = {"minimum": 1, "deadline": 30.0, "patience": 30.0}
    # Whole batches: a site's rows are shuffled by its name, which a rehearsal does not have.
    train = {"epochs": 9, "batch_size": "all", "optimizer": {"name": "adam", "lr": 0.5}}
    job = body(None, participants=alone, train=train)
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "hub", WARDS[0], rules={"minimum_participants": 1}, **there) as made:
            record = await completed(made, job)
        (found,) = rehearse(check_job(job), wards.files[WARDS[0]], [], schema=VALUES).values()
        masked = rehearse(check_job(body("compensator", train=train)), wards.files[WARDS[0]], [], schema=VALUES)
    assert found["concordance"] == record.metrics["concordance"]
    assert {name: found[name] for name in NAMED} == pytest.approx({name: record.metrics[name] for name in NAMED}, 1e-5)
    assert masked == {str(wards.files[WARDS[0]]): found}  # whom no mask hides, for the site is alone


PRIVATE = {"placement": "local", "mechanism": "dp_sgd", "clip": 1.0, "noise_multiplier": 1.0}
GIVEN = {
    "numbers": {"scale": "none", "missing": "constant", "indicator": False}, "categories": {"missing": "own"},
    "columns": [{"name": "smoker", "missing": "constant", "indicator": False}],
}  # fmt: skip


@pytest.mark.parametrize("mode", ["compensator", None])
@in_virtual_time
async def test_under_dp_sgd_it_has_noise_and_each_site_is_charged_for_it_once(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path, mode: str | None
) -> None:
    privacy = PRIVATE | {"metrics": {"epsilon": 8.0}}
    asked = body(
        mode, rounds=1, weighting="uniform", prepare=GIVEN, evaluate={"metrics": ["concordance"]}, privacy=privacy
    )
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "hub", *WARDS, rules={"privacy": {"epsilon": 100.0}}, **there) as made:
            record = await completed(made, asked)
    noise = made.events("round-finished")[-1].data["curves"]["noise"]
    assert noise["scale"] == 1 / 8
    assert noise["standard_error"]["concordance"] > 0
    assert 0 < record.metrics["concordance"] < 1
    for site in WARDS:
        charges = [entry for entry in read_chain(made.folder / site, LEDGER) if entry["what"] == "charge"]
        told = [(entry["note"], entry["event"]["amount"]) for entry in charges if entry["work"].endswith("/metrics")]
        assert told == [("counts for concordance: epsilon 8", 8.0)]


@pytest.mark.parametrize(
    ("privacy", "why"),
    [
        (PRIVATE, "would be told without noise, for privacy.metrics is not there"),
        ({"placement": "local", "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 1.0,
          "metrics": {"epsilon": 1.0}}, "counts that hide all of a site's examples nothing would be left"),
    ],
)  # fmt: skip
def test_privacy_that_gives_it_no_noise_refuses_it_in_words(privacy: dict[str, Any], why: str) -> None:
    job = body(None, weighting="uniform", prepare=GIVEN, evaluate={"metrics": ["concordance"]}, privacy=privacy)
    with pytest.raises(HanseError, match=why) as refused:
        check_counts(check_job(job))
    assert refused.value.message.startswith("evaluate.metrics: concordance")


@pytest.mark.parametrize("bins", [None, 32])
@in_virtual_time
async def test_where_it_is_closed_a_run_is_refused_in_words_and_coarse_cells_are_not(
    clock: VirtualClock, there: dict[str, Any], tmp_path: Path, bins: int | None
) -> None:
    rules = {"masking": {"required": True, "minimum": 3}}
    asked = {"metrics": NAMED} if bins is None else {"metrics": NAMED, "bins": bins}
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path / "hub", *WARDS, rules=rules, **there) as made:
            record = await ended(made, body("pairwise", evaluate=asked, rounds=1, prepare={"categories": {"rare": 0}}))
    if bins is None:
        assert record.state == "failed"
        assert "asking.protocols: concordance" in record.reason
    else:
        assert 0 < record.metrics["concordance"] < 1, record.reason
