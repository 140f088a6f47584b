"""From the single account of release 0.1.0 to accounts of regions: on a running bus, with everybody connected."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp.test_utils import TestServer

from hanse_coordinator.api.hub import Hub, HubInfo
from hanse_coordinator.api.server import application
from hanse_coordinator.api.table import ROUTES
from hanse_coordinator.authority import BusCredentials
from hanse_coordinator.records import ProjectRecord
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.issuing import issued_at
from hanse_fabric.bus.jwt import account_jwt, credentials, read_credentials, user_jwt
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ParticipantRecord
from hanse_fabric.messages.doors import KnownTasks
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import DOORS, RESULT, Door, Role
from hanse_operations.__main__ import main
from hanse_schemas.schema import OpenSchema
from hanse_site import SiteLink, load_identity
from hanse_site.identity import BUS_CREDS, RECORD, SIGNING_KEY, SiteRecord
from hub_api import QUOTAS
from hub_doors import coordinator_doors
from servers import NatsServer, stand_ready

OWN = RESULT.of(project="p", run="r", step="s", participant="old")


async def _echo(_: str, data: bytes) -> bytes:
    return data


async def test_the_coordinators_push_opens_the_doors_and_disconnects_nobody(tmp_path: Path) -> None:
    authority = BusAuthority(tmp_path / "authority")
    signer, account = (KeyPair.from_seed((authority.folder / f"{name}.seed").read_text()) for name in _made(authority))
    (tmp_path / "accounts").mkdir()
    before = account_jwt(signer, account.public, "HANSE", limits={}, issued_at=1)
    (tmp_path / "accounts" / f"{account.public}.jwt").write_text(before)
    server = NatsServer(tmp_path, authority=authority)
    server.start()
    try:
        await server.provision()
        hub = await server.connect(Role.COORDINATOR)
        await hub.serve(DOORS[Door.RESULT].wildcard(), _echo, group="g")
        key = KeyPair.create(KeyKind.USER)
        granted = {"publish": [OWN], "subscribe": ["_INBOX.p.old.>"]}
        old = await NatsBus.connect(
            server.url, "p.old", creds=credentials(user_jwt(account, key.public, "p/old", granted), key)
        )
        assert await old.publish(OWN, b"before") == 1
        new, _ = await server.enrol("p", "new")
        door = DOORS[Door.RESULT].of(region="hub", project="p", participant="new")
        with pytest.raises(HanseError):
            await new.request(door, b"x", timeout=1)
        assert await authority.settle({}, url=server.url)
        assert await new.request(door, b"x", timeout=60) == b"x"
        assert not await authority.settle({}, url=server.url)
        assert await old.publish(OWN, b"after") == 2
        assert [bus._connection.generation for bus in (old, new, hub)] == [0, 0, 0]
        for bus in (old, new, hub):
            await bus.close()
    finally:
        server.kill()


class Upgraded:
    """A hub that was release 0.1.0's: its keys as files, its bus, and the API of this release."""

    def __init__(self, folder: Path) -> None:
        self.keys, self.home = folder / "keys", folder / "home"
        self.write()
        self.server = NatsServer(folder / "hub", authority=BusAuthority(self.keys / "authority"))
        self.server.folder.mkdir()

    def write(self, *options: str) -> None:
        """What the keys job does."""
        assert main(["secrets", "--name", "hub", "--files", str(self.keys), *options]) == 0

    async def service(self, role: Role) -> NatsBus:
        """A service's connection, by the credentials that lie there now."""
        creds = self.keys / f"bus-{role.value}" / "bus.creds"
        return await NatsBus.connect(self.server.url, role.value, creds=creds, confirm=True)

    async def end_former_tokens(self) -> int:
        options = ["--authority", str(self.keys / "authority"), "--url", self.server.url]
        return await asyncio.to_thread(main, ["former-tokens", *options])

    def former(self, key: KeyPair) -> str:
        """Credentials as release 0.1.0 gave them, which never expire."""
        account = KeyPair.from_seed((self.keys / "authority" / "account.seed").read_text())
        granted = {"publish": [OWN], "subscribe": ["_INBOX.p.old.>"]}
        return credentials(user_jwt(account, key.public, "p/old", granted), key)

    @asynccontextmanager
    async def api(self, bus: NatsBus) -> AsyncIterator[tuple[Hub, TestServer]]:
        """The handlers, with the bus's keys."""
        info = HubInfo(name="hub", instance="one", bus_url=self.server.url)
        given = BusCredentials(self.server.authority, bus, self.server.url)
        store = DirectoryStore(self.home.parent / "store")
        hub = Hub.on(bus, store, SYSTEM_CLOCK, credentials=given, info=info, quotas=QUOTAS)
        async with TestServer(application(hub, ROUTES)) as server:
            yield hub, server


async def test_after_the_former_tokens_ended_an_upgraded_site_comes_back_and_one_of_before_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Upgraded(tmp_path)
    made.server.start()
    try:
        await stand_ready(made.server.url, made.server.authority)
        key, signing = KeyPair.create(KeyKind.USER), SigningKey.create()
        former = made.former(key)
        assert await made.end_former_tokens() != 0
        assert "--renew-credentials" in capsys.readouterr().err, "the services would be cut off, too"
        # Tokens are told apart by whole seconds.
        await asyncio.sleep(max(0.0, issued_at(read_credentials(former)[0]) + 2 - time.time()))
        made.write("--renew-credentials")
        service, old = (
            await made.service(Role.COORDINATOR),
            await NatsBus.connect(made.server.url, "p.old", creds=former),
        )
        assert await made.end_former_tokens() == 0
        with pytest.raises(HanseError) as refusal:
            await NatsBus.connect(made.server.url, "p.old", creds=former, timeout=60)
        assert refusal.value.code is ErrorCode.UNAUTHENTICATED
        assert "expired, or were revoked" in refusal.value.hint
        with pytest.raises(HanseError):
            await _write_on(old)
        assert await service.ready()
        assert service._connection.generation == 0
        async with made.api(service) as (hub, server):
            record = ParticipantRecord(
                project="p", participant="old", public_key=base64.b64encode(signing.public_bytes), bus_key=key.public,
                enrolled_at=SYSTEM_CLOCK.now(),
            )  # fmt: skip
            project = ProjectRecord(
                name="p", data_schema=OpenSchema(), created_at=SYSTEM_CLOCK.now(), created_by="key:owner"
            )
            await hub.buckets.projects.create(project, project="p")
            await hub.buckets.participants.create(record, project="p", participant="old")
            made.home.mkdir()
            signing.save(made.home / SIGNING_KEY)
            (made.home / BUS_CREDS).write_text(former)
            where = SiteRecord(
                hub=str(server.make_url("")).rstrip("/"), hub_name="", project="p", participant="old",
                bus_url=made.server.url, api_key="", data_schema=OpenSchema(), token_id="t",
                joined_at=datetime.now(UTC),
            )  # fmt: skip
            (made.home / RECORD).write_bytes(where.encode())
            identity = load_identity(made.home)
            assert identity is not None
            link = await SiteLink.connect(identity)
            assert link.doors.region == "hub"
            async with coordinator_doors(service):
                assert await link.doors.ask(Door.TASKS, KnownTasks().encode(), timeout=60)
            await link.close()
        for bus in (service, old):
            await bus.close()
    finally:
        made.server.kill()


async def _write_on(bus: NatsBus) -> None:
    """Each is stored until the connection is dropped."""
    while True:
        await bus.publish(OWN, b"still here", timeout=60)


def _made(authority: BusAuthority) -> tuple[str, str]:
    """The keys' names, once they are there."""
    authority.account_tokens()
    return "signer", "account"
