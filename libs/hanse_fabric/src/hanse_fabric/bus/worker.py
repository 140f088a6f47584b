"""Work on a queue of JetStream: one one is pulled at a time, kept alive while held, and acknowledged twice-checked."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import nats.errors
from nats.aio.msg import Msg

from hanse_fabric.bus.calls import status
from hanse_fabric.bus.connection import Connection
from hanse_fabric.bus.port import HeldMessage, Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import Stream

_LOG = logging.getLogger(__name__)

# Reconnection ends a pending fetch. One that another server of a cluster held, and took down with it, is missed only at
# its end: so it must not be long. A worker that has nothing to do asks so often.
_FETCH_S = 5.0
_DONE_S = 5.0
_NANO = 1_000_000_000


class HeldOnNats:
    """A one held by this worker."""

    def __init__(self, connection: Connection, message: Msg, held: set[HeldOnNats]) -> None:
        parts = message.reply.split(".")
        shift = 2 if len(parts) > 9 else 0
        self._connection, self._held = connection, held
        self.ack = message.reply
        self._record = Record(
            subject=message.subject,
            data=message.data,
            sequence=int(parts[5 + shift]),
            headers=message.headers or {},
            pending=int(parts[8 + shift]),
        )

    @property
    def record(self) -> Record:
        return self._record

    async def done(self) -> None:
        """Take it off the queue; returns when the server has confirmed.

        A server that was killed after it took the acknowledgement does not answer a second one, so the wait is short;
        at worst the one comes again, and whoever gets it finds it done.
        """
        self._held.discard(self)
        try:
            await self._connection.call(self.ack, b"+ACK", deadline=asyncio.get_running_loop().time() + _DONE_S)
        except HanseError as error:
            if error.code is not ErrorCode.UNAVAILABLE:
                raise
            _LOG.warning("bus: a one's end was not confirmed: %s", error)

    async def give_back(self) -> None:
        """Offer it to another worker at once."""
        self._held.discard(self)
        await self._connection.calls.send(self.ack, b"-NAK")


async def held_messages(connection: Connection, stream: Stream, held: set[HeldOnNats]) -> AsyncIterator[HeldMessage]:
    """Pull messages for ever; each is in `held` until it is done or given back."""
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream.name}.{stream.workers}"
    request = json.dumps({"batch": 1, "expires": int(_FETCH_S * _NANO)}).encode()
    loop = asyncio.get_running_loop()
    while True:
        # An outage may last: the wait for the connection is repeated, as the port promises that work goes on.
        await connection.until_up(loop.time() + 3600.0)
        message = await connection.calls.attempt(subject, request, loop.time() + _FETCH_S + 0.5)
        if message is None:
            await asyncio.sleep(0.05)
        elif status(message) is None:
            one = HeldOnNats(connection, message, held)
            held.add(one)
            yield one
        elif status(message) not in ("404", "408"):
            await asyncio.sleep(0.1)


async def keep_alive(connection: Connection, stream: Stream, held: set[HeldOnNats]) -> None:
    """Tell the server, three times per wait, that what is held is in progress."""
    while True:
        await asyncio.sleep(stream.ack_wait_s / 3)
        for one in list(held):
            await connection.calls.send(one.ack, b"+WPI")


async def give_all_back(connection: Connection, held: set[HeldOnNats]) -> None:
    """Offer what is still held to other workers. A server that cannot be reached does so by itself, later."""
    for one in list(held):
        await one.give_back()
    if connection.client.is_connected:
        try:
            await connection.client.flush(timeout=1)
        except (nats.errors.Error, OSError):
            return
