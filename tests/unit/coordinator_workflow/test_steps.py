"""What is told of a run's steps is told once, whenever its coordinator ends; and what tidies never ends a run."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from typing import Any

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
from hanse_workflows import RunFailure
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


async def test_news_after_the_last_step_are_told_by_a_replay_that_has_nothing_to_do() -> None:
    """The coordinator before may have ended when that step was closed."""
    bus = MemoryBus()
    await (await steps_on(bus)).once("r1-train", {"round": 1}, an_outcome)
    replayed = await steps_on(bus)
    await replayed.once("r1-train", {"round": 1}, no_outcome)
    replayed.note("ended", "news", 1, {})
    await replayed.settle()
    assert await told(bus) == {"ended": 1}


class ForgetfulBus(MemoryBus):
    """A bus that forgets the ids of messages, as NATS does after minutes: what is told again is there twice."""

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:
        return await super().publish(subject, data, **more | {"message_id": None})


@pytest.mark.parametrize("kind", [MemoryBus, ForgetfulBus])
async def test_a_run_that_is_replayed_to_its_end_tells_nothing_again(kind: type[MemoryBus]) -> None:
    bus = kind()
    for _ in range(2):
        await workflow(await steps_on(bus), None)
        assert await told(bus) == {f"before-{number}": 1 for number in range(3)}


class SlowNewsBus(MemoryBus):
    """A bus on which news are on their way for a while, which notes how many had come when a step was closed."""

    come: int = 0
    had_come: list[int]

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:
        if subject == EVENT.of(project=PROJECT, run=RUN):
            for _ in range(5):
                await asyncio.sleep(0)
            self.come += 1
        elif b'"closed"' in data:
            self.had_come.append(self.come)
        return await super().publish(subject, data, **more)


async def test_news_are_durable_before_the_step_is_closed_that_follows_them() -> None:
    """Else a coordinator that ends just then never tells them: a replay tells nothing from before a closed step."""
    bus = SlowNewsBus()
    bus.had_come = []
    steps = await steps_on(bus)
    await workflow(steps, None)
    assert bus.had_come == [1, 2, 3]
    steps.note("ended", "news", 3, {})
    await steps.settle()
    assert bus.come == 4, "nothing is on its way when the run has settled"


async def test_news_before_and_in_a_step_are_told_while_it_is_done_though_replay_ended_with_it() -> None:
    bus = MemoryBus()
    steps = await steps_on(bus)

    async def long() -> dict[str, object]:
        steps.note("site-answered", "news", 1, {})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return {"told": [*await told(bus)]}

    steps.note("round-began", "news", 1, {})
    assert not await told(bus), "it may have been told before"
    assert await steps.once("r1-train", {"round": 1}, long) == {"told": ["round-began", "site-answered"]}


async def test_who_waits_for_a_pause_waits_until_the_owner_wants_one() -> None:
    pause = asyncio.Event()
    waiting = asyncio.create_task((await steps_on(MemoryBus(), pause)).paused())
    await asyncio.sleep(0)
    assert not waiting.done()
    pause.set()
    await asyncio.wait_for(waiting, 60)


class SilentBus(MemoryBus):
    """A bus that confirms nothing while `silent` is set."""

    silent = False

    async def publish(self, subject: str, data: bytes, **more: Any) -> int:
        if self.silent:
            await asyncio.Event().wait()
        return await super().publish(subject, data, **more)


async def test_an_abandoned_run_waits_for_no_entry_that_is_on_its_way() -> None:
    bus = SilentBus()
    steps, bus.silent = await steps_on(bus), True
    closing = asyncio.create_task(steps.once("step-0", {"step": 0}, an_outcome))
    await asyncio.sleep(0.01)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await steps.abandon()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_tidying_that_fails_ends_no_run_and_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    steps = await steps_on(MemoryBus())

    async def fail() -> None:
        raise HanseError(ErrorCode.UNAVAILABLE, "the store is gone")

    steps.later(fail())
    await workflow(steps, None)
    assert f"run {RUN}: tidying failed: the store is gone" in caplog.text


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

    works = [tidy(number) for number in range(5)]
    for work in works:
        steps.when_live(work, keep=2)
    assert not tidied
    closed = [inspect.getcoroutinestate(work) == inspect.CORO_CLOSED for work in works]
    assert closed == [True, True, True, False, False], "what is dropped is closed: nobody awaits it"

    async def settled() -> dict[str, object]:
        await steps.settle()
        return {"tidied": [*tidied]}

    assert await steps.once("step-0", {"step": 0}, settled) == {"tidied": [3, 4]}, "and nothing else is awaited"
    assert await steps.once("step-1", {"step": 1}, settled) == {"tidied": [3, 4]}, "once"


async def test_a_step_beside_others_is_done_when_it_is_needed_or_replay_has_ended_and_told_its_outcome_once() -> None:
    for needed_first in (True, False):
        bus, needed, outcomes = MemoryBus(), asyncio.Event(), list[object]()
        steps = await steps_on(bus)
        going = steps.beside("r1-publish", {"version": 1}, an_outcome, needed=needed, told=outcomes.append)
        assert going is not None
        await asyncio.sleep(0.01)
        assert not outcomes, "it waits for the end of the replay"
        if needed_first:
            needed.set()
        else:
            await steps.once("r2-train", {"round": 2}, an_outcome)
        await going
        assert outcomes == [{"done": True}]
        replayed = await steps_on(bus)
        again = replayed.beside("r1-publish", {"version": 1}, no_outcome, needed=needed, told=outcomes.append)
        assert again is None
        assert outcomes == [{"done": True}] * 2


async def test_who_asks_for_a_step_is_told_of_an_outcome_that_was_recorded_and_of_no_other() -> None:
    bus, outcomes = MemoryBus(), list[object]()
    await (await steps_on(bus)).once("r1-train", {"round": 1}, an_outcome, replayed=outcomes.append)
    assert not outcomes, "what is done now tells of itself"
    await (await steps_on(bus)).once("r1-train", {"round": 1}, no_outcome, replayed=outcomes.append)
    assert outcomes == [{"done": True}]


async def test_what_opened_a_step_is_found_again_until_the_step_is_closed() -> None:
    bus, asked = MemoryBus(), {"round": 1}
    steps = await steps_on(bus)
    assert await steps.opened("r1-train", asked, lambda: {"deadline": 1}) == ({"deadline": 1}, False)
    replayed = await steps_on(bus)
    assert await replayed.opened("r1-train", asked, lambda: {"deadline": 2}) == ({"deadline": 1}, True)
    await replayed.once("r1-train", asked, an_outcome)
    closed = await steps_on(bus)
    assert await closed.once("r1-train", asked, no_outcome) == {"done": True}


async def test_a_step_that_is_passed_over_is_forgotten_with_its_opening() -> None:
    bus, asked = MemoryBus(), {"round": 1}
    steps = await steps_on(bus)
    await steps.opened("r1-train", asked, lambda: {"deadline": 1})
    await steps.once("r1-train", asked, an_outcome)
    await steps.opened("r1-reduce", asked, lambda: {"deadline": 2})
    replayed = await steps_on(bus)
    for key in ("r1-train", "r1-reduce"):
        replayed.passed(key)
    assert await replayed.opened("r1-reduce", asked, lambda: {"deadline": 3}) == ({"deadline": 3}, False)
    with pytest.raises(CoordinatorGoneError):
        await replayed.once("r1-train", asked, no_outcome)


async def test_an_outcome_that_a_replay_would_read_otherwise_is_in_no_journal() -> None:
    bus = MemoryBus()
    steps = await steps_on(bus)

    async def a_tuple() -> dict[str, object]:
        return {"pair": (1, 2)}

    with pytest.raises(RunFailure, match="not the same after a replay"):
        await steps.once("r1-decide", {}, a_tuple)
    assert await (await steps_on(bus)).once("r1-decide", {}, an_outcome) == {"done": True}


async def test_work_in_the_background_of_an_abandoned_run_ends_and_what_was_not_begun_never_is() -> None:
    steps = await steps_on(MemoryBus())
    begun, ended = asyncio.Event(), list[str]()

    async def long() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("long")

    async def never() -> None:
        ended.append("never")

    waiting = never()
    steps.later(long())
    steps.when_live(waiting, keep=2)
    await begun.wait()
    await steps.abandon()
    assert ended == ["long"]
    assert inspect.getcoroutinestate(waiting) == inspect.CORO_CLOSED, "nobody awaits it"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_is_tidied_when_the_run_is_live_is_tidied_at_once_and_waited_for_at_the_end() -> None:
    steps, tidied = await steps_on(MemoryBus()), list[str]()
    await steps.once("step-0", {"step": 0}, an_outcome)
    assert steps.live.is_set()

    async def tidy(name: str) -> None:
        await asyncio.sleep(0)
        steps_that_follow = [] if name == "second" else ["second"]
        for following in steps_that_follow:
            steps.later(tidy(following))
        tidied.append(name)

    steps.when_live(tidy("first"), keep=1)
    await steps.settle()
    assert tidied == ["first", "second"]
