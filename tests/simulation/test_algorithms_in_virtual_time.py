"""Every job of the algorithm tests, with the true trainers, in virtual time: the same bits as in memory, whoever is
killed. Where there is noise, it is of the same draws. That no job is silently another, the true hub tells of all of
them (`e2e/test_algorithm_jobs.py`)."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e.algorithm_jobs import (
    JOBS,
    NOISE_OF_HUB,
    NOISE_OF_SITES,
    ROUNDS,
    SAMPLED,
    SCHEMA,
    SITES,
    STATEFUL,
    write_images,
)
from e2e.jobs_in_memory import digest_in_memory, draws_of, named_as
from hanse_coordinator.runs.journal import JournalEntry
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_datapod.worker.work import built_in
from hanse_fabric.names import derive_seed
from hanse_fabric.subjects import JOURNAL
from hanse_fabric.tensors.layout import Layout
from hanse_fabric.virtual_time import VirtualClock
from hanse_lab.privacy import noise_source
from hanse_learning.site.private_round import made_private, train_with
from hanse_learning.site.session import Session, Trained
from hanse_learning.site.site_privacy import SitePrivacy
from hanse_privacy.noise.source import NoiseSource
from hanse_site.identity import parse_schema
from simulation.in_threads import ThreadedProcess
from simulation.league import PROJECT, RUN, League
from simulation.played import Played, play


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    write_images(folder)
    return folder


def simulated(folder: Path, data: Path, job: dict[str, Any], trouble: Any = None) -> Played:
    def worker(clock: VirtualClock, number: int) -> ProcessWorker:
        mine = data / SITES[number]
        settings = DataSettings(train=mine / "train.npz", test=mine / "test.npz")
        return ProcessWorker(settings, ThreadedProcess(clock, 5.0))

    return play(folder, job, sites=len(SITES), trouble=trouble, worker=worker, schema=parse_schema(SCHEMA))


async def kill_all(made: League) -> None:
    await made.clock.sleep(9)
    for name in ("site-1", "coordinator-0", "aggregator-0", "site-0", "registry"):
        await made.restart(name, after=0.5)
        await made.clock.sleep(2)


def is_evaluated(name: str) -> dict[str, Any]:
    """Between rounds where sites carry more than the model, else at the end alone."""
    return {"evaluate": {"every": ROUNDS - 1 if name in STATEFUL else ROUNDS}}


ONCE = [
    name for name in JOBS if name not in SAMPLED and name == next(other for other in JOBS if JOBS[other] == JOBS[name])
]
"""Those that differ, of which all are there."""


@pytest.mark.parametrize("name", ONCE)
def test_a_job_ends_in_the_same_bits_as_in_memory_although_all_are_killed(
    data: Path, tmp_path: Path, name: str
) -> None:
    files = {f"site-{number}": data / site / "train.npz" for number, site in enumerate(SITES)}
    hit = simulated(tmp_path, data, JOBS[name] | is_evaluated(name), kill_all)
    assert (hit.record.round, hit.takings) == (ROUNDS, 2)
    assert hit.record.model_digest == digest_in_memory(JOBS[name], SCHEMA, files), "in memory it is another model"


@pytest.mark.parametrize("name", SAMPLED)
def test_a_job_of_which_some_are_drawn_ends_although_all_are_killed(data: Path, tmp_path: Path, name: str) -> None:
    """Who is drawn again depends on who is there: only where nobody was killed, the bits are those in memory."""
    hit = simulated(tmp_path / "hit", data, JOBS[name] | is_evaluated(name), kill_all)
    assert (hit.record.round, hit.takings) == (ROUNDS, 2)
    calm = simulated(tmp_path / "calm", data, JOBS[name] | is_evaluated(name))
    files = {f"site-{number}": data / site / "train.npz" for number, site in enumerate(SITES)}
    assert calm.record.model_digest == digest_in_memory(JOBS[name], SCHEMA, files), "in memory it is another model"


@pytest.mark.parametrize("name", [*NOISE_OF_HUB, *NOISE_OF_SITES])
def test_a_job_with_noise_ends_in_the_same_bits_as_in_memory_by_the_same_draws(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    job = {**NOISE_OF_HUB, **NOISE_OF_SITES}[name]
    files = {f"site-{number}": data / site / "train.npz" for number, site in enumerate(SITES)}
    if name in NOISE_OF_SITES:
        inject(monkeypatch, job["seed"], tuple(files))
    hit = simulated(tmp_path / "hit", data, job, kill_all)
    assert (hit.record.round, hit.takings) == (ROUNDS, 2)
    named_as(monkeypatch, PROJECT, RUN)
    journal = hit.made.published(JOURNAL, JournalEntry)
    assert digest_in_memory(job, SCHEMA, files, secret=draws_of(journal)) == hit.record.model_digest
    # The control: other draws, another model.
    if name in NOISE_OF_HUB:
        assert digest_in_memory(job, SCHEMA, files) != hit.record.model_digest
    else:
        monkeypatch.setattr("hanse_lab.site.noise_source", lambda *_: NoiseSource())
        assert digest_in_memory(job, SCHEMA, files) != hit.record.model_digest


def inject(monkeypatch: pytest.MonkeyPatch, seed: int, sites: tuple[str, ...]) -> None:
    """Have the sites' workers draw from the sources of the sites in memory: of a site and a round, whoever asks."""
    names = {
        derive_seed(seed, number, site, "train"): (number, site) for number in range(1, ROUNDS + 1) for site in sites
    }
    here = threading.local()  # a task's training, and what is done with its update, are in one thread

    def trained(private: SitePrivacy | None, session: Session) -> Trained:
        here.source = noise_source(seed, *names[session.seed])
        return train_with(private, session, source=here.source)

    def noised(update: dict[str, np.ndarray], layout: Layout, private: SitePrivacy) -> dict[str, np.ndarray]:
        return made_private(update, layout, private, source=here.source)

    monkeypatch.setattr(built_in, "train_with", trained)
    monkeypatch.setattr(built_in, "made_private", noised)


def test_a_site_that_was_away_goes_on_from_its_last_round_that_counted(data: Path, tmp_path: Path) -> None:
    """It hangs with a control variate of a round that the others end without it."""

    async def hang(made: League) -> None:
        await made.until(lambda record: record.round == 2)
        made.processes["site-2"].cut(20)

    lenient = {"minimum": 1, "quorum": 0.3, "grace": 2.0, "retries": 0}
    job = JOBS["algorithm scaffold"] | {"rounds": 10, "evaluate": {"every": 0}}
    played = simulated(tmp_path, data, job | {"participants": job["participants"] | lenient}, hang)
    counted = [event.data["participants"] for event in played.made.events("round-finished")]
    there = "".join("s" if "site-2" in names else "-" for names in counted)
    assert re.fullmatch("ss-+s+", there), there
    told = [event.data["outcome"] for event in played.made.events("task-answered")]
    assert set(told) == {"done"}
    back = there.rindex("-") + 2
    [again] = [task for task in played.made.conduct["site-2"].heard if task.step == f"r{back}-train"]
    assert again.trained == 2, "it must take its control variate as of the last round that counted"
