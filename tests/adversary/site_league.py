"""The hub's doors on a real server, and sites with nothing but their own credentials, which say what they like."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from hanse_fabric.bus.jwt import credentials, user_jwt
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.doors.asking import Doors
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.subjects import RESULT, TASK, Role
from hub_doors import hub_doors
from servers import NatsServer


def presence(**other: Any) -> bytes:
    said = {
        "schema": "hanse.presence/1", "project": "triage", "participant": "bad", "version": "1",
        "sent_at": SYSTEM_CLOCK.now().isoformat(),
    }  # fmt: skip
    return json.dumps(said | other).encode()


def new_run() -> str:
    return secrets.token_hex(6)


@dataclass
class Site:
    """An enrolled site with its own credentials, and what it can do with them."""

    bus: NatsBus
    doors: Doors

    def write(self, raw: bytes) -> None:
        """Anything at all, on its connection."""
        transport = self.bus._connection.client._transport
        assert transport is not None
        transport.write(raw)

    async def say(self, subject: str, data: bytes, reply: str, **headers: str) -> None:
        await self.bus._connection.client.publish(subject, data, reply=reply, headers=headers or None)


class League:
    """The hub's doors on a real server, and sites of project triage."""

    def __init__(self, server: NatsServer) -> None:
        self.server, self.keys = server, dict[str, bytes]()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> League:
        self.hub, self.aggregator = [
            await self._kept(await self.server.connect(role)) for role in (Role.COORDINATOR, Role.AGGREGATOR)
        ]
        await self._stack.enter_async_context(hub_doors(self.hub, self.aggregator, keys=self.keys))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _kept(self, bus: NatsBus) -> NatsBus:
        self._stack.push_async_callback(bus.close)
        return bus

    async def site(self, name: str) -> Site:
        bus, _ = await self.server.enrol("triage", name)
        key = SigningKey.create()
        self.keys[name] = key.public_bytes
        return Site(await self._kept(bus), Doors(bus, "triage", name, key))

    async def former(self, name: str, *subjects: str, hears: Sequence[str] = ()) -> NatsBus:
        """A site as release 0.1.0 enrolled it: in the hub's own account. What it may publish and hear is given."""
        account = KeyPair.from_seed((self.server.authority.folder / "account.seed").read_text())
        key = KeyPair.create(KeyKind.USER)
        granted = {"publish": list(subjects), "subscribe": [f"_INBOX.triage.{name}.>", *hears]}
        creds = credentials(user_jwt(account, key.public, name, granted), key)
        return await self._kept(await NatsBus.connect(self.server.url, f"triage.{name}", creds=creds))

    async def open(self, name: str, run: str, step: str = "r1-train") -> None:
        await self.hub.publish(TASK.of(project="triage", participant=name, run=run, step=step), b"open")

    async def results(self, run: str) -> dict[str, bytes]:
        assert RESULT.stream is not None
        found = await self.hub.snapshot(RESULT.stream, RESULT.wildcard(project="triage", run=run))
        return {RESULT.parse(record.subject)["participant"]: record.data for record in found}
