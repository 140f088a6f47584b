"""Every job of the algorithm tests, with the true trainers, in virtual time: the same bits as in memory, whoever is
killed. Where there is noise, it is of the same draws. That no job is silently another, the true hub tells of all of
them (`e2e/test_algorithm_jobs.py`).

Many jobs are in their middle on one hub when its processes are killed. Each test looks at one of their runs."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
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
from hanse_coordinator.records import RunRecord
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
from simulation.league import PROJECT, RUN, League, MakeWorker, league
from simulation.network import QUICK
from simulation.played import Played, play

FEW = 192
"""Rows of a site: three steps of a round."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    write_images(folder)
    for path in folder.glob("*/train.npz"):
        with np.load(path) as given:
            np.savez(path, x=given["x"][:FEW], y=given["y"][:FEW])
    return folder


def worker_on(data: Path, seconds: float) -> MakeWorker:
    def worker(clock: VirtualClock, number: int) -> ProcessWorker:
        mine = data / SITES[number]
        settings = DataSettings(train=mine / "train.npz", test=mine / "test.npz")
        return ProcessWorker(settings, ThreadedProcess(clock, seconds))

    return worker


def simulated(folder: Path, data: Path, job: dict[str, Any], trouble: Any = None) -> Played:
    return play(
        folder, job, sites=len(SITES), trouble=trouble, worker=worker_on(data, 5.0), schema=parse_schema(SCHEMA)
    )


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
AT_ONCE = 10


@dataclass(frozen=True, slots=True)
class End:
    """Of one of the jobs that were on a hub at once.

    Attributes:
        takings: how often a coordinator took up its run.
    """

    record: RunRecord
    takings: int


def ends(data: Path, names: Sequence[str], trouble: Callable[[League], Awaitable[None]] | None) -> dict[str, End]:
    """Of the jobs of these names, all on one hub at once; a site has one task at a time."""
    clock = VirtualClock()
    runs = {name: f"run{number:09}" for number, name in enumerate(names)}

    async def main(folder: Path) -> dict[str, End]:
        worker = worker_on(data, 5.0 / len(names))
        there: dict[str, Any] = {"sites": len(SITES), "worker": worker, "schema": parse_schema(SCHEMA)}
        async with league(clock, folder, weather=QUICK, **there) as made:
            for name, run in runs.items():
                await made.submit(run, **JOBS[name] | is_evaluated(name))
            if trouble is not None:
                await trouble(made)
            records = {name: await made.ended(run) for name, run in runs.items()}
            taken = [event.subject.removeprefix("run:") for event in made.audits("run.take")]
            return {name: End(records[name], taken.count(run)) for name, run in runs.items()}

    with tempfile.TemporaryDirectory(dir=data) as folder:
        return clock.run(main(Path(folder)))


@pytest.fixture(scope="module")
def end_of(data: Path) -> Callable[..., End]:
    """Of a job of a name, with others of its kind."""
    # Sites that wait for each other in the middle of a task can have no other task meanwhile.
    alone = [name for name in ONCE if "fedtan" in name]
    others = [name for name in ONCE if name not in alone]
    rooms = [*([name] for name in alone), *(others[at : at + AT_ONCE] for at in range(0, len(others), AT_ONCE))]
    found: dict[tuple[str, bool], End] = {}

    def end(name: str, *, killed: bool = True) -> End:
        if (name, killed) not in found:
            room = next((room for room in rooms if name in room), list(SAMPLED))
            there = ends(data, room, kill_all if killed else None)
            found.update({(each, killed): one for each, one in there.items()})
        return found[name, killed]

    return end


def found_in_memory(data: Path, name: str) -> str | None:
    files = {f"site-{number}": data / site / "train.npz" for number, site in enumerate(SITES)}
    return digest_in_memory(JOBS[name], SCHEMA, files)


@pytest.mark.parametrize("name", ONCE)
def test_a_job_ends_in_the_same_bits_as_in_memory_although_all_are_killed(
    data: Path, end_of: Callable[..., End], name: str
) -> None:
    hit = end_of(name)
    assert (hit.record.state, hit.record.reason, hit.record.round, hit.takings) == ("completed", "", ROUNDS, 2)
    assert hit.record.model_digest == found_in_memory(data, name), "in memory it is another model"


@pytest.mark.parametrize("name", SAMPLED)
def test_a_job_of_which_some_are_drawn_ends_although_all_are_killed(
    data: Path, end_of: Callable[..., End], name: str
) -> None:
    """Who is drawn again depends on who is there: only where nobody was killed, the bits are those in memory."""
    hit = end_of(name)
    assert (hit.record.state, hit.record.reason, hit.record.round, hit.takings) == ("completed", "", ROUNDS, 2)
    calm = end_of(name, killed=False)
    assert calm.record.model_digest == found_in_memory(data, name), "in memory it is another model"


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
