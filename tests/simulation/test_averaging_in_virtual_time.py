"""Twenty rounds of averaging by ten sites, with the true services, in virtual time: the same bits in any weather."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_coordinator.records import RunRecord
from hanse_fabric.messages import AuditEvent
from hanse_fabric.subjects import AUDIT, STREAMS
from hanse_fabric.virtual_time import VirtualClock
from simulation.league import League, league
from simulation.network import Weather
from simulation.trainer import TRUE

ROUNDS = 20
JOB = {
    "rounds": ROUNDS, "model": {"name": "linear"}, "seed": 7, "evaluate": {"every": 5},
    "participants": {"minimum": 10, "deadline": 600.0, "patience": 600.0},
}  # fmt: skip
MASKED = {"secure_aggregation": {"mode": "compensator"}}
Fault = Callable[[League], Awaitable[None]]


@dataclass
class Played:
    """What came of a simulation: the run's record, its virtual seconds, how many messages were lost, all messages in
    order, and how often a coordinator took up the run."""

    job: dict[str, Any]
    record: RunRecord
    seconds: float
    lost: int
    messages: list[str]
    model: np.ndarray
    takings: int


def play(
    folder: Path, job: dict[str, Any], *, seed: int = 0, weather: Weather | None = None, fault: Fault | None = None
) -> Played:
    clock = VirtualClock()

    async def main() -> Played:
        async with league(clock, folder, seed=seed, weather=weather) as made, faults(made, fault):
            await made.submit(**job)
            record = await made.ended()
            return Played(
                job, record, clock.monotonic(), made.network.lost, messages(made), await made.model(), takings(made)
            )

    played = clock.run(main())
    assert played.record.state == "completed", played.record.reason
    assert played.record.round == ROUNDS
    return played


@asynccontextmanager
async def faults(made: League, fault: Fault | None) -> AsyncIterator[None]:
    """Have `fault` act while the run goes on; it must have ended before the run has."""
    if fault is None:
        yield
        return
    acting = asyncio.ensure_future(fault(made))
    yield
    assert acting.done(), "the run ended before the fault was over"
    acting.result()


def messages(made: League) -> list[str]:
    return [record.subject for stream in STREAMS for record in made.broker.matching(stream, ">")]


def takings(made: League) -> int:
    """How often a coordinator took up the run."""
    return sum(
        AuditEvent.decode(record.data).action == "run.take" for record in made.broker.matching(AUDIT.stream, ">")
    )


@pytest.fixture(scope="module", params=["plain", "masked"])
def calm(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Played:
    """The run in good weather, without a fault."""
    return play(tmp_path_factory.mktemp("calm"), JOB if request.param == "plain" else JOB | MASKED)


def test_twenty_rounds_find_the_weights_that_the_data_were_made_from(calm: Played) -> None:
    assert (calm.lost, calm.takings) == (0, 1)
    np.testing.assert_allclose(calm.model, TRUE, atol=0.02)


def test_the_same_seed_is_the_same_run_to_the_order_of_its_messages(calm: Played, tmp_path: Path) -> None:
    again = play(tmp_path, calm.job)
    assert again.seconds == calm.seconds
    assert again.messages == calm.messages
    assert again.record.model_digest == calm.record.model_digest


def test_slow_links_that_lose_messages_cost_time_and_change_no_bit(calm: Played, tmp_path: Path) -> None:
    stormy = play(tmp_path, calm.job, seed=1, weather=Weather(latency_s=0.5, lost=0.01))
    assert stormy.lost > 10
    assert stormy.seconds > calm.seconds
    assert stormy.record.model_digest == calm.record.model_digest


@pytest.mark.parametrize("seed", [2, 3])
def test_crashes_of_every_process_in_the_middle_of_rounds_change_no_bit(
    calm: Played, tmp_path: Path, seed: int
) -> None:
    async def crash_all(made: League) -> None:
        chance = np.random.default_rng(seed)
        names = ["coordinator", "aggregator-0", "compensator", "aggregator-1", "registry", "site-0", "coordinator"]
        for name in names:
            await made.clock.sleep(chance.uniform(5, 20))
            await made.restart(name, after=chance.uniform(0.1, 5))

    hit = play(tmp_path, calm.job, seed=seed, fault=crash_all)
    assert hit.takings == 3
    assert hit.record.model_digest == calm.record.model_digest


def test_another_seed_of_the_job_gives_another_model(calm: Played, tmp_path: Path) -> None:
    """The control: the digest tells models apart."""
    other = play(tmp_path, calm.job | {"seed": 8})
    assert other.record.model_digest != calm.record.model_digest
