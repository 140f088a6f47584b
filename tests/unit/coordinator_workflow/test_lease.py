"""Leases: one coordinator holds a run, keeps it while it renews, and loses it when it is silent for a whole term."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from hanse_coordinator.runs.lease import Lease, Leases
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError

RUN = "run000000001"
LONG, SHORT = 600.0, 0.05
Watching = Callable[..., Awaitable[Leases]]


class AwayBus(MemoryBus):
    """A bus that refuses what is published while `away` is set."""

    away: ErrorCode | None = None

    async def publish(self, subject: str, data: bytes, **more: object) -> int:
        if self.away is not None:
            raise HanseError(self.away, "the bus does not answer")
        return await super().publish(subject, data, **more)  # type: ignore[arg-type]


@pytest.fixture
def bus() -> AwayBus:
    return AwayBus(MemoryBroker())


@pytest.fixture
async def watching(bus: AwayBus) -> AsyncIterator[Watching]:
    """Makes a coordinator's view of the leases, which is current."""
    tasks: list[asyncio.Task[None]] = []

    async def view(instance: str, *, ttl: float = LONG) -> Leases:
        leases = Leases(bus, instance=instance, ttl=ttl, changed=asyncio.Event())
        tasks.append(asyncio.create_task(leases.watch()))
        await leases.ready.wait()
        return leases

    yield view
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)


async def taken(leases: Leases) -> Lease:
    """The lease of the run, which the view has seen itself take."""
    lease = await leases.take(RUN)
    assert lease is not None
    await until(lambda: leases.free_in(RUN) > 0)
    return lease


async def test_of_those_who_take_a_free_run_at_once_one_has_it(watching: Watching) -> None:
    views = [await watching(f"coordinator-{number}") for number in range(4)]
    assert [view.free_in(RUN) for view in views] == [0.0] * 4
    made = await asyncio.gather(*(view.take(RUN) for view in views))
    assert sum(lease is not None for lease in made) == 1
    for view in views:
        await until(lambda view=view: 0 < view.free_in(RUN) <= LONG)


async def test_a_coordinator_that_started_again_takes_its_own_lease_at_once_and_no_other(watching: Watching) -> None:
    await taken(await watching("one"))
    assert (await watching("two")).free_in(RUN) > 0
    again = await watching("one")
    assert again.free_in(RUN) == 0.0
    await taken(again)
    assert again.free_in(RUN) > 0


async def test_a_lease_that_is_not_renewed_for_a_term_is_free_and_its_holder_loses_it(watching: Watching) -> None:
    silent = await taken(await watching("silent", ttl=LONG))
    other = await watching("other", ttl=SHORT)
    await until(lambda: other.free_in(RUN) == 0.0)
    assert await other.take(RUN) is not None
    silent._ttl = SHORT
    async with asyncio.timeout(60):
        await silent.keep()


async def test_a_lease_is_renewed_so_often_that_one_lost_renewal_does_not_lose_it(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await watching("one"), await watching("two")
    lease, slept, sleep = await taken(one), list[float](), asyncio.sleep

    async def noted(seconds: float) -> None:
        if seconds > 1:
            slept.append(seconds)
        await sleep(0)

    first = lease._revision
    monkeypatch.setattr(asyncio, "sleep", noted)
    keeping = asyncio.create_task(lease.keep())
    while lease._revision < first + 8:
        await sleep(0)
    assert two.free_in(RUN) > 0
    assert max(slept) <= LONG / 2
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT])
async def test_a_holder_that_cannot_reach_the_bus_tries_again(
    bus: AwayBus, watching: Watching, code: ErrorCode
) -> None:
    lease = await taken(await watching("one"))
    lease._ttl, first = SHORT, lease._revision
    bus.away = code
    keeping = asyncio.create_task(lease.keep())
    await asyncio.sleep(3 * SHORT)
    assert (keeping.done(), lease._revision) == (False, first)
    bus.away = None
    await until(lambda: lease._revision > first)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_any_other_failure_ends_keeping_and_releasing_with_itself(bus: AwayBus, watching: Watching) -> None:
    lease = await taken(await watching("one"))
    lease._ttl = SHORT
    bus.away = ErrorCode.FORBIDDEN
    for call in (lease.keep, lease.release):
        with pytest.raises(HanseError) as caught:
            await call()
        assert caught.value.code is ErrorCode.FORBIDDEN
    with pytest.raises(HanseError) as refused:
        await (await watching("two")).take("run000000002")
    assert refused.value.code is ErrorCode.FORBIDDEN


async def test_a_released_lease_is_free_at_once(watching: Watching) -> None:
    one, two = await watching("one"), await watching("two")
    lease = await taken(one)
    await until(lambda: two.free_in(RUN) > 0)
    two._changed.clear()
    await lease.release()
    await asyncio.wait_for(two._changed.wait(), 60)
    assert two.free_in(RUN) == 0.0
    assert await two.take(RUN) is not None


async def test_releasing_a_lease_that_was_lost_or_without_a_bus_is_left_at_that(
    bus: AwayBus, watching: Watching
) -> None:
    lost = await taken(await watching("one"))
    again = await watching("one")
    await taken(again)
    await lost.release()
    assert again.free_in(RUN) > 0
    for code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
        bus.away = code
        await lost.release()
