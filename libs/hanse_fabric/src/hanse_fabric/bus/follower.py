"""Ordered reading of a stream: an ephemeral push consumer of JetStream, made anew wherever it may have lost something.

The server counts its deliveries. When a number is missing, when an idle heartbeat disagrees or stays away, and after a
reconnection, the consumer is made again behind the last message that was read. So nothing is lost, and nothing comes
twice. It is given up, too, while more waits than its reader takes, and made again when that is read: who reads slowly
fills no memory.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from hanse_fabric.bus.api import ask
from hanse_fabric.bus.calls import status
from hanse_fabric.bus.connection import Connection
from hanse_fabric.bus.port import HEARTBEAT_S, Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import Stream

_STALE_AFTER = 2.5  # heartbeats
_EACH_NAME_S = 5.0
_NANO = 1_000_000_000
MOST_WAITING = 8 << 20
"""Bytes that wait for the reader of one follower."""
_AT_ONCE = 32
_LOG = logging.getLogger(__name__)


class Idle:
    """What `Follower.next` returns when the server has nothing more to send now."""


IDLE = Idle()


class Follower:
    """One `follow`. `next` gives its records."""

    def __init__(
        self,
        connection: Connection,
        stream: Stream,
        subject: str,
        after: int,
        *,
        heartbeat: float = HEARTBEAT_S,
        tell_idle: bool = False,
    ) -> None:
        self._connection, self._stream, self._subject = connection, stream, subject
        self._last = after
        self._heartbeat, self._tell_idle = heartbeat, tell_idle
        self._queue: asyncio.Queue[Record | Idle | HanseError] = asyncio.Queue()
        self._waiting, self._full = 0, False
        self._subscription: Any = None
        self._name, self._create = "", b""
        self._delivered = 0
        self._seen = 0.0
        self._generation = -1
        self.on_stale: Callable[[], None] = _nothing

    async def open(self, deadline: float) -> int:
        """Make the consumer, in place of the one before; returns how many messages it has sent already or will send.

        The request may have been sent twice, where the first answer was late or lost. The second answer then shows the
        consumer as it is by now, which may have nothing pending because all was sent. So what was delivered counts,
        too.

        A cluster may give the consumer to a server that it has not missed yet, and then nobody answers for this name
        any more: after a while another is taken, which another server may get.

        Raises:
            HanseError: FORBIDDEN, NOT_FOUND (no such stream), UNAVAILABLE at `deadline` (event loop's time).
        """
        loop = asyncio.get_running_loop()
        patience = _EACH_NAME_S
        while True:
            try:
                return await self._open(min(deadline, loop.time() + patience))
            except HanseError as error:
                if error.code is not ErrorCode.UNAVAILABLE or loop.time() >= deadline:
                    raise
            patience *= 2  # also with a busy server, which thousands ask

    async def _open(self, deadline: float) -> int:
        await self._connection.until_up(deadline)
        await self._unsubscribe()
        name = secrets.token_hex(10)
        inbox = f"{self._connection.inbox}.f.{name}"
        self._name, self._delivered = name, 0
        self._generation = self._connection.generation
        self._subscription = await self._connection.client.subscribe(
            inbox, cb=self._on_message, pending_msgs_limit=0, pending_bytes_limit=0
        )
        config = self._config(name, inbox)
        self._create = json.dumps({"stream_name": self._stream.name, "config": config}).encode()
        pending, delivered = await self._ask(name, deadline)
        self._seen = asyncio.get_running_loop().time()
        return pending + delivered

    async def caught_up(self, deadline: float) -> bool:
        """Whether the server says that it has nothing but what `next` has given. Raises as `open` does."""
        name, request = self._name, self._create
        if not name:
            return False
        loop = asyncio.get_running_loop()
        try:
            pending, delivered = await self._ask(name, min(deadline, loop.time() + _EACH_NAME_S))
        except HanseError as error:
            if error.code is not ErrorCode.UNAVAILABLE or loop.time() >= deadline:
                raise
            return False  # its server may be gone; the keeper makes it anew
        same = self._create is request and self._name == name  # not made anew meanwhile
        return same and self._queue.empty() and (pending, delivered) == (0, self._delivered)

    async def _ask(self, name: str, deadline: float) -> tuple[int, int]:
        """Create the consumer, or hear of it where it is there: what it has to send, what it has sent."""
        subject = f"$JS.API.CONSUMER.CREATE.{self._stream.name}.{name}.{self._subject}"
        body = await ask(self._connection, subject, self._create, deadline, f"following {self._subject}")
        return int(body.get("num_pending", 0)), int(body.get("delivered", {}).get("consumer_seq", 0))

    def _config(self, name: str, inbox: str) -> dict[str, Any]:
        start: dict[str, Any] = {"deliver_policy": "all"}
        if self._last:
            start = {"deliver_policy": "by_start_sequence", "opt_start_seq": self._last + 1}
        return start | {
            "name": name,
            "deliver_subject": inbox,
            "filter_subject": self._subject,
            "ack_policy": "none",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "replay_policy": "instant",
            "idle_heartbeat": int(self._heartbeat * _NANO),
            # Without a listener the consumer goes by itself, so no right to delete consumers is needed.
            "inactive_threshold": 5 * _NANO,
        }

    async def next(self) -> Record | Idle:
        item = await self._queue.get()
        if isinstance(item, HanseError):
            self._queue.put_nowait(item)
            raise item
        if isinstance(item, Record):
            self._waiting -= len(item.data)
            if self._full and not self._waiting:
                self._full = False
                self.on_stale()
        return item

    async def rest(self) -> None:
        """Have the server send nothing more, where enough waits."""
        if self._full:
            await self._unsubscribe()

    def fail(self, error: HanseError) -> None:
        """Have `next` raise it once what came before is read."""
        self._queue.put_nowait(error)

    def is_stale(self, now: float) -> bool:
        if self._full:
            return False
        if not self._name or self._generation != self._connection.generation:
            return True
        return now - self._seen > _STALE_AFTER * self._heartbeat

    async def stop(self) -> None:
        self._name = ""
        await self._unsubscribe()

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            try:
                await subscription.unsubscribe()
            except (nats.errors.Error, OSError) as error:
                _LOG.debug("unsubscribing: %s", error)

    async def _on_message(self, message: Msg) -> None:
        if not message.reply.startswith("$JS.ACK."):  # a stream's message has it, whatever status its sender wrote
            self._on_heartbeat(message)
            return
        parts = message.reply.split(".")
        shift = 2 if len(parts) > 9 else 0  # the longer form names domain and account
        if len(parts) < 9 or parts[3 + shift] != self._name:
            return  # of a consumer that was replaced
        sequence, delivered, pending = int(parts[5 + shift]), int(parts[6 + shift]), int(parts[8 + shift])
        self._seen = asyncio.get_running_loop().time()
        if delivered != self._delivered + 1:
            self._restart()
            return
        self._delivered = delivered
        if sequence <= self._last:
            return
        self._last = sequence
        self._queue.put_nowait(
            Record(
                subject=message.subject,
                data=message.data,
                sequence=sequence,
                headers=message.headers or {},
                pending=pending,
            )
        )
        self._waiting += len(message.data)
        if self._waiting > MOST_WAITING:
            self._full = True
            self._restart()  # when it is read; what still comes is dropped

    def _on_heartbeat(self, message: Msg) -> None:
        if not self._name or not message.subject.endswith(self._name) or status(message) != "100":
            return
        self._seen = asyncio.get_running_loop().time()
        if int((message.headers or {}).get("Nats-Last-Consumer", "0")) != self._delivered:
            self._restart()
        elif self._tell_idle:
            self._queue.put_nowait(IDLE)

    def _restart(self) -> None:
        self._name = ""
        self.on_stale()


def _nothing() -> None:
    """Until a keeper looks after the follower."""


class Keeper:
    """Renews the followers of one connection: one task for all of them."""

    def __init__(self, connection: Connection, heartbeat: float = HEARTBEAT_S) -> None:
        self._connection, self._heartbeat = connection, heartbeat
        self._followers: dict[Follower, None] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        connection.on_reconnect.append(self._wake.set)
        connection.on_end.append(self._fail_all)

    def add(self, follower: Follower) -> None:
        follower.on_stale = self._wake.set
        self._followers[follower] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._keep())
        self._wake.set()

    def remove(self, follower: Follower) -> None:
        self._followers.pop(follower, None)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(self._heartbeat / 2):
                    await self._wake.wait()
            except TimeoutError:
                _LOG.debug("checking %d followers", len(self._followers))
            self._wake.clear()
            for follower in tuple(self._followers):
                await follower.rest()
            stale = [follower for follower in self._followers if follower.is_stale(loop.time())]
            for start in range(0, len(stale), _AT_ONCE):
                await asyncio.gather(*(self._renew(follower) for follower in stale[start : start + _AT_ONCE]))

    async def _renew(self, follower: Follower) -> None:
        try:
            await follower.open(asyncio.get_running_loop().time() + 10.0)
        except HanseError as error:
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
                follower._restart()
            else:
                follower.fail(error)
                self.remove(follower)

    def _fail_all(self, error: HanseError) -> None:
        for follower in self._followers:
            follower.fail(error)
        self._followers.clear()
