"""The agent's part of sums in the middle of a task: written down before they leave, ended, masked as the answer is."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_aggregator.exchange import hold_session
from hanse_datapod.agent.sums_under_way import open_sums
from hanse_datapod.agent.task_queue import TaskQueue, makes_way
from hanse_datapod.home.outbox import Leaving
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.policy.site_policy import OutputPolicy, Policy
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.exchange import open_exchange
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ExchangeJob, Ring, Task, TaskKind
from hanse_fabric.subjects import EXCHANGE, TASK
from hanse_privacy.ring.plan import AVERAGE, make_plan
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_site import OpenTask, SiteLink
from hub_doors import hub_doors
from unit.datapod.site_actors import NoTransfer, enrolled, task
from unit.datapod.site_actors import Site as Life

RUN = "a" * 12
SOUTH = SigningKey.create()


def kept(home: Path) -> dict[str, Any]:
    return {"home": home, "remembered": Remembered(home, Policy(), SYSTEM_CLOCK)}


def fedtan(patience: float = 60.0, **fields: Any) -> Task:
    train = {"algorithm": {"name": "fedtan", "patience": patience}}
    return task(config={"model": {"name": "mlp", "batch_norm": True}, "train": train}, **fields)


class Site:
    """North's link, and what it has written down."""

    def __init__(self, home: Path, broker: MemoryBroker) -> None:
        self.link = SiteLink(MemoryBus(broker), enrolled(home), NoTransfer())  # type: ignore[arg-type]
        self.written: list[Leaving] = []

    async def write_down(self, leaving: Leaving) -> None:
        self.written.append(leaving)


@asynccontextmanager
async def session(home: Path, broker: MemoryBroker, participants: tuple[str, ...], ring: Ring | None = None):
    job = ExchangeJob(
        id="exchange", project="triage", run=RUN, step="r1-train", participants=participants,
        deadline=datetime.now(UTC) + timedelta(hours=2), ring=ring,
    )  # fmt: skip
    holding = asyncio.create_task(hold_session(job, MemoryBus(broker)))
    hub = MemoryBus(broker)
    for name in participants:
        await hub.publish(TASK.of(project="triage", participant=name, run=RUN, step="r1-train"), b"open")
    keys = {"south": SOUTH.public_bytes, "north": enrolled(home).signing_key.public_bytes}
    try:
        async with hub_doors(hub, keys=keys):
            yield holding
    finally:
        holding.cancel()
        await asyncio.wait({holding})


async def test_contributions_are_written_down_and_summed_and_the_end_is_told(tmp_path: Path) -> None:
    broker = MemoryBroker()
    site = Site(tmp_path, broker)
    other = MemoryBus(broker)

    async def south() -> np.ndarray:
        async with open_exchange(Doors(other, "triage", "south", SOUTH), run=RUN, step="r1-train") as exchange:
            return await exchange.sum("l0-mean", [1.0, 2.0])

    async with asyncio.timeout(60), session(tmp_path, broker, ("north", "south")) as holding:
        async with open_sums(site.link, fedtan(), site.write_down, Policy(), examples=10, **kept(tmp_path)) as exchange:
            assert exchange is not None
            given = np.array([10.0, 20.0]).tobytes()
            total, theirs = await asyncio.gather(exchange("l0-mean", given), south())
            assert np.frombuffer(total).tolist() == theirs.tolist() == [11.0, 22.0]
            # A worker that has died and does its work again finds the sum that was made.
            assert await exchange("l0-mean", given) == total
            assert await exchange("end", b"") == b""
        assert (await holding).error == ""
    subject = EXCHANGE.of(project="triage", run=RUN, step="r1-train", participant="north", key="l0-mean")
    assert site.written[0] == Leaving("sum", subject, 16, task=f"{RUN}/r1-train", masked=False)


async def test_a_sum_without_the_other_sites_fails_as_a_missed_quorum(tmp_path: Path) -> None:
    broker = MemoryBroker()
    site = Site(tmp_path, broker)
    async with (
        asyncio.timeout(60),
        session(tmp_path, broker, ("north", "south")),
        open_sums(site.link, fedtan(patience=1), site.write_down, Policy(), examples=10, **kept(tmp_path)) as exchange,
    ):
        assert exchange is not None
        with pytest.raises(HanseError) as raised:
            await exchange("l0-mean", np.zeros(2).tobytes())
    assert raised.value.code is ErrorCode.QUORUM


async def test_a_bus_that_is_away_for_a_moment_breaks_no_sum(tmp_path: Path) -> None:
    class Flaky(MemoryBus):
        refusals = 2

        async def request(self, subject: str, data: bytes, **options: Any) -> bytes:
            if self.refusals and ".exchange." in subject:
                self.refusals -= 1
                raise HanseError(ErrorCode.UNAVAILABLE, "the bus is away")
            return await super().request(subject, data, **options)

    broker = MemoryBroker()
    site = Site(tmp_path, broker)
    site.link.doors = replace(site.link.doors, bus=Flaky(broker))
    async with (
        asyncio.timeout(60),
        session(tmp_path, broker, ("north",)),
        open_sums(site.link, fedtan(), site.write_down, Policy(), examples=10, **kept(tmp_path)) as exchange,
    ):
        assert exchange is not None
        assert np.frombuffer(await exchange("l0-mean", np.ones(2).tobytes())).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "asked",
    [
        task(config={"model": {"name": "mlp"}, "train": {"algorithm": "fedavg"}}),
        fedtan(kind=TaskKind.EVALUATE),
        fedtan(privacy={"privacy": {"placement": "local", "mechanism": "gaussian", "epsilon": 1.0, "clip": 1.0,
                                    "delta": 1e-5}, "rounds": 1, "round": 1, "active": 3}),
    ],
    ids=["another algorithm", "evaluation", "noise"],
)  # fmt: skip
async def test_a_task_of_another_algorithm_an_evaluation_or_private_work_has_no_sums(
    tmp_path: Path, asked: Task
) -> None:
    site = Site(tmp_path, MemoryBroker())
    async with open_sums(site.link, asked, site.write_down, Policy(), examples=10, **kept(tmp_path)) as exchange:
        assert exchange is None
    assert not site.written


def masking(mode: str) -> dict[str, Any]:
    plan = make_plan(SecureAggregation(mode="ring"), participants=3, weighting="uniform")
    return {"mode": mode, "session": "r1-train", "minimum": 3, "ring": plan.model_dump()}


@pytest.mark.parametrize("asked", [fedtan(), fedtan(masking=masking("ring"))], ids=["plain", "ring"])
def test_a_site_whose_policy_requires_masks_takes_part_in_no_unmasked_sum(asked: Task) -> None:
    with pytest.raises(HanseError) as raised:
        Policy(masking=MaskingPolicy(required=True)).check(asked)
    assert raised.value.code is ErrorCode.POLICY
    Policy(masking=MaskingPolicy(required=True)).check(fedtan(masking=masking("pairwise")))


async def test_in_mode_ring_sums_are_of_ring_elements_and_with_a_compensator_there_are_none(tmp_path: Path) -> None:
    broker = MemoryBroker()
    site = Site(tmp_path, broker)
    asked = fedtan(masking=masking("ring"))
    ring = asked.masking.ring.entries[AVERAGE] if asked.masking else None
    async with (
        asyncio.timeout(60),
        session(tmp_path, broker, ("north",), ring=ring),
        open_sums(site.link, asked, site.write_down, Policy(), examples=10, **kept(tmp_path)) as exchange,
    ):
        assert exchange is not None
        assert np.frombuffer(await exchange("l0-mean", np.array([1.5, -2.0]).tobytes())).tolist() == [1.5, -2.0]
    key = "A" * 43 + "="
    compensated = fedtan(masking=masking("compensator") | {"compensator": key})
    async with open_sums(site.link, compensated, site.write_down, Policy(), examples=10, **kept(tmp_path)) as exchange:
        assert exchange is None


@pytest.mark.parametrize(("examples", "batch_size"), [(7, "all"), (1000, 7)])
async def test_the_statistics_of_few_examples_do_not_leave(tmp_path: Path, examples: int, batch_size: object) -> None:
    site = Site(tmp_path, MemoryBroker())
    policy = Policy(outputs=OutputPolicy(minimum_examples=8))
    train = {"algorithm": "fedtan", "batch_size": batch_size}
    asked = task(config={"model": {"name": "mlp", "batch_norm": True}, "train": train})
    with pytest.raises(HanseError, match=r"minimum_examples.*7 examples"):
        async with open_sums(site.link, asked, site.write_down, policy, examples=examples, **kept(tmp_path)):
            pass
    async with (
        session(tmp_path, site.link.bus.broker, ("north",)),  # type: ignore[attr-defined]  # it is in memory
        open_sums(site.link, asked, site.write_down, Policy(), examples=examples, **kept(tmp_path)) as exchange,
    ):
        assert exchange is not None


async def test_two_runs_with_sums_are_done_in_one_order_at_all_sites(tmp_path: Path) -> None:
    """A site that has begun with the later run would wait in it for one that has begun with the earlier."""
    site = Life(tmp_path)
    site.worker.hold = asyncio.Event()
    await site.start()
    try:
        await site.give(fedtan(run="b" * 12, seed=2))
        await asyncio.wait_for(site.worker.began.wait(), 60)
        site.worker.began.clear()
        await site.give(fedtan(run="a" * 12, seed=1))
        await asyncio.wait_for(site.worker.began.wait(), 60)
        site.worker.hold.set()
        results = await site.results(2)
    finally:
        await site.stop()
    assert [result.run for result, _ in results] == ["a" * 12, "b" * 12]
    assert [request.seed for request in site.worker.requests] == [2, 1, 2]
    assert [request.seed for request in site.worker.stopped] == [2]


async def test_among_waiting_runs_with_sums_the_one_with_the_least_id_is_done_first_and_others_in_order() -> None:
    queue = TaskQueue()

    async def taken(*offered: Task) -> list[str]:
        for each in offered:
            queue.offer(OpenTask(each, {}, 0, 0.0))
        return [(await queue.take()).task.run[0] for _ in offered]

    assert await taken(fedtan(run="c" * 12), fedtan(run="b" * 12), task(run="a" * 12)) == ["b", "c", "a"]
    assert await taken(task(run="c" * 12), fedtan(run="b" * 12), fedtan(run="a" * 12)) == ["c", "a", "b"]


def test_a_task_that_waits_for_other_sites_makes_way_only_for_an_earlier_run_that_waits_too() -> None:
    assert makes_way(fedtan(run="b" * 12), fedtan(run="a" * 12))
    assert not makes_way(fedtan(run="a" * 12), fedtan(run="b" * 12))
    assert not makes_way(task(run="b" * 12), fedtan(run="a" * 12))
    assert not makes_way(fedtan(run="b" * 12), task(run="a" * 12))
    malformed = task(run="a" * 12, config={"train": {"algorithm": {"name": "fedtan", "patience": -1}}})
    assert not makes_way(fedtan(run="b" * 12), malformed)
