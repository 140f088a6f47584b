"""Streams as files, by JetStream's snapshot API: whole, with their sequences and the queues' consumers.

$JS.API.STREAM.SNAPSHOT sends a stream in pieces, which are acknowledged as they are written; $JS.API.STREAM.RESTORE
takes them back (https://docs.nats.io/reference/jetstream/api/stream/). Sequences stay as they were, so that what
compares and sets, or goes on behind a sequence, goes on.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from hanse_fabric.bus.permissions import inbox_prefix
from hanse_fabric.bus.plain import plain_client
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import Role
from hanse_fabric.tensors.digest import digest_file

PIECE_BYTES = 128 << 10
_PIECE_S = 60.0
_NOT_FOUND = 404
_API = "$JS.API.STREAM"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a stream's file is.

    Attributes:
        config, state: JetStream's own, as they were.
        size: bytes.
        digest: of the file.
    """

    config: dict[str, Any]
    state: dict[str, Any]
    size: int
    digest: str


class Link:
    """A plain connection, whose requests fail at once where the credentials do not permit them.

    Attributes:
        unheard_s: how long a request that nobody hears is asked again.
    """

    unheard_s = 10.0

    def __init__(self, client: Client, refused: asyncio.Future[str]) -> None:
        self.client, self._refused = client, refused

    async def request(self, subject: str, data: bytes) -> bytes:
        """Raises HanseError FORBIDDEN; nats.errors.TimeoutError; nats.errors.NoRespondersError."""
        asking = asyncio.ensure_future(self._ask(subject, data))
        either: set[asyncio.Future[Any]] = {asking, self._refused}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return bytes(asking.result().data)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"bus: {self._refused.result()}",
            hint="backup needs the credentials bus-backup, restore those of bus-restorer",
        )

    async def _ask(self, subject: str, data: bytes) -> Msg:
        """Asks again while nobody hears: in a cluster, this server learns a little later who listens at another."""
        ends = time.monotonic() + self.unheard_s
        while True:
            try:
                return await self.client.request(subject, data, timeout=_PIECE_S)
            except nats.errors.NoRespondersError:
                if time.monotonic() > ends:
                    raise
                await asyncio.sleep(0.05)


@asynccontextmanager
async def connected(
    url: str, credentials: str, role: Role, *, timeout: float = 30.0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Link]:
    """A connection, closed at the end.

    Raises:
        HanseError: UNAVAILABLE when the bus cannot be reached, or stops answering inside.
    """
    refused: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def on_error(error: Exception) -> None:
        if "permissions violation" in str(error).lower() and not refused.done():
            refused.set_result(str(error))

    try:
        async with asyncio.timeout(timeout):
            connection = await plain_client(
                url, credentials, tls=tls, inbox_prefix=inbox_prefix(role), error_cb=on_error
            )  # fmt: skip
        try:
            yield Link(connection, refused)
        finally:
            await connection.close()
    except (OSError, TimeoutError, nats.errors.Error) as error:
        what = str(error) or type(error).__name__
        raise HanseError(
            ErrorCode.UNAVAILABLE, f"bus at {url}: {what}", hint="is it up and are the rights right?"
        ) from None


async def state_of(link: Link, stream: str) -> dict[str, Any] | None:
    """JetStream's state of a stream; None where there is no such stream."""
    answer = await _ask(link, f"INFO.{stream}", None, missing=True)
    return None if answer is None else dict(answer["state"])


async def save(link: Link, stream: str, path: Path) -> Snapshot | None:
    """Write a stream to a file; None where there is no such stream.

    Raises:
        HanseError: UNAVAILABLE when the server refuses or stops in the middle.
    """
    inbox = link.client.new_inbox()
    subscription = await link.client.subscribe(inbox, pending_bytes_limit=0, pending_msgs_limit=0)
    request = {"deliver_subject": inbox, "chunk_size": PIECE_BYTES, "no_consumers": False, "jsck": True}
    answer = await _ask(link, f"SNAPSHOT.{stream}", request, missing=True)
    if answer is None:
        return None
    size = 0
    with path.open("wb") as file:
        while True:
            message = await subscription.next_msg(timeout=_PIECE_S)
            if not message.data:
                _ended(stream, message.headers or {})
                break
            size += await asyncio.to_thread(file.write, message.data)
            if message.reply:
                await link.client.publish(message.reply, b"")
    await subscription.unsubscribe()
    digest, _ = await asyncio.to_thread(digest_file, path)
    return Snapshot(dict(answer["config"]), dict(answer["state"]), size, digest)


async def remove(link: Link, stream: str) -> None:
    """Delete a stream, if there is one.

    Raises:
        HanseError: UNAVAILABLE when the server refuses.
    """
    await _ask(link, f"DELETE.{stream}", None, missing=True)


async def bring_back(link: Link, stream: str, snapshot: Snapshot, path: Path) -> None:
    """Make a stream from a file; one that exists is deleted first.

    Raises:
        HanseError: UNAVAILABLE when the server refuses; TAMPERED when what it then holds is not what was saved.
    """
    await remove(link, stream)
    answer = await _ask(link, f"RESTORE.{stream}", {"config": snapshot.config, "state": snapshot.state})
    to = str((answer or {})["deliver_subject"])
    with path.open("rb") as file:
        while piece := await _read(file):
            _refused(stream, await link.request(to, piece))
    _refused(stream, await link.request(to, b""))
    state = await state_of(link, stream)
    if state is None or not is_back(state, snapshot.state):
        raise HanseError(ErrorCode.TAMPERED, f"stream {stream}: it is not what was saved after it was brought back")


def is_back(state: Mapping[str, Any], saved: Mapping[str, Any]) -> bool:
    """Whether a stream is as it was saved, by JetStream's states of both."""
    names = ("messages", "last_seq", "last_ts") if saved.get("messages") else ("messages", "last_seq")
    return all(state.get(name) == saved.get(name) for name in names)


async def _read(file: IO[bytes]) -> bytes:
    return await asyncio.to_thread(file.read, PIECE_BYTES)


async def _ask(
    link: Link, call: str, request: dict[str, Any] | None, *, missing: bool = False
) -> dict[str, Any] | None:
    data = b"" if request is None else json.dumps(request).encode()
    answer = await link.request(f"{_API}.{call}", data)
    body: dict[str, Any] = json.loads(answer)
    if missing and body.get("error", {}).get("code") == _NOT_FOUND:
        return None
    _refused(call, answer)
    return body


def _refused(what: str, answer: bytes) -> None:
    error = json.loads(answer).get("error") if answer else None
    if error:
        raise HanseError(ErrorCode.UNAVAILABLE, f"bus: {what}: {error.get('description', 'refused')}")


def _ended(stream: str, headers: dict[str, str]) -> None:
    """The last, empty piece says whether all of it was sent."""
    status = headers.get("Status", "")
    if status and not status.startswith("2"):
        why = headers.get("Description", status)
        raise HanseError(ErrorCode.UNAVAILABLE, f"stream {stream}: the server ended its snapshot early: {why}")
