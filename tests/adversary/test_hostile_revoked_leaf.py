"""Whoever ran a region's leaf node, once the hub's operator has revoked its key: on real servers, by the real door."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import nats.errors
import pytest
from aiohttp.test_utils import TestServer

import hanse
from hanse_coordinator.api.hub import HUB_AUDIT, Hub, HubInfo
from hanse_coordinator.api.server import application
from hanse_coordinator.api.table import ROUTES
from hanse_coordinator.auth import register_bootstrap
from hanse_coordinator.authority import BusCredentials
from hanse_fabric.bus import claims
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.issuing import FOR_GOOD
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.bus.plain import plain_client
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.messages import AuditEvent
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import AUDIT, DOORS, Door, Role
from hanse_operations.__main__ import main
from hanse_operations.bus.server import LeafListener, LeafRemote
from hanse_operations.servers.program import free_ports
from hub_api import QUOTAS
from servers import NatsServer

WITHIN_S = 60


async def _echo(_: str, data: bytes) -> bytes:
    return data


class Coast:
    """A hub with the API, and two leaf nodes of its region `eu`, each with a key of its own and a site."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.key = folder, make_api_key().text
        self.authority = BusAuthority(folder / "authority")
        self.authority.add_region("eu")
        (self.leaf_port,) = free_ports(1)
        self.server = NatsServer(folder / "hub", authority=self.authority, leaf=LeafListener(self.leaf_port))
        self.leaves = {name: self._leaf(name) for name in ("leaf-1", "leaf-2")}
        self.sites: dict[str, NatsBus] = {}
        self._stack = AsyncExitStack()

    def _leaf(self, name: str) -> NatsServer:
        folder = self.folder / name
        folder.mkdir()
        own, system = folder / "leaf.creds", folder / "leaf-system.creds"
        for path, text in zip((own, system), self.authority.leaf_credentials("eu", name), strict=True):
            path.write_text(text)
        remote = LeafRemote(
            [f"nats-leaf://127.0.0.1:{self.leaf_port}"], own, system_credentials=system, region="eu", name=name
        )  # fmt: skip
        return NatsServer(folder, authority=self.authority, leaf=remote)

    async def __aenter__(self) -> Coast:
        self.server.folder.mkdir()
        for server in (self.server, *self.leaves.values()):
            self._stack.callback(server.kill)
            await asyncio.to_thread(server.start)
        await self.server.provision()
        self.bus = await self._kept(await self.server.connect(Role.COORDINATOR))
        await self.bus.serve(DOORS[Door.RESULT].wildcard(), _echo, group="coordinators")
        self.given = BusCredentials(self.authority, self.bus, self.server.url)
        info = HubInfo(name="hub", instance="one", bus_url=self.server.url)
        store = DirectoryStore(self.folder / "store")
        hub = Hub.on(self.bus, store, SYSTEM_CLOCK, credentials=self.given, info=info, quotas=QUOTAS)
        (self.folder / "key").write_text(self.key)
        await register_bootstrap(self.folder / "key", hub.buckets.keys, SYSTEM_CLOCK)
        watching = asyncio.create_task(hub.keys.watch())
        self._stack.callback(watching.cancel)
        await asyncio.wait_for(hub.keys.ready.wait(), WITHIN_S)
        self.url = str((await self._stack.enter_async_context(TestServer(application(hub, ROUTES)))).make_url(""))
        for name, server, region in (
            ("one", self.leaves["leaf-1"], "eu"), ("two", self.leaves["leaf-2"], "eu"), ("near", self.server, "hub"),
        ):  # fmt: skip
            key = KeyPair.create(KeyKind.USER)
            text = credentials(self.authority.participant_jwt("p", name, key.public, region=region), key)
            self.sites[name] = await self._kept(await NatsBus.connect(server.url, f"p.{name}", creds=text))
            await asyncio.wait_for(self.until_works(name), WITHIN_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _kept(self, bus: NatsBus) -> NatsBus:
        self._stack.push_async_callback(bus.close)
        return bus

    async def works(self, name: str) -> bool:
        """Whether a site's request is answered."""
        subject = DOORS[Door.RESULT].of(region="hub" if name == "near" else "eu", project="p", participant=name)
        try:
            return await self.sites[name].request(subject, b"x", timeout=2.0) == b"x"
        except HanseError as error:
            if error.code not in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
                raise
            return False

    async def until_works(self, name: str) -> None:
        while not await self.works(name):
            pass

    async def revoke(self, name: str, number: int = 1) -> list[str]:
        """As the operator does it, by the public key that `leaf-key` prints."""
        return await self.asks("eu", self.authority.leaf_key("eu", name, number))

    async def asks(self, region: str, key: str) -> list[str]:
        def ask() -> list[str]:
            with hanse.connect(self.url, api_key=self.key) as client:
                return client.revoke_leaf(region, key)

        return await asyncio.to_thread(ask)

    async def comes_in(self, name: str) -> list[bool]:
        """Whether the operator of a leaf node can connect to the region's account, and to the system's, with what is
        written there."""
        texts = [(self.folder / name / file).read_text() for file in ("leaf.creds", "leaf-system.creds")]
        return [await _connects(self.server.url, text) for text in texts]


async def _connects(url: str, creds: str) -> bool:
    try:
        client = await asyncio.wait_for(plain_client(url, creds, tls=None, connect_timeout=10), WITHIN_S)
    except nats.errors.Error as error:
        if "authorization" not in str(error).lower():
            raise
        return False
    await client.close()
    return True


@pytest.fixture
async def coast(tmp_path: Path) -> AsyncIterator[Coast]:
    async with Coast(tmp_path) as made:
        yield made


@pytest.mark.timeout(300)
@pytest.mark.control_inside
async def test_a_revoked_leaf_is_cut_off_and_cannot_return_and_costs_the_others_nothing(coast: Coast) -> None:
    assert await coast.comes_in("leaf-1") == [True, True]
    assert await coast.revoke("leaf-1") == ["leaf-2"]
    assert not await coast.works("one"), "its leaf node has no way to the hub any more"
    for name in ("two", "near"):
        await asyncio.wait_for(coast.until_works(name), WITHIN_S)
    assert [coast.sites[name]._connection.generation for name in ("two", "near")] == [0, 0]
    assert await coast.comes_in("leaf-1") == [False, False]
    await asyncio.to_thread(coast.leaves["leaf-1"].kill)
    await asyncio.to_thread(coast.leaves["leaf-1"].start)
    await coast.server.restart()
    for name in ("two", "near"):
        await asyncio.wait_for(coast.until_works(name), WITHIN_S)
    assert await coast.authority.leaves_of("eu", url=coast.server.url, timeout=WITHIN_S) == ["leaf-2"]
    assert await coast.comes_in("leaf-1") == [False, False]
    for text in coast.authority.leaf_credentials("eu", "leaf-1", 2):
        assert await _connects(coast.server.url, text), "its next key"
    told = [record async for record in _audit(coast.bus)]
    assert [(event.action, event.detail["region"]) for event in told] == [("leaf.revoke", "eu")]
    assert coast.authority.leaf_key("eu", "leaf-1") in told[0].subject


async def _audit(bus: NatsBus) -> AsyncIterator[AuditEvent]:
    assert AUDIT.stream is not None
    for record in await bus.snapshot(AUDIT.stream, AUDIT.of(project=HUB_AUDIT)):
        yield AuditEvent.decode(record.data)


@pytest.mark.timeout(300)
async def test_a_leafs_revocation_has_no_end(coast: Coast, monkeypatch: pytest.MonkeyPatch) -> None:
    await coast.revoke("leaf-1")
    await _years_later(coast, monkeypatch)
    assert await coast.comes_in("leaf-1") == [False, False]
    assert await coast.comes_in("leaf-2") == [True, True]


@pytest.mark.timeout(300)
@pytest.mark.control("test_a_leafs_revocation_has_no_end")
async def test_control_a_revocation_with_an_end_lets_the_leafs_operator_back_in(
    coast: Coast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As sites' are: their tokens last an hour, leaf nodes' do not end."""
    until = int(time.time()) + 1
    monkeypatch.setattr("hanse_coordinator.authority.FOR_GOOD", until)
    monkeypatch.setattr(claims, "FOR_GOOD", until)
    await coast.revoke("leaf-1")
    assert await coast.comes_in("leaf-1") == [False, False]
    await _years_later(coast, monkeypatch)
    assert (await coast.comes_in("leaf-1"))[0], "to its region's account"


async def _years_later(coast: Coast, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator starts, and has the servers hold what is needed then."""
    later = time.time() + 10 * 365 * 86_400
    assert later < FOR_GOOD
    monkeypatch.setattr(claims.time, "time", lambda: later)  # type: ignore[attr-defined]
    await coast.given.settle()
    # Something else is pushed, too, for claims that lack nothing are left as they are.
    await coast.authority.revoke(KeyPair.create(KeyKind.USER).public, url=coast.server.url, timeout=WITHIN_S)


@pytest.mark.timeout(300)
async def test_a_revoked_sites_neighbours_at_the_leaf_nodes_go_on(coast: Coast) -> None:
    """The servers take other claims of their account for each revocation."""
    for _ in range(2):
        await coast.given.revoke("eu", KeyPair.create(KeyKind.USER).public)
        for name in ("one", "two", "near"):
            await asyncio.wait_for(coast.until_works(name), WITHIN_S)
    assert [site._connection.generation for site in coast.sites.values()] == [0, 0, 0]


@pytest.mark.timeout(300)
@pytest.mark.control("test_a_revoked_sites_neighbours_at_the_leaf_nodes_go_on")
async def test_control_leaf_nodes_that_do_not_connect_anew_are_deaf_after_a_revocation(
    coast: Coast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nats-server 2.15.1. Where a later one passes this, `_connect_leaves_anew` can go."""

    async def nothing(*_: object) -> None:
        return

    monkeypatch.setattr(claims, "_connect_leaves_anew", nothing)
    await coast.given.revoke("eu", KeyPair.create(KeyKind.USER).public)
    assert [await coast.works(name) for name in ("one", "two", "one", "two")] == [False] * 4


def leaf_connections(coast: Coast) -> int:
    """How often leaf nodes have connected."""
    return (coast.server.folder / "log").read_text().count("Leafnode connection created")


@pytest.mark.timeout(300)
async def test_a_revocation_in_one_region_costs_leaf_nodes_of_another_nothing(coast: Coast) -> None:
    before = leaf_connections(coast)
    await coast.given.revoke("hub", KeyPair.create(KeyKind.USER).public)
    assert [await coast.works(name) for name in ("one", "two", "near")] == [True] * 3
    assert leaf_connections(coast) == before


@pytest.mark.timeout(300)
@pytest.mark.control("test_a_revocation_in_one_region_costs_leaf_nodes_of_another_nothing")
async def test_control_where_each_accounts_claims_hold_all_revocations_leaf_nodes_connect_anew_for_any(
    coast: Coast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "_of", lambda _name, revoked, _regions: dict(revoked))
    before = leaf_connections(coast)
    await coast.given.revoke("hub", KeyPair.create(KeyKind.USER).public)
    for name in ("one", "two"):
        await asyncio.wait_for(coast.until_works(name), WITHIN_S)
    assert leaf_connections(coast) > before


@pytest.mark.timeout(300)
@pytest.mark.no_attack("an operator's slip")
async def test_what_is_no_region_or_no_key_is_refused_by_name(coast: Coast, capsys: pytest.CaptureFixture[str]) -> None:
    key = coast.authority.leaf_key("eu", "leaf-1")
    with pytest.raises(HanseError, match="region: 'us' is not one of hub, eu"):
        await coast.asks("us", key)
    for wrong in (key[:-1] + ("A" if key[-1] != "A" else "B"), "../../keys", key[:-1]):
        with pytest.raises(HanseError, match="key"):
            await coast.asks("eu", wrong)
    given = ["--authority", str(coast.authority.folder), "--region", "eu", "--name", "leaf-1"]
    assert main(["leaf-key", *given]) == 0
    assert capsys.readouterr().out == f"{key}\n"
    assert await coast.works("one")
