"""A hub that holds a recorded conversation up to a moment, and from there on answers as the others answered then.

The coordinator of today is set to work on it. What it asks must be what the recorded one asked: a question that the
recording has not, or another one under the same name, is an error.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.bus.port import Headers
from hanse_fabric.messages import ExchangeJob, MaskRequest, Message, PublishModel, ReduceJob, RunEvent, StudyJob, Task
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
    Subject,
)
from hanse_fabric.virtual_time import VirtualClock
from releases.coordinator import Buckets, JournalEntry, RunRecord, coordinating, drawing
from releases.recording import Recording, Said

FINAL = ("completed", "failed", "cancelled")
_ASKING = (TASK, JOB, MASK_REQUEST)
_CLASSES: dict[str, type[Message]] = {
    one.schema_id: one for one in (Task, ReduceJob, StudyJob, ExchangeJob, MaskRequest, PublishModel)
}
_TIMES = ("issued_at", "deadline")
_LONGEST_S = 3600.0


def is_of(row: Subject, subject: str) -> bool:
    """Whether a concrete subject is one of this row."""
    return subject.startswith(row.pattern.partition("{")[0])


def read_question(data: bytes) -> dict[str, Any]:
    """What is asked, without the times: as today's class reads it."""
    schema = schema_of(data)
    body = _CLASSES[schema].decode(data).model_dump(mode="json", exclude_none=True)
    return {name: value for name, value in body.items() if name not in _TIMES}


def schema_of(data: bytes) -> str:
    """The schema that a message names."""
    return str(json.loads(zlib.decompress(data) if data[:1] == b"\x78" else data)["schema"])


class Story:
    """A recording, by what was asked and what was answered."""

    def __init__(self, recording: Recording) -> None:
        self.header, self.said = recording.header, recording.said
        self.project, self.run = str(self.header["project"]), str(self.header["run"])
        self.questions: dict[str, Said] = {}
        self.published: list[Said] = []
        self.answers: dict[str, list[Said]] = defaultdict(list)
        self.entries: list[tuple[int, JournalEntry]] = []
        closed: set[str] = set()
        for place, one in enumerate(self.said):
            if one.what == "request" and is_of(PUBLISH_MODEL, one.subject):
                self.published.append(one)
            elif not one.stored:
                continue
            elif any(is_of(row, one.subject) for row in _ASKING):
                self.questions.setdefault(one.subject, one)
            elif is_of(JOURNAL, one.subject):
                entry = JournalEntry.decode(one.data)
                self.entries.append((place, entry))
                closed |= {entry.step} if entry.kind == "closed" else set()
            elif is_of(RESULT, one.subject):
                # Who answered when the step was closed already was late.
                if RESULT.parse(one.subject)["step"] not in closed:
                    self.answers[one.subject].append(one)
            elif is_of(REDUCED, one.subject) or is_of(MASK_ANSWER, one.subject):
                self.answers[one.subject].append(one)

    def closed(self) -> dict[str, dict[str, Any]]:
        """What the closed steps said, the run's end among them."""
        return {entry.step: entry.body for _, entry in self.entries if entry.kind == "closed"}


@dataclass
class Outcome:
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
        if any(is_of(row, subject) for row in _ASKING):
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
        elif (then := read_question(known.data)) != (now := read_question(data)):
            names = [name for name in then.keys() | now.keys() if then.get(name) != now.get(name)]
            wrong = f"{subject} asks something else: { ({name: (then.get(name), now.get(name)) for name in names}) }"
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
    broker: MemoryBroker = field(default_factory=MemoryBroker)

    def __post_init__(self) -> None:
        place = self.story.entries[self.entries - 1][0]
        self.past = self.story.said[: place + 1]
        for one in self.past:
            if one.what == "purge":
                self.broker.purge(self.broker.stream(one.stream), one.subject)
            elif one.stored and not is_of(LEASES, one.subject):
                self.broker.append(one.subject, one.data, dict(one.headers), None, None)

    def bus(self) -> MemoryBus:
        """A connection."""
        return MemoryBus(self.broker)

    def now(self) -> datetime:
        """When it was: at the run's last event."""
        events = [RunEvent.decode(one.data).at for one in self.past if one.stored and is_of(EVENT, one.subject)]
        mine = [at for at in events if at is not None]
        return max(mine)

    def go_on(self, folder: Path) -> Outcome:
        """Have today's coordinator end the run from here, in virtual time: who was silent then is not waited for."""
        clock = VirtualClock(self.now())
        return clock.run(self._go_on(folder, clock))

    async def _go_on(self, folder: Path, clock: VirtualClock) -> Outcome:
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
                record = await self._ended(bus, store, clock)
        finally:
            await bus.close()
            bus.wrong.cancel()
        entries = [
            JournalEntry.decode(one.data)
            for one in self.broker.matching(self.broker.stream("HANSE_JOURNAL"), JOURNAL.of(**key))
        ]
        closed = {entry.step: entry.body for entry in entries if entry.kind == "closed"}
        return Outcome(record, bus.asked, closed)

    def _seeds(self) -> list[str]:
        """What was drawn for noise after this moment."""
        later = (entry for _, entry in self.story.entries[self.entries :] if entry.kind == "closed")
        return [str(entry.body["seed"]) for entry in later if "seed" in entry.body]

    async def _ended(self, bus: _Answering, store: DirectoryStore, clock: VirtualClock) -> RunRecord:
        async with coordinating(bus, store, clock) as coordinator, asyncio.timeout(_LONGEST_S):
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


def says_the_same(now: Mapping[str, Any], then: Mapping[str, Any]) -> bool:
    """Whether a step's outcome says all that the recorded one said; it may say more."""
    return all(now.get(name) == value for name, value in then.items())
