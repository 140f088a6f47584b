"""A hub that holds a recorded conversation up to a moment, and from there on answers as the others answered then.

The coordinator of today is set to work on it. What it asks must be what the recorded one asked: a question that the
recording has not, or another one under the same name, is an error.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.bus.port import Headers
from hanse_fabric.messages import PublishModel, RunEvent
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import (
    EVENT,
    JOB,
    JOURNAL,
    LEASES,
    MASK_ANSWER,
    MASK_REQUEST,
    PUBLISH_MODEL,
    REDUCED,
    RESULT,
    TASK,
)
from hanse_fabric.virtual_time import VirtualClock
from releases.coordinator import Buckets, JournalEntry, RunRecord, coordinating, drawing
from releases.recording import Said
from releases.story import Story, asks, is_of, read_question

FINAL = ("completed", "failed", "cancelled")
_LONGEST_S = 3600.0
read_recorded = cache(read_question)
"""What was asked then: a recording is played from many moments, and is always the same. Nobody changes what is read."""


@cache
def time_of(event: bytes) -> datetime | None:
    """When something happened, as its recorded event says."""
    return RunEvent.decode(event).at


@dataclass
class TodaysRun:
    """What today's coordinator did.

    Attributes:
        asked: the subjects of tasks, jobs and mask requests; and the steps of publications.
        closed: what the closed steps say, by key.
    """

    record: RunRecord
    asked: list[str]
    closed: dict[str, dict[str, Any]]


class _Answering(MemoryBus):
    """The coordinator's connection, by which all that it asks is compared and answered."""

    def __init__(self, broker: MemoryBroker, story: Story) -> None:
        super().__init__(broker)
        self.asked: list[str] = []
        self.wrong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._story = story

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Headers | None = None,
        message_id: str | None = None,
        expected_last: int | None = None,
        timeout: float = 30.0,
    ) -> int:
        sequence = await super().publish(
            subject, data, headers=headers, message_id=message_id, expected_last=expected_last, timeout=timeout
        )
        if asks(subject):
            self.asked.append(subject)
            self._compare(subject, self._story.questions.get(subject), data)
            self._answer(subject)
        return sequence

    async def request(self, subject: str, data: bytes, *, timeout: float = 10.0) -> bytes:
        lineage = PublishModel.decode(data).lineage
        self.asked.append(f"{PUBLISH_MODEL.of(project=self._story.project)}/{lineage.round}")
        known = [one for one in self._story.published if PublishModel.decode(one.data).lineage.round == lineage.round]
        self._compare(subject, known[0] if known else None, data)
        return known[0].answer or b""

    def _compare(self, subject: str, known: Said | None, data: bytes) -> None:
        wrong = ""
        if known is None:
            wrong = f"the recorded coordinator never asked {subject}"
        elif (then := read_recorded(known.data)) != (now := read_question(data)):
            differing = (name for name in sorted(then.keys() | now.keys()) if then.get(name) != now.get(name))
            shown = "; ".join(f"{name} was {then.get(name)}, is {now.get(name)}" for name in differing)
            wrong = f"{subject} asks something else: {shown}"
        if wrong:
            if not self.wrong.done():
                self.wrong.set_exception(AssertionError(wrong))
            raise AssertionError(wrong)

    def _answer(self, subject: str) -> None:
        """As it was answered then; what is on the bus already is not said again."""
        if is_of(TASK, subject):
            tokens = TASK.parse(subject)
            answer = RESULT.of(**{name: tokens[name] for name in RESULT.tokens})
        elif is_of(JOB, subject):
            answer = REDUCED.of(**JOB.parse(subject))
        else:
            answer = MASK_ANSWER.of(**MASK_REQUEST.parse(subject))
        for said in self._story.answers.get(answer, ()):
            stream = self.broker.stream(said.stream)
            if all(record.data != said.data for record in self.broker.matching(stream, answer)):
                self.broker.append(answer, said.data, dict(said.headers), None, None)


@dataclass
class Moment:
    """The hub as it was after the recorded run's n-th journal entry."""

    story: Story
    entries: int
    past: tuple[Said, ...] = field(init=False)
    clock: VirtualClock = field(init=False)
    broker: MemoryBroker = field(init=False)

    def __post_init__(self) -> None:
        place = self.story.entries[self.entries - 1][0]
        self.past = self.story.said[: place + 1]
        self.clock = VirtualClock(self.now())
        self.broker = MemoryBroker(self.clock)
        for one in self.past:
            if one.what == "purge":
                self.broker.purge(self.broker.stream(one.stream), one.subject)
            elif one.stored and not is_of(LEASES, one.subject):
                self.broker.append(one.subject, one.data, dict(one.headers), None, None)

    def now(self) -> datetime:
        """When it was: at the run's last event."""
        events = [time_of(one.data) for one in self.past if one.stored and is_of(EVENT, one.subject)]
        mine = [at for at in events if at is not None]
        return max(mine)

    def go_on(self, folder: Path) -> TodaysRun:
        """Have today's coordinator end the run from here, in virtual time: who was silent then is not waited for."""
        return self.clock.run(self._go_on(folder))

    async def _go_on(self, folder: Path) -> TodaysRun:
        story = self.story
        store = DirectoryStore(folder)
        for one in self.past:
            if one.what == "object":
                store.put(one.subject, one.data)
        bus = _Answering(self.broker, story)
        runs, key = Buckets.on(bus).runs, {"project": story.project, "run": story.run}
        # Whoever paused it then wants it to go on now.
        await runs.change(
            lambda record: record.model_copy(update={"wanted": "run"}) if record.wanted == "pause" else record, **key
        )
        try:
            with drawing(self._seeds()):
                record = await self._ended(bus, store)
        finally:
            await bus.close()
            bus.wrong.cancel()
        entries = [
            JournalEntry.decode(one.data)
            for one in self.broker.matching(self.broker.stream("HANSE_JOURNAL"), JOURNAL.of(**key))
        ]
        closed = {entry.step: entry.body for entry in entries if entry.kind == "closed"}
        return TodaysRun(record, bus.asked, closed)

    def _seeds(self) -> list[str]:
        """What was drawn for noise after this moment."""
        later = (entry for _, entry in self.story.entries[self.entries :] if entry.kind == "closed")
        return [str(entry.body["seed"]) for entry in later if "seed" in entry.body]

    async def _ended(self, bus: _Answering, store: DirectoryStore) -> RunRecord:
        async with coordinating(bus, store, self.clock) as coordinator, asyncio.timeout(_LONGEST_S):
            ended = asyncio.ensure_future(self._final(bus))
            waits: list[asyncio.Future[Any]] = [ended, bus.wrong, coordinator]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in (bus.wrong, coordinator):
                if each.done():
                    ended.cancel()
                    each.result()
            return await ended

    async def _final(self, bus: MemoryBus) -> RunRecord:
        key = {"project": self.story.project, "run": self.story.run}
        async with Buckets.on(bus).runs.watch(**key) as changes:
            async for change in changes:
                if change is not None and change.value is not None and change.value.state in FINAL:
                    return change.value
        raise AssertionError("the watch ended")
