"""nats-py's client, with what it lacks where others are hostile or many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
from nats.aio.client import PING_PROTO, Client
from nats.aio.transport import WebSocketTransport

from hanse_fabric.bus.pauses import FIRST_PATIENCE_S, Pauses
from hanse_fabric.errors import invalid
from hanse_fabric.proxies import proxy_for, session_options


class PatientClient(Client):
    """A client whose reading does not end at a subject or header that is no UTF-8: anybody who may publish below a
    wildcard can send one, and nats-py's reader would be silent from then on. And one that tries again where a TLS
    handshake hung, as at a server to which thousands come at once."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses = Pauses()

    async def _connect_to_server(self, server: Any) -> None:
        if not self._transport and proxy_for(server.uri.geturl()) is not None:
            self._transport = _through_proxy(server.uri.geturl())
        if server.uri.scheme == "wss":
            with self._patiently():  # nats-py itself sets no limit to a WebSocket's handshake
                async with asyncio.timeout(self.pauses.patience):
                    await super()._connect_to_server(server)
        else:
            self.options["connect_timeout"] = FIRST_PATIENCE_S
            await super()._connect_to_server(server)

    @contextmanager
    def _patiently(self) -> Iterator[None]:
        self.options["connect_timeout"] = self.pauses.patience
        try:
            yield
        except TimeoutError:
            self.pauses.took_too_long()
            raise

    async def _process_connect_init(self) -> None:
        # A ping that the lost connection did not send would have an answer for which nobody waits any more.
        self._pending = [command for command in self._pending if command != PING_PROTO]
        try:
            with self._patiently():
                await super()._process_connect_init()
        except BaseException:
            # nats-py waits for the end of a failed connection, which nobody tells after half a handshake: for ever.
            transport, self._transport = self._transport, None
            if transport is not None:
                transport.close()  # type: ignore[no-untyped-call]
            raise

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        """Ask for a sign of life behind all commands that are still buffered, in one write with them. nats-py writes it
        ahead of them, and only a second answer would tell what became of a command."""
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        # Not by `_send_command`, which waits for room where the buffer is full: whoever asks has a time of its own.
        self._pending.append(PING_PROTO)
        self._pending_data_size += len(PING_PROTO)
        await self._flush_pending()

    async def _process_pong(self) -> None:
        """Take an answer, also one for which nobody waits any more: nats-py's reading would end at it."""
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
            return
        await super()._process_pong()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """Hand a message to its listener at once. Ours never wait; nats-py's queue and task for each subscription would
        be a detour by the event loop that every answer pays."""
        listener = self._subs.get(sid)
        if listener is None or listener._cb is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        message = self._build_message(sid, subject, reply, data, await self._process_headers(headers))
        try:
            await listener._cb(message)
        except Exception as error:  # as nats-py does: one listener's trouble does not end the reading
            await self._error_cb(error)

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Any:
        return super()._build_message(sid, _readable(subject), _readable(reply), data, headers)

    async def _process_headers(self, headers: bytes) -> Any:
        return await super()._process_headers(_readable(headers)) if headers else None


def _through_proxy(url: str) -> WebSocketTransport:
    """A WebSocket through this process's proxy.

    Raises:
        HanseError: INVALID_INPUT for a server that speaks no WebSocket.
    """
    if not url.startswith(("ws:", "wss:")):
        raise invalid(
            "HANSE_PROXY", "set", f"none for a bus at {url}: a bus goes through a proxy by WebSocket alone",
            hint="have the hub's operator offer a wss:// address, or name the bus's host in NO_PROXY",
        )  # fmt: skip
    transport = WebSocketTransport()
    # nats-py's own session knows no proxy. It has no connections yet, so nothing is left open.
    transport._client.detach()
    transport._client = aiohttp.ClientSession(**session_options(url))
    return transport


def _readable(text: bytes) -> bytes:
    """UTF-8 in any case."""
    return text if text.isascii() else text.decode(errors="replace").encode()
