"""Rounds with central privacy: the aggregator gets a secret seed for each round, the same when it is asked again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from workflow_hub import Hub, MortalBus, at_work, job_of, stopped

from hanse_fabric.bus.port import Bus
from hanse_fabric.messages import Reduced, ReduceJob, TaskKind
from hanse_schemas.job import Job

PRIVATE = {"placement": "central", "mechanism": "gaussian", "noise_multiplier": 2.0, "adaptive_clip": 0.5}


class CentralHub(Hub):
    """Its aggregator halves the clipping norm in each round, and notes what it was asked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.strategies: dict[str, list[dict[str, Any]]] = {}

    async def reduce(self, bus: Bus, job: ReduceJob) -> Reduced:
        self.strategies.setdefault(job.step, []).append(job.strategy)
        reduced = await super().reduce(bus, job)
        return reduced if job.model is None else reduced.model_copy(update={"clip": 0.5**job.round})

    def reductions(self, step: str) -> list[dict[str, Any]]:
        return [strategy["reduction"] for strategy in self.strategies[step]]


@pytest.fixture
def hub(tmp_path: Path) -> CentralHub:
    return CentralHub(tmp_path)


def central_job(**changes: Any) -> Job:
    return job_of(weighting="uniform", privacy=PRIVATE, strategy={"optimizer": {"name": "sgd"}}, **changes)


async def test_each_round_has_a_seed_of_its_own_and_the_norm_of_the_round_before(hub: CentralHub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(central_job())
        record = await hub.ended()
    assert (record.state, record.reason) == ("completed", "")
    made = [hub.reductions(f"r{number}-reduce")[0] for number in (1, 2, 3)]
    assert [reduction["clip"] for reduction in made] == [None, 0.5, 0.25]
    assert len({reduction["seed"] for reduction in made}) == 3
    assert {strategy["optimizer"]["name"] for strategy in hub.strategies["r1-reduce"]} == {"sgd"}
    assert [reduction["terms"]["round"] for reduction in made] == [1, 2, 3]
    assert "reduction" not in hub.strategies["r0-adopt"][0]


async def test_the_seed_is_in_no_record_that_people_read(hub: CentralHub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(central_job(rounds=1))
        record = await hub.ended()
    seed = hub.reductions("r1-reduce")[0]["seed"]
    told = record.model_dump_json() + "".join(event.model_dump_json() for event in await hub.events())
    assert seed not in told
    assert seed not in str(await hub.audits())


async def test_sites_are_told_so_that_their_ledgers_can_charge_it(hub: CentralHub) -> None:
    seen: list[Any] = []
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        for site in hub.sites.values():
            site.behave = lambda task: seen.append(task) or {}  # type: ignore[func-returns-value]
        await hub.submit(central_job(rounds=1))
        await hub.ended()
    told = {task.kind: task.privacy for task in seen}
    assert told[TaskKind.TRAIN].privacy.placement == "central"
    assert told[TaskKind.EVALUATE] is None


@pytest.mark.parametrize("at", range(8, 40, 4))
async def test_a_reduction_that_is_done_again_after_a_crash_has_the_same_noise(hub: CentralHub, at: int) -> None:
    async with hub.running("north", "south"):
        mortal = MortalBus(hub.broker, at=at, stored=True)
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        await hub.submit(central_job(rounds=2))
        ended = asyncio.ensure_future(hub.ended())
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([ended, died], return_when=asyncio.FIRST_COMPLETED)
        async with at_work(hub.supervisor()):
            record = await ended
        mortal.buried.set()
        await stopped(first, died)
    assert (record.state, record.reason) == ("completed", "")
    for number in (1, 2):
        assert len({str(reduction) for reduction in hub.reductions(f"r{number}-reduce")}) == 1
