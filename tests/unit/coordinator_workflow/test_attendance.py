"""Who was there is recorded by changes: a hundred thousand fit, and a coordinator that is replaced sees the same."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from hanse_coordinator.runs.journal import Journal, JournalEntry
from hanse_coordinator.verbs.steps import Steps
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.bus.port import Record
from hanse_fabric.clock import SystemClock
from hanse_fabric.subjects import JOURNAL
from hanse_workflows.attendance import NAMED_IN_FULL, Attendance

SUBJECT = JOURNAL.of(project="p", run="r")


async def attendance(bus: MemoryBus) -> Attendance:
    """As a coordinator makes it that takes the run, with all that was recorded before."""
    journal = await Journal.open(bus, "p", "r", holder="c")
    notices = Notices(bus, SystemClock(), "p", "r", actor="c")
    return Attendance(Steps(journal, notices, run="r", pause=asyncio.Event()).once)


async def entries(bus: MemoryBus) -> list[Record]:
    assert JOURNAL.stream is not None
    return [r for r in await bus.snapshot(JOURNAL.stream, SUBJECT) if JournalEntry.decode(r.data).kind == "closed"]


def crowd(count: int, without: Collection[int] = ()) -> tuple[str, ...]:
    return tuple(f"{'a-rather-long-name-of-a-site-':.<50}{index:06d}" for index in range(count) if index not in without)


async def at(kept: Attendance, step: str, names: Collection[str]) -> tuple[str, ...]:
    async def look() -> Collection[str]:
        return names

    return await kept.at(step, look)


async def not_asked() -> Collection[str]:
    raise AssertionError("what is recorded is not looked for again")


ROUNDS = {
    "all": crowd(100_000),
    "some-gone": crowd(100_000, without=range(500, 700)),
    "others-gone": crowd(100_000, without=range(70_000)),
    "few": crowd(NAMED_IN_FULL),
    "all-again": crowd(100_000),
}


async def test_a_hundred_thousand_are_recorded_round_by_round_and_read_again_by_who_takes_the_run() -> None:
    bus = MemoryBus()
    kept = await attendance(bus)
    for step, names in ROUNDS.items():
        assert await at(kept, step, names) == names
    taken = await attendance(bus)
    for step, names in ROUNDS.items():
        assert await taken.at(step, not_asked) == names


async def test_a_round_in_which_nearly_the_same_are_there_costs_the_journal_nearly_nothing() -> None:
    bus = MemoryBus()
    kept = await attendance(bus)
    await at(kept, "first", crowd(20_000))
    before = len(await entries(bus))
    await at(kept, "second", crowd(20_000, without=[3, 4]))
    added = (await entries(bus))[before:]
    assert len(added) == 1
    assert len(added[0].data) < 1_000


async def test_few_are_listed_at_every_step() -> None:
    bus = MemoryBus()
    kept = await attendance(bus)
    for step in ("first", "second"):
        assert await at(kept, step, ("north", "south")) == ("north", "south")
    bodies = [JournalEntry.decode(record.data).body for record in await entries(bus)]
    assert bodies == [{"present": ["north", "south"]}] * 2


@pytest.mark.parametrize("parts", [1, 3])
async def test_a_coordinator_that_ends_between_the_parts_of_a_step_leaves_a_step_that_is_completed(parts: int) -> None:
    whole, broken = MemoryBus(), MemoryBus()
    await at(await attendance(whole), "first", crowd(50_000))
    for record in (await entries(whole))[:parts]:
        await broken.publish(SUBJECT, record.data)
    now = crowd(50_000, without=[0, 49_999])  # two have gone meanwhile, one of them recorded already
    assert await at(await attendance(broken), "first", now) == now
    assert await (await attendance(broken)).at("first", not_asked) == now
