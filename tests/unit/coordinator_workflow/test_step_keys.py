"""A step's key stands for one question: used twice, or for another question at a replay, it ends the run in words."""

from __future__ import annotations

import asyncio

import pytest

from hanse_coordinator.runs.journal import Journal, JournalEntry
from hanse_coordinator.verbs.steps import Steps
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode
from hanse_fabric.subjects import JOURNAL
from hanse_workflows import RunFailure
from hanse_workflows.fingerprint import fingerprint
from simulation.league import PROJECT, RUN


async def test_another_question_under_a_recorded_key_ends_the_pass_with_both_fingerprints() -> None:
    bus = MemoryBus()
    steps = await steps_of(bus)
    await steps.once("r1-decide", {"wanted": 1}, an_answer)
    replayed = await steps_of(bus)
    with pytest.raises(RunFailure) as raised:
        await replayed.once("r1-decide", {"wanted": 2}, an_answer)
    assert raised.value.code is ErrorCode.STEP_CHANGED
    assert fingerprint({"wanted": 1}) in raised.value.message
    assert fingerprint({"wanted": 2}) in raised.value.message


async def test_the_same_question_gets_the_recorded_answer_and_nothing_is_done() -> None:
    bus = MemoryBus()
    await (await steps_of(bus)).once("r1-decide", {"wanted": 1}, an_answer)

    async def done_again() -> dict[str, object]:
        raise AssertionError("it was done before")

    assert await (await steps_of(bus)).once("r1-decide", {"wanted": 1}, done_again) == {"answer": 42}


async def test_entries_without_fingerprints_are_of_the_release_before_and_are_taken_as_they_are() -> None:
    bus = MemoryBus()
    old = b'{"body":{"answer":7},"epoch":1,"kind":"closed","schema":"hanse.journal_entry/1","step":"r1-decide"}'
    await bus.publish(JOURNAL.of(project=PROJECT, run=RUN), old)
    steps = await steps_of(bus)
    assert await steps.once("r1-decide", {"wanted": 1}, an_answer) == {"answer": 7}
    assert steps.job_id("r1-reduce", {"model": "m"}) == "r1-reduce", "a run of release 0.1.0 keeps its jobs' names"
    assert not steps.binds, "nor are its requests bound to anything"
    assert (await steps_of(MemoryBus())).binds


async def test_a_job_of_another_question_has_another_id_which_is_the_same_at_each_replay() -> None:
    bus, asked = MemoryBus(), {"model": "a"}
    steps = await steps_of(bus)
    one, other = (steps.job_id("r1-reduce", {"model": model}) for model in ("a", "b"))
    assert one != other
    assert one.startswith("r1-reduce-")
    await steps.once("r1-reduce", asked, an_answer)
    assert (await steps_of(bus)).job_id("r1-reduce", asked) == one


def test_a_journal_entry_has_golden_bytes() -> None:
    entry = JournalEntry(epoch=2, kind="closed", step="r1-reduce", body={"a": 1}, fingerprint="1.00")
    assert entry.encode() == (
        b'{"body":{"a":1},"epoch":2,"fingerprint":"1.00","kind":"closed",'
        b'"schema":"hanse.journal_entry/2","step":"r1-reduce"}'
    )
    assert JournalEntry.decode(entry.encode()) == entry


async def an_answer() -> dict[str, object]:
    return {"answer": 42}


async def steps_of(bus: MemoryBus) -> Steps:
    """As a coordinator makes them that takes the run up."""
    journal = await Journal.open(bus, PROJECT, RUN, holder="c")
    return Steps(journal, Notices(bus, SystemClock(), PROJECT, RUN, actor="c"), run=RUN, pause=asyncio.Event())
