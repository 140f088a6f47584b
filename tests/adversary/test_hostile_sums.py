"""A site that fills the stream of contributions to sums within rounds, which all projects share: by sums that it makes
up, or by one contribution again and again. It sheds its oldest messages, and so what others have given.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from adversary.site_league import new_run
from clocks import in_virtual_time
from hanse_aggregator import doors
from hanse_fabric.bus.broker import DUPLICATE_WINDOW_S
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ExchangeSum
from hanse_fabric.queue import stream_of
from hanse_fabric.subjects import EXCHANGE, EXCHANGED, Door
from hanse_fabric.virtual_time import VirtualClock
from hub_doors import hub_doors, take_in

SIZE, MANY, STEP = 512 << 10, 40, "r1-train"


async def written(bus: MemoryBus, run: str) -> int:
    records = await bus.snapshot(stream_of(EXCHANGE), EXCHANGE.wildcard(project="triage", run=run))
    return sum(len(record.data) for record in records)


async def made_up(clock: VirtualClock) -> int:
    """Bytes that are written down of a site that contributes to sums which nobody else knows."""
    bus, run = MemoryBus(MemoryBroker(clock)), new_run()
    keys = await take_in(bus, "bad", project="triage", run=run, step=STEP)
    site = Doors(bus, "triage", "bad", keys["bad"])
    async with hub_doors(bus):
        for number in range(MANY):
            with suppress(HanseError):
                await site.ask(Door.EXCHANGE, bytes(SIZE), run=run, step=STEP, key=f"made-up-{number}")
            await clock.sleep(0.1)
    kept = await written(bus, run)
    await bus.close()
    return kept


@in_virtual_time
async def test_a_site_fills_no_stream_with_sums_that_nobody_else_takes_part_in(clock: VirtualClock) -> None:
    assert 0 < await made_up(clock) <= doors._MOST_WAITING < MANY * SIZE


@pytest.mark.control("test_a_site_fills_no_stream_with_sums_that_nobody_else_takes_part_in")
@in_virtual_time
async def test_control_where_nobody_looks_which_sums_are_made_all_of_it_is_written_down(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors, "_MOST_WAITING", 1 << 40)
    assert await made_up(clock) >= MANY * SIZE


async def again_and_again(clock: VirtualClock) -> int:
    """Bytes that are written down of one contribution that is sent again whenever the bus has forgotten it."""
    bus, run = MemoryBus(MemoryBroker(clock)), new_run()
    keys = await take_in(bus, "bad", project="triage", run=run, step=STEP)
    site = Doors(bus, "triage", "bad", keys["bad"])
    async with hub_doors(bus):
        for _ in range(4):
            await site.ask(Door.EXCHANGE, bytes(SIZE), run=run, step=STEP, key="one")
            await clock.sleep(DUPLICATE_WINDOW_S + 1)
    kept = await written(bus, run)
    await bus.close()
    return kept


@in_virtual_time
async def test_one_contribution_that_is_sent_again_and_again_is_written_down_once(clock: VirtualClock) -> None:
    assert await again_and_again(clock) == SIZE


@pytest.mark.control("test_one_contribution_that_is_sent_again_and_again_is_written_down_once")
@in_virtual_time
async def test_control_where_it_is_not_remembered_it_is_written_down_each_time(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(dict[str, int]):
        def __contains__(self, _: object) -> bool:
            return False

    before = doors._Step.__init__

    def forgets(step: doors._Step) -> None:
        before(step)
        step.summed = Forgetful()

    monkeypatch.setattr(doors._Step, "__init__", forgets)
    assert await again_and_again(clock) == 4 * SIZE


@pytest.mark.no_attack("an honest site")
@pytest.mark.parametrize("asks", [True, False])
@in_virtual_time
async def test_who_waits_for_each_sum_contributes_to_many(clock: VirtualClock, asks: bool) -> None:
    """Also where another process of the hub's has given it the sums."""
    bus, run = MemoryBus(MemoryBroker(clock)), new_run()
    keys = await take_in(bus, "good", project="triage", run=run, step=STEP)
    site = Doors(bus, "triage", "good", keys["good"])
    async with hub_doors(bus):
        for number in range(MANY):
            key = f"layer-{number}"
            await site.ask(Door.EXCHANGE, bytes(SIZE), run=run, step=STEP, key=key)
            made = ExchangeSum(project="triage", run=run, step=STEP, key=key, values=bytes(8))
            await bus.publish(EXCHANGED.of(project="triage", run=run, step=STEP, key=key), made.encode())
            if asks:
                assert await site.ask(Door.EXCHANGED, b"", run=run, step=STEP, key=key)
            await clock.sleep(0.1)
        refused = None
        for number in range(MANY):
            try:
                await site.ask(Door.EXCHANGE, bytes(SIZE), run=run, step=STEP, key=f"other-{number}")
            except HanseError as error:
                refused = error
                break
            await clock.sleep(0.1)
    assert refused is not None
    assert (refused.code, number) == (ErrorCode.TOO_LARGE, doors._MOST_WAITING // SIZE)
    assert "that others have not contributed to" in refused.message
    await bus.close()
