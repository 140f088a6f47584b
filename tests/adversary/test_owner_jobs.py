"""An owner with an honest hub: jobs whose models differ by one site (attack 3), and the list of runs that failed.

Two jobs of one round, full batches and uniform weights: one of all ten sites, one with `fraction: 0.9` and a seed that
leaves the target out. Ten times the first mean less nine times the second is the target's update.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adversary import workers
from adversary.canaries import PLACES, SHOWN, Place
from adversary.in_memory import tmp_path
from clocks import in_virtual_time
from hanse_compensator.memory import Memory
from hanse_coordinator.api.runs import _summary
from hanse_datapod.masking.remembered import Remembered, Tag
from hanse_fabric.errors import HanseError
from hanse_fabric.tensors.file import decode_tensors, encode_tensors, layout_like
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_fabric.virtual_time import VirtualClock
from hanse_privacy.report import describe
from hanse_privacy.works.pairwise import Past
from hanse_schemas.http.runs import RunView
from hanse_schemas.schema import unit_of
from simulation.league import PROJECT, League
from simulation.stories import hub_of, job_of
from simulation.trainer import FEATURES, RATE, STEPS, Trainer

__all__ = ["tmp_path"]
SITES, TARGET = [f"site-{number}" for number in range(10)], "site-0"
ALL, ALL_BUT_ONE = {"fraction": 1.0}, {"fraction": 0.9}
LEAVES_THE_TARGET_OUT = 19
"""A seed that an owner finds by trying."""
MODEL = np.linspace(0.5, -0.5, FEATURES).astype(np.float32)
MOVED = MODEL.copy()
MOVED[3] = np.nextafter(MOVED[3], np.float32(9))


async def mean_of(made: League, run: str, model: np.ndarray, mode: str, **how: Any) -> tuple[np.ndarray | None, str]:
    """What a job of one round adds to a model that the owner has uploaded; or why it failed."""
    file = encode_tensors(layout_like({"weight": model}), {"weight": model})
    digest = ref_of_bytes(file).digest
    made.store.put(f"models/{PROJECT}/{digest}", file)
    participants = {"minimum": 3, "grace": 0.1} | how.pop("participants")
    await made.submit(
        run, **job_of(rounds=1, initial_model=digest, participants=participants, evaluate={"every": 0},
                      weighting="uniform", secure_aggregation={"mode": mode, "bits": 64}, **how)
    )  # fmt: skip
    record = await made.ended(run)
    if record.state != "completed":
        return None, record.reason
    newest = (await made.versions())[-1]
    trained = decode_tensors(made.store.get(newest.key, limit=1 << 20))[1]["weight"]
    return trained.astype(float) - model, ""


async def target_by_two_jobs(made: League, mode: str, model: np.ndarray) -> tuple[np.ndarray | None, str]:
    """The target's update, if both jobs are done; the second begins with `model`."""
    ten, why = await mean_of(made, "run000000001", MODEL, mode, participants=ALL, seed=1)
    assert ten is not None, why
    nine, why = await mean_of(made, "run000000002", model, mode, participants=ALL_BUT_ONE, seed=LEAVES_THE_TARGET_OUT)
    return (None, why) if nine is None else (10 * ten - 9 * nine, "")


def update_of_target(clock: VirtualClock) -> np.ndarray:
    site, weight = Trainer(clock, 0), MODEL.astype(float)
    for _ in range(STEPS):
        weight = weight - RATE * 2 * site._x.T @ (site._x @ weight - site._y) / len(site._x)
    return weight - MODEL


ATTACKS = pytest.mark.parametrize(
    ("mode", "model"), [("compensator", MODEL), ("pairwise", MODEL), ("compensator", MOVED)],
    ids=["compensator", "pairwise", "a model moved by one unit in the last place"],
)  # fmt: skip


@ATTACKS
@in_virtual_time
async def test_two_jobs_of_which_one_leaves_a_site_out_are_not_both_summed(
    clock: VirtualClock, tmp_path: Path, mode: str, model: np.ndarray
) -> None:
    async with hub_of(clock, tmp_path, *SITES) as made:
        read, why = await target_by_two_jobs(made, mode, model)
        assert read is None
        assert "1 fewer than the last set's" in why or "was unmasked already" in why, why


@ATTACKS
@in_virtual_time
@pytest.mark.control("test_two_jobs_of_which_one_leaves_a_site_out_are_not_both_summed")
async def test_control_where_nobody_remembers_works_two_jobs_tell_one_sites_update(
    clock: VirtualClock, tmp_path: Path, mode: str, model: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def claims_nothing(self: Memory, claim: object) -> None:
        """In place of the compensator's memory of works."""

    monkeypatch.setattr(Memory, "claim_set", claims_nothing)
    monkeypatch.setattr(Past, "_check_revealed", lambda *_: None)
    monkeypatch.setattr(Remembered, "tag", lambda *_: Tag())
    async with hub_of(clock, tmp_path, *SITES) as made:
        read, why = await target_by_two_jobs(made, mode, model)
        assert read is not None, why
        assert np.abs(read - update_of_target(clock)).max() < 1e-5


def failing_job(place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """(a job over data that make it fail, what sites allow)."""
    digest = hashlib.sha256(place.code.encode()).hexdigest()
    job = job_of(rounds=1) if not place.code else job_of(rounds=1, code={"name": "code", "digest": digest}, model={})
    if place.studies:
        few = {"few_cohorts": True, "few_samples": True, "phenotype": "ill", "covariates": ["AGE"]}
        masks = {"mode": "compensator"}
        job = {"workflow": "association_study", "study": {"test": "logistic"} | few, "secure_aggregation": masks}
        job["participants"] = {"minimum": 3, "deadline": 30.0, "patience": 30.0}
    return job, {"site_code": {"digests": [digest]}}


async def all_that_a_run_tells(clock: VirtualClock, folder: Path, place: Place) -> bytes:
    """What `hanse run list` and `show` answer, and every message, of a run whose sites have canaries in their data."""
    (folder / "data").mkdir()
    settings, code = place.make(folder / "data"), folder / "code.py"
    code.write_text(place.code)
    job, rules = failing_job(place)
    there = {"worker": lambda *_: workers.on(settings, code if place.code else None), "schema": place.schema}
    async with hub_of(clock, folder, *SITES[:3], rules=rules, **there) as made:
        await made.submit(**job)
        record = await made.ended()
        assert record.state == "failed", place
        told = describe(record.job, unit=unit_of(place.schema))
        listed = _summary(RunView, record, privacy=told).model_dump_json()
        return b"\n".join([listed.encode(), *(said.data for said in made.network.published)])


OF_RUNS = {
    (place.reader, place.kind, place.quoted): place for place in PLACES if "def initialize" not in place.code
}.values()
"""One of each reader, kind of task, and way to refuse: what a list tells is what the hub has heard, and what that is of
every place is shown by `test_owner_canaries.py`. None whose code makes a run's first model: that is what the hub is
sent then."""


@pytest.mark.parametrize("place", OF_RUNS, ids=lambda place: place.name)
@in_virtual_time
async def test_no_list_of_runs_has_content_of_the_data(clock: VirtualClock, tmp_path: Path, place: Place) -> None:
    told = await all_that_a_run_tells(clock, tmp_path, place)
    for shown in SHOWN:
        assert shown.encode() not in told


@in_virtual_time
@pytest.mark.control("test_no_list_of_runs_has_content_of_the_data")
async def test_control_where_messages_tell_what_was_found_the_list_of_runs_has_a_cell(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HanseError, "__str__", lambda self: self.whole)
    told = await all_that_a_run_tells(clock, tmp_path, PLACES[0])
    assert SHOWN[0].encode() in told
