"""A hub that knows all of a site's patients but whether one is there, where the site sets test data aside itself.

What one patient does to a step of `dp_sgd` is cut to the clip, for which the noise is made. Were others trained on when
this one is there, they would move the sum by a multiple of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary import workers
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, refusals
from csv_tables import write_table
from hanse_datapod.data import names
from hanse_datapod.data.settings import DataSettings, Split
from hanse_datapod.home import splits
from hanse_fabric.messages import PrivacyTerms, TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_schemas import csv_frame
from hanse_schemas.schema import Column, TabularSchema

VISITS = TabularSchema(
    features=tuple(Column(name=f"marker{at}") for at in range(8)), target="ill", classes=2, unit="patient"
)  # fmt: skip
PATIENTS, CLIP, NOISE = 200, 1.0, 1e-3
RULES = {"sites": 2, "masking": {"required": False}, "minimum_participants": 1}
MODEL = {"output.weight": np.zeros((2, 8)), "output.bias": np.zeros(2)}
TRAIN = {"steps": 1, "batch_size": 100_000, "optimizer": {"name": "sgd", "lr": 1.0}}
NAME = "Canary-7f3a"
"""Of the patient who is at site 0, and not at site 1."""
WHOSE = {"a patient of several rows": True, "a row that nobody is said to have": False}


def site_with_or_without(folder: Path, *, units: bool, two_ways: bool) -> Any:
    """A worker by its number: both sites' other patients are the same."""

    def worker(index: int) -> Any:
        draw = np.random.default_rng(3)
        rows: list[list[object]] = []
        for at in range(PATIENTS):
            written = (f"{at}", f"00{at}") if two_ways else (f"p{at}", f"p{at}")
            visits = [[name, *draw.normal(size=8).round(3), at % 2] for name in written]
            rows += visits if units else visits[:1]
        if index == 0:
            rows += [[NAME, *[4.0] * 8, 1]] * (2 if units else 1)
        columns = ["patient", *(column.name for column in VISITS.features), "ill"]
        return workers.on(DataSettings(train=write_table(folder / f"{index}.csv", columns, rows)))

    return worker


def terms(**changes: Any) -> PrivacyTerms:
    section = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": NOISE, "clip": CLIP} | changes
    return PrivacyTerms(privacy=Privacy.model_validate(section), rounds=10, round=1, active=2)


async def moved(hub: LyingHub, step: str = "r1-train", run: str = "") -> float:
    """By how many clips the sums of the two sites' steps differ."""
    config = {"model": {"name": "logistic"}, "train": TRAIN}
    results = await hub.ask(
        *(
            hub.task(name, step, mode=None, model=MODEL, config=config, privacy=terms(), trained=0, run=run)
            for name in hub.stage.names
        )
    )
    assert refusals(results) == {}
    sums = []
    for name, result in results.items():
        units = hub.stage.sites[name].worker.told.pop()
        sums.append(units * (await hub.update(result)))
    return float(np.linalg.norm(sums[0] - sums[1])) / CLIP


class Listening:
    """A worker of which the attacker knows how large a batch is: more than a hub hears."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.told: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    async def work(self, request: Any, on_progress: Any) -> Any:
        if "batch" in request.config.get("privacy", {}):
            self.told.append(request.config["privacy"]["batch"])
        return await self._worker.work(request, on_progress)


def staged(attacked: Attacked, folder: Path, *, units: bool, two_ways: bool = False) -> Any:
    make = site_with_or_without(folder, units=units, two_ways=two_ways)
    schema = VISITS if units else VISITS.model_copy(update={"unit": None})
    return attacked(worker=lambda index: Listening(make(index)), schema=schema, **RULES)


@pytest.mark.parametrize("units", WHOSE.values(), ids=WHOSE.keys())
async def test_whether_one_patient_is_there_moves_no_other_to_the_tests(
    attacked: Attacked, tmp_path: Path, units: bool
) -> None:
    async with staged(attacked, tmp_path, units=units) as hub:
        assert await moved(hub) <= 1.0 + 20 * NOISE
        assert not any(NAME.encode() in data for _, data in hub.heard)


@pytest.mark.parametrize("units", WHOSE.values(), ids=WHOSE.keys())
@pytest.mark.control("test_whether_one_patient_is_there_moves_no_other_to_the_tests")
async def test_control_by_a_shuffle_of_all_one_patient_moves_the_sum_by_many_clips(
    attacked: Attacked, tmp_path: Path, units: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splits, "split_of", lambda _privacy: "shuffled")
    async with staged(attacked, tmp_path, units=units) as hub:
        assert await moved(hub) > 2.0


async def begun_with_something_else(hub: LyingHub) -> float:
    """A run that the hub begins with an evaluation, and noise on whole updates: as if it were one of before."""
    run = "b" * 12
    config = {"model": {"name": "logistic"}, "train": TRAIN}
    for step, fields in (
        ("r1-evaluate", {"kind": TaskKind.EVALUATE}),
        ("r1-train", {"privacy": terms(mechanism="gaussian"), "trained": 0}),
    ):
        tasks = [hub.task(name, step, mode=None, model=MODEL, config=config, run=run, **fields)
                 for name in hub.stage.names]  # fmt: skip
        assert refusals(await hub.ask(*tasks)) == {}
    return await moved(hub, "r2-train", run)


async def test_no_hub_has_a_run_parted_as_those_of_before(attacked: Attacked, tmp_path: Path) -> None:
    async with staged(attacked, tmp_path, units=True) as hub:
        assert await begun_with_something_else(hub) <= 1.0 + 20 * NOISE


@pytest.mark.control("test_no_hub_has_a_run_parted_as_those_of_before")
async def test_control_were_a_whole_run_parted_as_for_its_first_task_a_hub_would_begin_it_so(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, decided = dict[tuple[int, str], Split](), splits.Splits.of
    monkeypatch.setattr(
        splits.Splits, "of", lambda self, task: first.setdefault((id(self), task.run), decided(self, task))
    )
    async with staged(attacked, tmp_path, units=True) as hub:
        assert await begun_with_something_else(hub) > 2.0


async def test_whether_one_patient_is_there_makes_no_other_two(attacked: Attacked, tmp_path: Path) -> None:
    """All others have numbers for names, which are written in two ways."""
    async with staged(attacked, tmp_path, units=True, two_ways=True) as hub:
        assert await moved(hub) <= 1.0 + 20 * NOISE


@pytest.mark.control("test_whether_one_patient_is_there_makes_no_other_two")
async def test_control_by_the_type_of_its_whole_column_a_name_in_two_ways_is_one_or_two(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_frame, "unit_of", lambda _schema: None)
    monkeypatch.setattr(names, "said", lambda name: name)
    async with staged(attacked, tmp_path, units=True, two_ways=True) as hub:
        assert await moved(hub) > 2.0
