"""The state of an in-process bus: streams, queues and request handlers, with the rules of JetStream."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field, replace

from hanse_fabric.bus.matching import matches, owner
from hanse_fabric.bus.port import Handler, Record
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import STREAMS, Retention, Stream

DUPLICATE_WINDOW_S = 120.0
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Log:
    """A stream's messages, by sequence, in order."""

    stream: Stream
    records: dict[int, Record] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)  # subject -> sequence of its last message
    sequence: int = 0
    ids: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict)
    followers: dict[Follower, None] = field(default_factory=dict)  # ordered, so that runs repeat
    times: dict[int, float] = field(default_factory=dict)  # sequence -> when it was stored
    size: int = 0
    offered: deque[int] = field(default_factory=deque)  # QUEUE: jobs that no worker holds
    silent: dict[int, float] = field(default_factory=dict)  # QUEUE: jobs of lost workers -> when they are offered again
    worker_event: asyncio.Event = field(default_factory=asyncio.Event)

    def remove(self, sequence: int) -> None:
        record = self.records.pop(sequence, None)
        if record is None:
            return
        del self.times[sequence]
        self.size -= len(record.data)
        if self.newest.get(record.subject) == sequence:
            del self.newest[record.subject]

    def store(self, record: Record, now: float) -> None:
        if self.stream.last_only:
            self.remove(self.newest.get(record.subject, 0))
        self.records[record.sequence] = record
        self.newest[record.subject] = record.sequence
        self.times[record.sequence] = now
        self.size += len(record.data)
        self.shed(now)

    def shed(self, now: float) -> None:
        """Remove the oldest messages that are past the stream's limits of age and size."""
        age = self.stream.max_age_s or math.inf
        while self.times and (self.size > self.stream.max_bytes or next(iter(self.times.values())) < now - age):
            self.remove(next(iter(self.times)))


class Follower:
    """The place of one `follow` in a stream."""

    def __init__(self, log: _Log, pattern: str, after: int) -> None:
        self.pattern = pattern
        self._log = log
        self._waiting = deque(s for s, r in log.records.items() if s > after and matches(pattern, r.subject))
        self._after = after
        self._event = asyncio.Event()

    def offer(self, record: Record) -> None:
        if record.sequence > self._after and matches(self.pattern, record.subject):
            self._waiting.append(record.sequence)
            self._event.set()

    def take(self) -> Record | None:
        """The next message, or None. Messages purged or replaced meanwhile are passed over."""
        while self._waiting:
            record = self._log.records.get(self._waiting.popleft())
            if record is None:
                continue
            while self._waiting and self._waiting[-1] not in self._log.records:
                self._waiting.pop()
            return replace(record, pending=len(self._waiting))
        self._event.clear()
        return None

    async def woken(self) -> None:
        await self._event.wait()

    def wake(self) -> None:
        self._event.set()

    def detach(self) -> None:
        self._log.followers.pop(self, None)


class Server:
    """A handler of requests; each request is a task of its own, stopped with the server."""

    def __init__(self, pattern: str, group: str, handler: Handler) -> None:
        self.pattern, self.group, self._handler = pattern, group, handler
        self._tasks: set[asyncio.Task[None]] = set()

    def deliver(self, subject: str, data: bytes, reply: asyncio.Future[bytes]) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(subject, data, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, subject: str, data: bytes, reply: asyncio.Future[bytes]) -> None:
        try:
            answer = await self._handler(subject, data)
        except Exception:  # the port's promise: logged, and the requester times out
            _LOG.exception("the handler of %s failed", subject)
            return
        if not reply.done():
            reply.set_result(answer)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


class MemoryBroker:
    """What all connections share. Not for several event loops."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._logs = {stream.name: _Log(stream) for stream in STREAMS}
        self._servers: deque[Server] = deque()
        self._servers_changed = asyncio.Event()
        self.listeners: list[tuple[str, asyncio.Queue[Record | None]]] = []

    def stream(self, name: str) -> Stream:
        return self._logs[name].stream

    def _log(self, stream: Stream) -> _Log:
        """A stream's messages, without those that are past its age."""
        log = self._logs[stream.name]
        log.shed(self.clock.monotonic())
        return log

    def append(
        self, subject: str, data: bytes, headers: dict[str, str], message_id: str | None, expected_last: int | None
    ) -> int:
        """Store a message; returns its sequence, or that of its earlier publication with the same id."""
        log, now = self._log(owner(subject)), self.clock.monotonic()
        while log.ids and next(iter(log.ids.values()))[1] < now - DUPLICATE_WINDOW_S:
            log.ids.popitem(last=False)
        if message_id is not None and message_id in log.ids:
            return log.ids[message_id][0]
        last = log.newest.get(subject, 0)
        if expected_last is not None and expected_last != last:
            raise conflict(subject, expected_last)
        if not log.stream.sheds and log.size + len(data) > log.stream.max_bytes:
            raise HanseError(ErrorCode.NO_SPACE, f"bus: publishing to {subject}: {log.stream.name} is full")
        log.sequence += 1
        record = Record(subject=subject, data=data, sequence=log.sequence, headers=headers)
        log.store(record, now)
        if message_id is not None:
            log.ids[message_id] = (record.sequence, now)
        for follower in log.followers:
            follower.offer(record)
        if log.stream.retention is Retention.QUEUE:
            log.offered.append(record.sequence)
            log.worker_event.set()
        return record.sequence

    def last(self, stream: Stream, subject: str) -> Record | None:
        log = self._log(stream)
        return log.records.get(log.newest.get(subject, 0))

    def matching(self, stream: Stream, pattern: str) -> list[Record]:
        found = [r for r in self._log(stream).records.values() if matches(pattern, r.subject)]
        return [replace(record, pending=len(found) - place - 1) for place, record in enumerate(found)]

    def purge(self, stream: Stream, pattern: str) -> None:
        log = self._logs[stream.name]
        for record in self.matching(stream, pattern):
            log.remove(record.sequence)

    def attach(self, stream: Stream, pattern: str, after: int) -> Follower:
        log = self._log(stream)
        follower = Follower(log, pattern, after)
        log.followers[follower] = None
        return follower

    def detach(self, follower: Follower) -> None:
        follower.detach()

    def take_job(self, stream: Stream) -> Record | None:
        log, now = self._log(stream), self.clock.monotonic()
        for sequence in [sequence for sequence, due in log.silent.items() if due <= now]:
            self.return_job(stream, sequence)
        while log.offered:
            record = log.records.get(log.offered.popleft())
            if record is not None:
                return replace(record, pending=len(log.offered))
        log.worker_event.clear()
        return None

    async def job_offered(self, stream: Stream) -> None:
        """Return when there may be a job to take."""
        log = self._logs[stream.name]
        left = min(log.silent.values()) - self.clock.monotonic() if log.silent else None
        with suppress(TimeoutError):
            async with self.clock.timeout(left):
                await log.worker_event.wait()

    def wake_workers(self) -> None:
        for log in self._logs.values():
            log.worker_event.set()

    def finish_job(self, stream: Stream, sequence: int) -> None:
        log = self._logs[stream.name]
        log.silent.pop(sequence, None)
        log.remove(sequence)

    def lose_job(self, stream: Stream, sequence: int) -> None:
        """The connection of its worker is gone: it is offered again when the worker was silent for long enough."""
        log = self._logs[stream.name]
        log.silent[sequence] = self.clock.monotonic() + stream.ack_wait_s
        log.worker_event.set()

    def return_job(self, stream: Stream, sequence: int) -> None:
        """Offer a job again, before others; nothing where it is finished or offered already."""
        log = self._logs[stream.name]
        log.silent.pop(sequence, None)
        if sequence in log.records and sequence not in log.offered:
            log.offered.appendleft(sequence)
            log.worker_event.set()

    def add_server(self, server: Server) -> None:
        self._servers.append(server)
        self._servers_changed.set()

    def remove_server(self, server: Server) -> None:
        if server in self._servers:
            self._servers.remove(server)
        server.stop()

    def server_for(self, subject: str) -> Server | None:
        """The handler whose turn it is among those that serve `subject`."""
        for server in self._servers:
            if matches(server.pattern, subject):
                self._servers.remove(server)
                self._servers.append(server)
                return server
        self._servers_changed.clear()
        return None

    def tell(self, record: Record) -> None:
        """Give something to all who listen now, and to one of each group that serves there."""
        for pattern, heard in self.listeners:
            if matches(pattern, record.subject):
                heard.put_nowait(record)
        if (server := self.server_for(record.subject)) is not None:
            server.deliver(record.subject, record.data, asyncio.get_running_loop().create_future())

    async def server_appeared(self) -> None:
        await self._servers_changed.wait()


def conflict(subject: str, expected_last: int) -> HanseError:
    """The error of a compare-and-set that lost, the same on every implementation."""
    return HanseError(
        ErrorCode.CONFLICT,
        f"{subject}: its last message does not have sequence {expected_last}, somebody wrote meanwhile",
        hint="read it again and repeat",
    )
