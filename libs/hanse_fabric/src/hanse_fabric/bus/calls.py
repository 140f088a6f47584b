"""What a client asks over one connection and waits for: all answers arrive at one inbox.

A call that the server forbids fails when the server says so, and one that was under way when the connection broke is
lost, so that it can be sent again; neither waits for its deadline.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from hanse_fabric.bus.port import Headers
from hanse_fabric.errors import ErrorCode, HanseError

_NO_RESPONDERS = "503"
_LOG = logging.getLogger(__name__)


class _LostError(Exception):
    """The connection broke while a call waited."""


class Calls:
    """The calls of one client, with their answers at `<inbox>.r.*`."""

    def __init__(self, client: Client, inbox: str) -> None:
        self._client, self._inbox = client, inbox
        self._numbers = itertools.count()
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self._pulls: dict[asyncio.Future[Msg], None] = {}  # in the order of asking
        self._by_subject: defaultdict[str, set[asyncio.Future[Msg]]] = defaultdict(set)

    async def attempt(
        self, subject: str, data: bytes, deadline: float, headers: Headers | None = None, again: float | None = None
    ) -> Msg | None:
        """One try of a call; None when it was lost, late, or nobody listened.

        Args:
            deadline: event loop's time.
            again: seconds before it is sent once more, twice as many before each further time. Any answer is as good.

        Raises:
            HanseError: FORBIDDEN; what the connection ended with.
        """
        token = str(next(self._numbers))
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        if ".CONSUMER.MSG.NEXT." in subject:
            self._pulls[future] = None
        waiters = self._by_subject[subject.lower()]
        waiters.add(future)
        try:
            async with asyncio.timeout_at(deadline):
                while not future.done():
                    await self._client.publish(
                        subject, data, reply=f"{self._inbox}.r.{token}", headers=dict(headers) if headers else None
                    )
                    if again is None:
                        break
                    await asyncio.wait((future,), timeout=again)
                    again *= 2
                answer = await future
        except (TimeoutError, _LostError, nats.errors.Error, OSError):
            return None
        finally:
            del self._waiting[token]
            self._pulls.pop(future, None)
            waiters.discard(future)
            if not waiters:
                self._by_subject.pop(subject.lower(), None)
        return None if status(answer) == _NO_RESPONDERS else answer

    async def send(self, subject: str, data: bytes, headers: Headers | None = None) -> None:
        """Publish without waiting for an answer; lost if the connection is."""
        try:
            await self._client.publish(subject, data, headers=dict(headers) if headers else None)
        except (nats.errors.Error, OSError) as error:
            _LOG.debug("not sent to %s: %s", subject, error)

    async def take(self, message: Msg) -> None:
        """An answer that has arrived."""
        job = message.reply.startswith("$JS.ACK.") and status(message) is None
        # A job comes under its own subject, not under the inbox that asked for it: any waiting pull may have it.
        future = next(iter(self._pulls), None) if job else self._waiting.get(message.subject.rpartition(".")[2])
        if future is not None and not future.done():
            self._pulls.pop(future, None)
            future.set_result(message)
        elif job:
            # A job for a worker that waits no longer: another can have it at once.
            await self.send(message.reply, b"-NAK")

    def forbid(self, subject: str) -> None:
        """The server permits no publishing there (it names subjects in small letters)."""
        for future in self._by_subject.get(subject, set()):
            if not future.done():
                future.set_exception(forbidden("publish to", subject))

    def lose(self) -> None:
        """The connection broke."""
        self._end_all(_LostError())

    def end(self, error: HanseError) -> None:
        """The connection ended for good."""
        self._end_all(error)

    def _end_all(self, error: Exception) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


def forbidden(action: str, subject: str) -> HanseError:
    """What the server refuses to these credentials."""
    return HanseError(
        ErrorCode.FORBIDDEN,
        f"bus: these credentials do not permit to {action} {subject}",
        hint="each service and participant has its own subjects only; is the right credentials file in use?",
    )


def status(message: Msg) -> str | None:
    """A message's inline status, such as 404; None where it is an ordinary one."""
    return message.headers.get("Status") if message.headers else None
