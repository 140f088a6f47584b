"""The bus on NATS with JetStream. See `port` for what it promises; `connection` and `follower` for how."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nats.aio.msg import Msg

from hanse_fabric.bus.api import api_error, ask
from hanse_fabric.bus.broker import conflict
from hanse_fabric.bus.calls import status
from hanse_fabric.bus.connection import Connection
from hanse_fabric.bus.follower import Follower, Idle, Keeper
from hanse_fabric.bus.leader import newest
from hanse_fabric.bus.permissions import ANSWERS_TO_SITES
from hanse_fabric.bus.port import ASKED_AGAIN_S, HEARTBEAT_S, Handler, Headers, HeldMessage, Record
from hanse_fabric.bus.worker import HeldOnNats, give_all_back, held_messages, keep_alive
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES
from hanse_fabric.subjects import Stream
from hanse_fabric.telemetry.traces import continued, extract, inject

_WRONG_LAST = 10071
_UNDECIDED = 10164
"""In a cluster: another message on the subject, which may be our own of an earlier try, is being agreed on."""
_AGAIN_S = 0.1
_FOLLOW_S = 30.0
_REPLIES = ("_INBOX.", ANSWERS_TO_SITES.removesuffix(">"))
_LOG = logging.getLogger(__name__)


class NatsSubscription:
    """One handler of `serve`; its requests are tasks that end with it."""

    def __init__(self, connection: Connection, handler: Handler) -> None:
        self._connection, self._handler = connection, handler
        self._tasks: set[asyncio.Task[None]] = set()
        self.subscription: Any = None

    async def on_message(self, message: Msg) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: Msg) -> None:
        # The reply subject is the asker's choice and is published with this service's rights: inboxes only, and what
        # the server made of the reply of another account's request.
        if message.reply and not message.reply.startswith(_REPLIES):
            _LOG.warning("request on %s with reply %r is ignored: not an inbox", message.subject, message.reply)
            return
        try:
            with continued(extract(message.headers or {})):
                answer = await self._handler(message.subject, message.data)
        except Exception:  # the port's promise: logged, and the requester times out
            _LOG.exception("the handler of %s failed", message.subject)
            return
        if message.reply:
            await self._connection.calls.send(message.reply, answer)

    async def stop(self) -> None:
        await self._connection.unsubscribe(self.subscription)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class NatsBus:
    """A connection to NATS. Made by `connect`; used from one event loop."""

    clock: Clock = SYSTEM_CLOCK

    def __init__(self, connection: Connection, *, heartbeat: float = HEARTBEAT_S, confirm: bool = False) -> None:
        self._connection, self._heartbeat, self._confirm = connection, heartbeat, confirm
        self._keeper = Keeper(connection, heartbeat)

    @classmethod
    async def connect(
        cls,
        url: str,
        name: str = "hanse",
        *,
        creds: Path | str | None = None,
        inbox_prefix: str | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 10.0,
        heartbeat: float = HEARTBEAT_S,
        confirm: bool = False,
    ) -> NatsBus:
        """Connect.

        Args:
            url: one server, or several of one cluster, separated by commas; ws:// and wss:// for WebSocket.
            heartbeat: seconds between signs of life of what is followed. What a lost server of a cluster did for
                others is missed after two and a half of them.
            confirm: whether snapshots are held against the stream's leader, so that they show what was confirmed
                before, whichever copy answers. For services: participants may not ask the leader.
            name: the role, or `project.participant`; the inbox is `_INBOX.<name>` unless `inbox_prefix` says else.
            creds: path of a `.creds` file, or its text.
            ca, cert, key: PEM files for TLS and mutual TLS, in place of `tls`.

        Raises:
            HanseError: UNAVAILABLE, UNAUTHENTICATED, FORBIDDEN.
        """
        if tls is None and (ca is not None or cert is not None):
            from hanse_fabric.tls import client_context

            tls = client_context(ca, cert, key)
        text = await asyncio.to_thread(read_creds, creds) if isinstance(creds, Path) else creds
        prefix = inbox_prefix or f"_INBOX.{name}"
        connection = await Connection.open(url, name, text, inbox_prefix=prefix, tls=tls, timeout=timeout)
        return cls(connection, heartbeat=heartbeat, confirm=confirm)

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
        """See `port.Bus.publish`. Lost acknowledgements are told by the message's id, one's own where none is given."""
        if len(data) > MAX_MESSAGE_BYTES:
            raise HanseError(ErrorCode.TOO_LARGE, f"{subject}: {len(data)} bytes, more than {MAX_MESSAGE_BYTES}")
        identity = message_id or uuid.uuid4().hex
        sent = {**(headers or {}), "Nats-Msg-Id": identity}
        if expected_last is not None:
            sent["Nats-Expected-Last-Subject-Sequence"] = str(expected_last)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        tries: list[int] = []
        while True:
            answer = await self._connection.call(subject, data, headers=sent, deadline=deadline, tries=tries)
            body = json.loads(answer.data)
            error = body.get("error")
            if error is None:
                return int(body["seq"])
            failure = api_error(error, f"publishing to {subject}")
            undecided = error.get("err_code") == _UNDECIDED or failure.code is ErrorCode.UNAVAILABLE
            if undecided and loop.time() < deadline:
                await asyncio.sleep(_AGAIN_S)
                continue
            if expected_last is None or error.get("err_code") not in (_WRONG_LAST, _UNDECIDED):
                raise failure
            if message_id is not None or len(tries) > 1:
                stored = await self._stored(body.get("stream"), subject, identity, deadline)
                if stored is not None:
                    return stored
            raise conflict(subject, expected_last)

    async def _stored(self, stream: str | None, subject: str, identity: str, deadline: float) -> int | None:
        """The sequence of the subject's last message, if it is the one with this id."""
        from hanse_fabric.bus.matching import owner

        # At the leader: a copy that is behind would show the former message, and ours would be taken for another
        # writer's.
        record = await newest(self._connection, stream or owner(subject).name, subject, deadline)
        return record.sequence if record is not None and record.headers.get("Nats-Msg-Id") == identity else None

    async def last(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> Record | None:
        """See `port.Bus.last`."""
        # Records change, so they are read where they are written. Other messages are read from the copy that is near,
        # and looked for at the leader where that one has none.
        deadline = asyncio.get_running_loop().time() + timeout
        if not stream.rarely_there and not stream.name.startswith("KV_"):
            near = await self._near(stream.name, subject, deadline)
            if near is not None:
                return near
        return await newest(self._connection, stream.name, subject, deadline)

    async def _near(self, stream: str, subject: str, deadline: float) -> Record | None:
        message = await self._connection.call(f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", deadline=deadline)
        if status(message) == "404":
            return None
        headers = dict(message.headers or {})
        if "Nats-Sequence" not in headers:
            raise HanseError(ErrorCode.INTERNAL, f"bus: reading {subject}: unexpected answer {headers}")
        own = {name: value for name, value in headers.items() if name not in _DIRECT_HEADERS}
        return Record(headers["Nats-Subject"], message.data, int(headers["Nats-Sequence"]), own)

    @asynccontextmanager
    async def follow(self, stream: Stream, subject: str, *, after: int = 0) -> AsyncIterator[AsyncIterator[Record]]:
        """See `port.Bus.follow`. Entering raises FORBIDDEN, or UNAVAILABLE after 30 s without a server."""
        follower = Follower(self._connection, stream, subject, after, heartbeat=self._heartbeat)
        try:
            await follower.open(asyncio.get_running_loop().time() + _FOLLOW_S)
            self._keeper.add(follower)
            yield _records(follower)
        finally:
            self._keeper.remove(follower)
            await follower.stop()

    async def snapshot(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> list[Record]:
        """See `port.Bus.snapshot`."""
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            last = await newest(self._connection, stream.name, subject, deadline) if self._confirm else None
            if self._confirm and last is None:
                return []
            found = await self._near_snapshot(stream, subject, deadline, timeout)
            if last is None or (found and found[-1].sequence >= last.sequence):
                return found
            # The copy that answered was behind, or all was purged meanwhile: the leader is asked again.
            await asyncio.sleep(0.05)

    async def _near_snapshot(self, stream: Stream, subject: str, deadline: float, timeout: float) -> list[Record]:
        follower = Follower(self._connection, stream, subject, 0, heartbeat=0.5, tell_idle=True)
        found: list[Record] = []
        try:
            if await follower.open(deadline) == 0:
                return found
            self._keeper.add(follower)
            async with asyncio.timeout_at(deadline):
                while True:
                    item = await follower.next()
                    if isinstance(item, Idle):
                        if await follower.caught_up(deadline):
                            return found  # the rest was purged meanwhile
                        continue
                    found.append(item)
                    if item.pending == 0:
                        return found
        except TimeoutError:
            raise HanseError(ErrorCode.UNAVAILABLE, f"bus: reading {subject} took over {timeout:g} s") from None
        finally:
            self._keeper.remove(follower)
            await follower.stop()

    async def purge(self, stream: Stream, subject: str, *, timeout: float = 10.0) -> None:
        """See `port.Bus.purge`."""
        deadline = asyncio.get_running_loop().time() + timeout
        request = json.dumps({"filter": subject}).encode()
        await ask(self._connection, f"$JS.API.STREAM.PURGE.{stream.name}", request, deadline, f"purging {subject}")

    @asynccontextmanager
    async def work(self, stream: Stream) -> AsyncIterator[AsyncIterator[HeldMessage]]:
        """See `port.Bus.work`."""
        held: set[HeldOnNats] = set()
        alive = asyncio.get_running_loop().create_task(keep_alive(self._connection, stream, held))
        try:
            yield held_messages(self._connection, stream, held)
        finally:
            alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)
            await give_all_back(self._connection, held)

    async def request(self, subject: str, data: bytes, *, timeout: float = 10.0) -> bytes:
        """See `port.Bus.request`."""
        answer = await self._connection.call(
            subject,
            data,
            deadline=asyncio.get_running_loop().time() + timeout,
            each_try=timeout,
            again=ASKED_AGAIN_S,
            late=ErrorCode.TIMEOUT,
            headers=inject(),
        )
        return bytes(answer.data)

    async def serve(self, subject: str, handler: Handler, *, group: str) -> NatsSubscription:
        """See `port.Bus.serve`."""
        served = NatsSubscription(self._connection, handler)
        served.subscription = await self._connection.subscribe(subject, served.on_message, queue=group)
        return served

    async def tell(self, subject: str, data: bytes, *, headers: Headers | None = None) -> None:
        """See `port.Bus.tell`."""
        await self._connection.calls.send(subject, data, headers)

    @asynccontextmanager
    async def hear(self, subject: str) -> AsyncIterator[AsyncIterator[Record | None]]:
        """See `port.Bus.hear`. Entering raises FORBIDDEN or UNAVAILABLE."""
        queue: asyncio.Queue[Record | HanseError | None] = asyncio.Queue()

        async def on_message(message: Msg) -> None:
            queue.put_nowait(Record(message.subject, message.data, 0, dict(message.headers or {})))

        def missed() -> None:
            queue.put_nowait(None)

        # First, for a message may come before the subscription's end is known here.
        missed()
        subscription = await self._connection.subscribe(subject, on_message)
        # Said when the connection breaks, too: what comes as soon as it stands again then waits behind it.
        self._connection.on_disconnect.append(missed)
        self._connection.on_reconnect.append(missed)
        self._connection.on_end.append(queue.put_nowait)
        try:
            yield _heard(queue)
        finally:
            self._connection.on_disconnect.remove(missed)
            self._connection.on_reconnect.remove(missed)
            self._connection.on_end.remove(queue.put_nowait)
            await self._connection.unsubscribe(subscription)

    async def renew(self, token: str) -> None:
        """Use another token of the same key from now on: the connection is made anew."""
        await self._connection.renew(token)

    async def ready(self) -> bool:
        return await self._connection.ready()

    async def close(self) -> None:
        await self._keeper.stop()
        await self._connection.close()


_DIRECT_HEADERS = frozenset({"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending"})


async def _heard(queue: asyncio.Queue[Record | HanseError | None]) -> AsyncIterator[Record | None]:
    while True:
        item = await queue.get()
        if isinstance(item, HanseError):
            raise item
        yield item


async def _records(follower: Follower) -> AsyncIterator[Record]:
    while True:
        item = await follower.next()
        if isinstance(item, Record):
            yield item


def read_creds(path: Path) -> str:
    """The text of a `.creds` file.

    Raises:
        HanseError: INVALID_INPUT where it cannot be read.
    """
    try:
        return path.read_text()
    except OSError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"bus credentials: {path} cannot be read: {error.strerror}",
            hint="name the .creds file that was made for this service",
        ) from None
