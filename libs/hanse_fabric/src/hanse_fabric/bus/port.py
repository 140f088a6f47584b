"""The bus as services see it: durable streams, requests, and work queues. Implementations: `nats`, `memory`.

Every operation ends: it succeeds, or raises HanseError (UNAVAILABLE or TIMEOUT) at its timeout. Where a server is
restarted meanwhile, operations are tried again until then, and `follow` and `work` simply go on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from hanse_fabric.clock import Clock
from hanse_fabric.subjects import Stream

Headers = Mapping[str, str]
HEARTBEAT_S = 5.0
"""Seconds between signs of life of what is followed; a lost server's work is missed after two and a half of them."""
ASKED_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """A message of a stream.

    Attributes:
        sequence: its place in the stream, from 1, rising.
        pending: how many more messages of the same `follow` are waiting already; 0 means caught up.
    """

    subject: str
    data: bytes
    sequence: int
    headers: Headers = field(default_factory=dict)
    pending: int = 0


class HeldMessage(Protocol):
    """A message of a work queue, held by this worker until `done`. It is kept alive while held."""

    @property
    def record(self) -> Record: ...

    async def done(self) -> None:
        """Take it off the queue."""
        ...

    async def give_back(self) -> None:
        """Offer it to another worker at once."""
        ...


class Subscription(Protocol):
    async def stop(self) -> None: ...


Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Called with (subject, request); returns the reply. Its exceptions are logged and the requester times out."""


class Bus(Protocol):
    @property
    def clock(self) -> Clock:
        """The time in which timeouts run, here and in what stands on the bus."""
        ...

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
        """Store a message durably in the stream that owns `subject`.

        Args:
            message_id: a second publication of the same id within two minutes is dropped.
            expected_last: the sequence that the last message on this subject must have (0: none may exist).
                This is the compare-and-set of records and the fence of journals. When an acknowledgement was lost,
                the implementation finds out whether its own message was stored: a retry never conflicts with itself.
            timeout: seconds, across reconnections.

        Returns:
            The message's sequence.

        Raises:
            HanseError: CONFLICT when `expected_last` does not hold; FORBIDDEN when the credential does not permit the
                subject; UNAVAILABLE at the timeout; TOO_LARGE.
        """
        ...

    async def last(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> Record | None:
        """The newest message on one concrete subject, or None."""
        ...

    def follow(
        self, stream: Stream, subject: str, *, after: int = 0
    ) -> AbstractAsyncContextManager[AsyncIterator[Record]]:
        """Every message that matches `subject` (wildcards allowed) with a sequence above `after`, then live ones.

        In order, without gap, across reconnections and server restarts. Leaving the context stops it.
        """
        ...

    async def snapshot(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> list[Record]:
        """All messages that match `subject` now."""
        ...

    async def purge(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> None:
        """Remove all messages that match `subject`."""
        ...

    def work(self, stream: Stream) -> AbstractAsyncContextManager[AsyncIterator[HeldMessage]]:
        """Jobs of a QUEUE stream, one at a time to one of its workers. A job whose worker dies, or leaves the context
        without `done`, is given to another."""
        ...

    async def request(self, subject: str, data: bytes, *, timeout: float = 10.0) -> bytes:
        """Ask whoever serves `subject`, waiting for one to appear if none does.

        One of those who serve may hang, and the bus goes on giving it its part. So the request is sent again after
        ASKED_AGAIN_S, and after twice as long each time; the first answer counts. Handlers are idempotent.
        """
        ...

    async def serve(self, subject: str, handler: Handler, *, group: str) -> Subscription:
        """Answer requests on `subject` (wildcards allowed); one of those who listen as `group` gets each."""
        ...

    async def tell(self, subject: str, data: bytes, *, headers: Headers | None = None) -> None:
        """Say something to whoever listens or serves there now. Nothing is stored or confirmed: it may be lost."""
        ...

    def hear(self, subject: str) -> AbstractAsyncContextManager[AsyncIterator[Record | None]]:
        """What is told on `subject` from now on; its records have no sequence (0).

        None comes first, and when the connection breaks and stands again: what was told before may have been missed.
        """
        ...

    async def ready(self) -> bool:
        """Whether the bus answers now."""
        ...

    async def close(self) -> None: ...
