"""The bus inside one process, for tests, notebooks and simulations. It behaves as the NATS one does.

`MemoryBroker` holds what a server would; `MemoryBus(broker)` is a connection to it. Closing a connection is what a
crash of its process looks like to the others: its handlers are gone, and jobs that it held go to other workers when it
was silent for as long as their stream says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hanse_fabric.bus.broker import Follower, MemoryBroker, Server
from hanse_fabric.bus.port import ASKED_AGAIN_S, Handler, Headers, HeldMessage, Record
from hanse_fabric.clock import Clock, ends_within
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES
from hanse_fabric.subjects import Stream

__all__ = ["MemoryBroker", "MemoryBus"]


class HeldInMemory:
    """A job held by a worker of a `MemoryBus`: in `held` until it is done or given back, or the connection is gone."""

    def __init__(self, broker: MemoryBroker, stream: Stream, record: Record, held: set[int]) -> None:
        self._broker, self._stream, self._record, self._held = broker, stream, record, held

    @property
    def record(self) -> Record:
        return self._record

    async def done(self) -> None:
        if self._let_go():
            self._broker.finish_job(self._stream, self._record.sequence)

    async def give_back(self) -> None:
        if self._let_go():
            self._broker.return_job(self._stream, self._record.sequence)

    def _let_go(self) -> bool:
        """Whether it was held until now."""
        was_held = self._record.sequence in self._held
        self._held.discard(self._record.sequence)
        return was_held


class MemorySubscription:
    """One handler of `serve`."""

    def __init__(self, bus: MemoryBus, server: Server) -> None:
        self._bus, self._server = bus, server

    async def stop(self) -> None:
        self._bus._stop_serving(self._server)


class MemoryBus:
    """A connection to a `MemoryBroker`, to be used from one event loop."""

    def __init__(self, broker: MemoryBroker | None = None) -> None:
        self.broker = broker or MemoryBroker()
        self._closed = asyncio.Event()
        self._followers: set[Follower] = set()
        self._servers: set[Server] = set()
        self._held: list[tuple[Stream, set[int]]] = []  # by `work`
        self._heard: list[tuple[str, asyncio.Queue[Record | None]]] = []

    @property
    def clock(self) -> Clock:
        return self.broker.clock

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        headers: Headers | None = None,
        message_id: str | None = None,
        expected_last: int | None = None,
        timeout: float = 30.0,  # noqa: ARG002 - the port's signature; nothing here waits
    ) -> int:
        """See `port.Bus.publish`."""
        self._check_open()
        if len(data) > MAX_MESSAGE_BYTES:
            raise HanseError(ErrorCode.TOO_LARGE, f"{subject}: {len(data)} bytes, more than {MAX_MESSAGE_BYTES}")
        await self.clock.sleep(0)
        return self.broker.append(subject, bytes(data), dict(headers or {}), message_id, expected_last)

    async def last(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> Record | None:  # noqa: ARG002
        """See `port.Bus.last`."""
        self._check_open()
        await self.clock.sleep(0)
        return self.broker.last(stream, subject)

    @asynccontextmanager
    async def follow(self, stream: Stream, subject: str, *, after: int = 0) -> AsyncIterator[AsyncIterator[Record]]:
        """See `port.Bus.follow`."""
        self._check_open()
        follower = self.broker.attach(stream, subject, after)
        self._followers.add(follower)
        try:
            yield self._records(follower)
        finally:
            self._followers.discard(follower)
            self.broker.detach(follower)

    async def _records(self, follower: Follower) -> AsyncIterator[Record]:
        while True:
            record = follower.take()
            if record is not None:
                yield record
                continue
            self._check_open()
            await follower.woken()

    async def snapshot(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> list[Record]:  # noqa: ARG002
        """See `port.Bus.snapshot`."""
        self._check_open()
        await self.clock.sleep(0)
        return self.broker.matching(stream, subject)

    async def purge(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> None:  # noqa: ARG002
        """See `port.Bus.purge`."""
        self._check_open()
        await self.clock.sleep(0)
        self.broker.purge(stream, subject)

    @asynccontextmanager
    async def work(self, stream: Stream) -> AsyncIterator[AsyncIterator[HeldMessage]]:
        """See `port.Bus.work`."""
        self._check_open()
        held: set[int] = set()
        self._held.append((stream, held))
        try:
            yield self._held_messages(stream, held)
        finally:
            for sequence in sorted(held, reverse=True):
                self.broker.return_job(stream, sequence)
            held.clear()

    async def _held_messages(self, stream: Stream, held: set[int]) -> AsyncIterator[HeldMessage]:
        while True:
            self._check_open()
            record = self.broker.take_job(stream)
            if record is None:
                await self.broker.job_offered(stream)
                continue
            held.add(record.sequence)
            yield HeldInMemory(self.broker, stream, record, held)

    async def request(self, subject: str, data: bytes, *, timeout: float = 10.0) -> bytes:
        """See `port.Bus.request`."""
        self._check_open()
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        again = ASKED_AGAIN_S
        try:
            async with self.clock.timeout(timeout):
                while True:
                    while (server := self.broker.server_for(subject)) is None:
                        await self.broker.server_appeared()
                    server.deliver(subject, bytes(data), reply)
                    if await ends_within(self.clock, reply, again):
                        return reply.result()
                    again *= 2
        except TimeoutError:
            raise HanseError(
                ErrorCode.TIMEOUT, f"request on {subject}: no answer within {timeout:g} s", hint="is its service up?"
            ) from None

    async def serve(self, subject: str, handler: Handler, *, group: str) -> MemorySubscription:
        """See `port.Bus.serve`."""
        self._check_open()
        server = Server(subject, group, handler)
        self._servers.add(server)
        self.broker.add_server(server)
        return MemorySubscription(self, server)

    async def tell(self, subject: str, data: bytes, *, headers: Headers | None = None) -> None:
        """See `port.Bus.tell`."""
        if not self._closed.is_set():
            self.broker.tell(Record(subject, bytes(data), 0, dict(headers or {})))

    @asynccontextmanager
    async def hear(self, subject: str) -> AsyncIterator[AsyncIterator[Record | None]]:
        """See `port.Bus.hear`."""
        self._check_open()
        queue: asyncio.Queue[Record | None] = asyncio.Queue()
        queue.put_nowait(None)
        self._heard.append((subject, queue))
        self.broker.listeners.append((subject, queue))
        try:
            yield self._told(queue)
        finally:
            self._heard.remove((subject, queue))
            if (subject, queue) in self.broker.listeners:
                self.broker.listeners.remove((subject, queue))

    async def _told(self, queue: asyncio.Queue[Record | None]) -> AsyncIterator[Record | None]:
        while True:
            told = await queue.get()
            self._check_open()
            yield told

    def _stop_serving(self, server: Server) -> None:
        self._servers.discard(server)
        self.broker.remove_server(server)

    async def ready(self) -> bool:
        return not self._closed.is_set()

    async def close(self) -> None:
        """Cut the connection, as a crash would. What is cut is cut: once more changes nothing."""
        if self._closed.is_set():
            return
        self._closed.set()
        for server in list(self._servers):
            self._stop_serving(server)
        for stream, held in self._held:
            for sequence in sorted(held):
                self.broker.lose_job(stream, sequence)
            held.clear()
        for follower in list(self._followers):
            follower.wake()
        for listener in self._heard:
            self.broker.listeners.remove(listener)
            listener[1].put_nowait(None)  # it finds that the connection is closed
        self.broker.wake_workers()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise HanseError(ErrorCode.UNAVAILABLE, "the connection to the bus is closed")
