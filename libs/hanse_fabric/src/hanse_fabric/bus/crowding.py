"""A key has few connections: those that it has beyond are ended, the newest first, so that nobody fills the servers.

NATS limits an account's connections, not a user's, and all sites of a region share an account. So whoever has the
system account counts what the servers tell of connections that come and go. What is counted may be wrong, for such
news can be lost; a key that seems to have too many is looked up before anything of it is ended.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from hanse_fabric.bus.claims import ask, kick
from hanse_fabric.bus.issuing import Issuer
from hanse_fabric.bus.plain import plain_client
from hanse_fabric.clock import Clock

_LOG = logging.getLogger(__name__)
MOST_CONNECTIONS = 16
"""An honest site has one, and another for a minute when the first is dead and the server does not know yet."""

_PAGE = 256
_AGAIN_S = 5.0
_CONNECT_S = 10
_TOLD_S = 60.0
_ALL = "$SYS.REQ.SERVER.PING.CONNZ"


class Crowding:
    """The connections of sites' keys, at all servers."""

    def __init__(self, url: str, issuer: Issuer, clock: Clock, tls: ssl.SSLContext | None = None) -> None:
        self._url, self._issuer, self._clock, self._tls = url, issuer, clock, tls
        self._open: dict[str, set[tuple[str, int]]] = {}
        self._crowded: asyncio.Queue[str | None] = asyncio.Queue()
        self._told: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled; where the servers are away it goes on when they are back."""
        while True:
            try:
                await self._watch()
            except (OSError, TimeoutError, nats.errors.Error) as error:
                _LOG.warning("connections on the bus are not counted: %s", error)
            await self._clock.sleep(_AGAIN_S)

    async def _watch(self) -> None:
        self._open, self._crowded = {}, asyncio.Queue()

        async def closed() -> None:
            self._crowded.put_nowait(None)

        connection = await plain_client(
            self._url, self._issuer.system_credentials(), tls=self._tls, connect_timeout=_CONNECT_S, closed_cb=closed
        )  # fmt: skip
        try:
            await connection.subscribe("$SYS.ACCOUNT.*.CONNECT", cb=self._came)
            await connection.subscribe("$SYS.ACCOUNT.*.DISCONNECT", cb=self._went)
            await self._count(connection)
            while (key := await self._crowded.get()) is not None:
                await self._thin(connection, key)
        finally:
            await connection.close()

    async def _came(self, message: Msg) -> None:
        told = json.loads(message.data)
        client, server = told["client"], str(told["server"]["id"])
        if client.get("acc") not in self._services():
            self._note(str(client.get("user", "")), server, int(client["id"]))

    async def _went(self, message: Msg) -> None:
        told = json.loads(message.data)
        key, one = str(told["client"].get("user", "")), (str(told["server"]["id"]), int(told["client"]["id"]))
        self._open.get(key, set()).discard(one)
        if not self._open.get(key, {one}):
            del self._open[key]

    def _services(self) -> tuple[str, ...]:
        return self._issuer.public("account"), self._issuer.public("system")

    def _note(self, key: str, server: str, connection: int) -> None:
        there = self._open.setdefault(key, set())
        there.add((server, connection))
        if len(there) > MOST_CONNECTIONS:
            self._crowded.put_nowait(key)

    async def _count(self, connection: Client) -> None:
        """Those that were there before."""
        offset, more = 0, True
        while more:
            pages = await _pages(connection, {"auth": True, "offset": offset, "limit": _PAGE})
            for server, clients in pages.items():
                for client in clients:
                    if client.get("account") not in self._services():
                        self._note(str(client.get("authorized_user", "")), server, int(client["cid"]))
            offset, more = offset + _PAGE, any(len(clients) == _PAGE for clients in pages.values())

    async def _thin(self, connection: Client, key: str) -> None:
        """End what a key has beyond MOST_CONNECTIONS by the servers' own word."""
        if len(self._open.get(key, ())) <= MOST_CONNECTIONS:
            return
        before = set(self._open[key])
        pages = await _pages(connection, {"auth": True, "user": key, "limit": _PAGE})
        found = sorted(
            (str(client["start"]), server, int(client["cid"])) for server, some in pages.items() for client in some
        )
        # Others may have come meanwhile: they are counted, and looked up next.
        here = {(server, cid) for _, server, cid in found}
        self._open[key] = (self._open.get(key, set()) - before) | here
        for _, server, cid in found[MOST_CONNECTIONS:]:
            self._open[key].discard((server, cid))
            await kick(connection, server, cid)
        if any(len(some) == _PAGE for some in pages.values()):
            self._note(key, "", len(found))  # there may be more
        now = self._clock.monotonic()
        if len(found) > MOST_CONNECTIONS and now - self._told.get(key, -_TOLD_S) >= _TOLD_S:
            self._told = {one: at for one, at in self._told.items() if now - at < _TOLD_S} | {key: now}
            _LOG.warning("%s (%s) has too many connections: %d", key, _name(pages), len(found))


async def _pages(connection: Client, asked: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What each server tells of its connections, by the server's id."""
    answers = [json.loads(answer.data) for answer in await ask(connection, _ALL, json.dumps(asked).encode())]
    return {str(one["server"]["id"]): one.get("data", {}).get("connections") or [] for one in answers}


def _name(pages: Mapping[str, list[dict[str, Any]]]) -> str:
    """Of the first of them: project and site, by its token's tags."""
    return next((", ".join(client.get("tags") or ()) for some in pages.values() for client in some), "")
