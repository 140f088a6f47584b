"""What is told of a run's steps is told once, whenever its coordinator ends; and what tidies never ends a run."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from hanse_coordinator.runs.journal import Journal
from hanse_coordinator.verbs.failures import Paused
from hanse_coordinator.verbs.steps import Steps
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT
from simulation.league import PROJECT, RUN


class CoordinatorGoneError(Exception):
    """The coordinator's end, in the middle of its work."""


async def steps_on(bus: MemoryBus, pause: asyncio.Event | None = None) -> Steps:
    journal = await Journal.open(bus, PROJECT, RUN, holder="c")
    notices = Notices(bus, SystemClock(), PROJECT, RUN, actor="c")
    return Steps(journal, notices, run=RUN, pause=pause or asyncio.Event())


async def told(bus: MemoryBus) -> Counter[str]:
    assert EVENT.stream is not None
    records = await bus.snapshot(EVENT.stream, EVENT.of(project=PROJECT, run=RUN))
    return Counter(RunEvent.decode(record.data).kind for record in records)


async def an_outcome() -> dict[str, object]:
    return {"done": True}


async def no_outcome() -> dict[str, object]:
    raise CoordinatorGoneError


async def workflow(steps: Steps, ends_in: int | None) -> None:
    """Three steps, each with news before it; the coordinator ends in one of them, or nowhere."""
    for number in range(3):
        steps.note(f"before-{number}", "news", number, {})
        await steps.once(f"step-{number}", {"step": number}, no_outcome if number == ends_in else an_outcome)
    await steps.settle()


@pytest.mark.parametrize("ends_in", range(3))
async def test_news_before_a_step_in_which_the_coordinator_ends_are_told_once(ends_in: int) -> None:
    bus = MemoryBus()
    with pytest.raises(CoordinatorGoneError):
        await workflow(await steps_on(bus), ends_in)
    await workflow(await steps_on(bus), None)
    assert await told(bus) == {f"before-{number}": 1 for number in range(3)}


async def test_a_run_that_is_replayed_to_its_end_tells_nothing_again() -> None:
    bus = MemoryBus()
    await workflow(await steps_on(bus), None)
    before = await told(bus)
    await workflow(await steps_on(bus), None)
    assert await told(bus) == before


async def test_tidying_that_fails_ends_no_run() -> None:
    steps = await steps_on(MemoryBus())

    async def fail() -> None:
        raise HanseError(ErrorCode.UNAVAILABLE, "the store is gone")

    steps.later(fail())
    await workflow(steps, None)


async def test_a_run_pauses_before_what_is_not_done_and_never_in_a_replay() -> None:
    bus, pause = MemoryBus(), asyncio.Event()
    steps = await steps_on(bus)
    await steps.once("step-0", {"step": 0}, an_outcome)
    pause.set()
    replayed = await steps_on(bus, pause)
    assert await replayed.once("step-0", {"step": 0}, no_outcome) == {"done": True}
    with pytest.raises(Paused):
        await replayed.once("step-1", {"step": 1}, an_outcome)


async def test_of_what_replayed_steps_may_have_left_the_last_few_are_tidied_when_the_run_goes_on() -> None:
    bus, tidied = MemoryBus(), list[int]()
    steps = await steps_on(bus)

    async def tidy(number: int) -> None:
        tidied.append(number)

    for number in range(5):
        steps.when_live(tidy(number), keep=2)
    assert not tidied
    await steps.once("step-0", {"step": 0}, an_outcome)
    await steps.settle()
    assert tidied == [3, 4]
