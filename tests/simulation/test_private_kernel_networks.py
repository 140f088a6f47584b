"""Private runs of kernel-normalized networks, true trainers in virtual time: whoever is killed, the same bits."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from e2e.algorithm_jobs import SCHEMA, SITES, write_images
from hanse_coordinator.verbs.durable import DurableVerbs
from hanse_datapod.agent.loop import Agent
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_fabric.chain import read_chain
from hanse_fabric.virtual_time import VirtualClock
from hanse_privacy.ledger import NAME
from hanse_privacy.noise import rounding, source
from hanse_privacy.ring import codec
from hanse_site.identity import parse_schema
from simulation.faults import silent
from simulation.in_threads import ThreadedProcess
from simulation.league import League
from simulation.played import Played, play
from simulation.stories import answers

TRAIN = {"steps": 2, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.2}}
SGD = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 1.0}
SHARES = {"placement": "distributed", "mechanism": "discrete_gaussian", "noise_multiplier": 0.5, "clip": 0.5}
CENTRAL = {"placement": "central", "mechanism": "gaussian", "noise_multiplier": 0.5, "adaptive_clip": 0.5}
JOBS: dict[str, dict[str, Any]] = {
    "noise in the masked sum": {"privacy": SHARES, "secure_aggregation": {"mode": "compensator"}},
    "noise in the sum of masks between pairs": {"privacy": SHARES, "secure_aggregation": {"mode": "pairwise"}},
    "noise at the hub": {"privacy": CENTRAL},
    "private control variates": {"privacy": SGD, "train": TRAIN | {"algorithm": "scaffold"}},
}
NAMES = tuple(f"site-{number}" for number in range(4))
AWAY = NAMES[3]
"""It hears nothing of round 2, which the others end without it, and is there again in round 3."""
KILLED = ("site-1", "coordinator-0", "aggregator-0", "aggregator-1", "compensator", "site-0", "registry", AWAY)

drawing: ContextVar[str] = ContextVar("drawing")
"""The site that draws."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    write_images(folder)
    for path in folder.glob("*/train.npz"):  # of a site's rows two small batches are taken in a round
        with np.load(path) as given:
            np.savez(path, x=given["x"][:96], y=given["y"][:96])
    return folder


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What sites' noise depends on beside their names; the hub's is the same. Else no two runs are comparable."""
    besides = [""]
    run = Agent.run

    async def as_itself(agent: Agent) -> None:
        drawing.set(agent._link.identity.participant)
        await run(agent)

    def drawn(count: int) -> bytes:
        return hashlib.shake_256((drawing.get() + besides[0]).encode()).digest(count)

    monkeypatch.setattr(Agent, "run", as_itself)
    monkeypatch.setattr(DurableVerbs, "secret", lambda _, count: bytes(range(count)))
    for module in (source, rounding, codec):
        monkeypatch.setattr(module, "os", SimpleNamespace(urandom=drawn))
    return besides


def simulated(folder: Path, data: Path, job: dict[str, Any], trouble: Any = None) -> Played:
    def worker(clock: VirtualClock, number: int) -> ProcessWorker:
        mine = data / SITES[number % len(SITES)]
        settings = DataSettings(train=mine / "train.npz", test=mine / "test.npz")
        return ProcessWorker(settings, ThreadedProcess(clock, 5.0))

    async def without_one(made: League) -> None:
        made.let(AWAY, silent("r2-*"))
        if trouble is not None:
            await trouble(made)

    body = {
        "rounds": 3, "weighting": "uniform", "evaluate": {"every": 0}, "checkpoint_every": 0, "seed": 5, "train": TRAIN,
        "participants": {"minimum": 3, "quorum": 0.7, "deadline": 90.0, "patience": 90.0, "retries": 2},
        "model": {"name": "cnn", "channels": [3, 4], "normalization": "kernel", "activation": "mish"},
    } | job  # fmt: skip
    return play(folder, body, sites=NAMES, trouble=without_one, worker=worker, schema=parse_schema(SCHEMA))


async def kill_all(made: League) -> None:
    for name in KILLED:
        await made.clock.sleep(7)
        await made.restart(name, after=2.0)


def told(played: Played) -> tuple[object, ...]:
    """Who counted in which round, the charges of each site, and the model's digest."""
    assert set(answers(played.made).values()) == {1}, "a site answered a task twice, each time with noise of its own"
    counted = [sorted(event.data["participants"]) for event in played.made.events("round-finished")]
    ledgers = [[entry["what"] for entry in read_chain(played.made.folder / name, NAME)] for name in NAMES]
    return counted, ledgers, played.record.model_digest


@pytest.mark.usefixtures("draws")
@pytest.mark.parametrize("name", JOBS)
def test_a_private_run_that_a_site_rejoins_ends_in_the_same_bits_and_charges_although_all_are_killed(
    data: Path, tmp_path: Path, name: str
) -> None:
    calm = told(simulated(tmp_path / "calm", data, JOBS[name]))
    assert calm[0] == [[*NAMES], [*NAMES[:3]], [*NAMES]]
    hit = simulated(tmp_path / "hit", data, JOBS[name], kill_all)
    assert hit.takings == 2
    assert told(hit) == calm


def test_control_sites_whose_noise_is_drawn_otherwise_make_another_model(
    data: Path, tmp_path: Path, draws: list[str]
) -> None:
    job = JOBS["noise in the masked sum"] | {"rounds": 1}
    known = simulated(tmp_path / "known", data, job)
    draws[0] = "anew"
    assert simulated(tmp_path / "anew", data, job).record.model_digest != known.record.model_digest
