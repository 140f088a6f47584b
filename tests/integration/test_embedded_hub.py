"""The embedded hub: real servers and services as processes, one hub at a time, the same state at every start."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import hanse
from hanse.embedded.hub import EmbeddedHub
from hanse.embedded.nursery import SERVICES, NurseryKind
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.issuing import issued_at
from hanse_fabric.bus.jwt import credentials, read_credentials, user_jwt
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import ErrorCode, HanseError

PROCESSES = {"nats-server", "object-store", "model-registry", "coordinator", "aggregator", "compensator"}


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture(scope="module", autouse=True)
def services(services_nursery: NurseryKind) -> Iterator[None]:
    """Hubs fork their services in one process, which is else each hub's own: so is that of the one that cannot
    start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmbeddedHub, "services_from", services_nursery)
        yield


async def test_the_embedded_hub_starts_once_per_folder_keeps_its_secrets_and_finds_its_state_again(
    tmp_path: Path,
) -> None:
    """A later start may end the tokens that release 0.1.0 gave; and a killed service is started again at the same
    place."""
    async with EmbeddedHub(tmp_path / "hub") as hub:
        pids = hub.supervisor.pids()
        assert set(pids) == PROCESSES
        async with hanse.aconnect(hub.url, api_key=hub.api_key) as client:
            assert (await client.info())["version"] == hanse.__version__
            status = await client.status()
            assert (status["bus_ready"], status["store_ready"]) == (True, True)
            await client.projects.create("triage", schema={"kind": "open"})
            await (await client.projects.get("triage")).invite("north")
        with pytest.raises(HanseError, match=f"process {os.getpid()}") as caught:
            await EmbeddedHub(tmp_path / "hub").__aenter__()
        assert caught.value.code is ErrorCode.LOCKED
        assert hub.supervisor.pids() == pids, "the refused hub left the first one alone"
        root = hub.state.root
        assert stat.S_IMODE(root.stat().st_mode) == 0o700
        secrets = [hub.state.key_file, root / "registry.key", root / "compensator.key", *hub.state.authority.rglob("*")]
        exposed = [path for path in secrets if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077]
        assert exposed == []
        former = token_of_release_0_1_0(hub)
        assert await comes_in(hub, former)
        own = (hub.state.authority / "coordinator.creds").read_text()
        first = (hub.url, hub.api_key)
    assert all(gone(pid) for pid in pids.values())

    await asyncio.sleep(max(0.0, issued_at(read_credentials(former)[0]) + 2 - time.time()))  # whole seconds count
    for ends in (True, False):  # and so it stays
        async with EmbeddedHub(tmp_path / "hub", end_former_tokens=ends) as hub:
            assert (hub.url, hub.api_key) == first
            assert not await comes_in(hub, former)
            assert not await comes_in(hub, own), "services' credentials of before, too"
            async with hanse.aconnect(hub.url, api_key=hub.api_key, patience=60) as client:
                assert (await client.status())["bus_ready"]
                assert [view.name for view in await client.projects.list()] == ["triage"]
                audit = await (await client.projects.get("triage")).audit()
                assert [entry["action"] for entry in audit] == ["project.create", "participant.invite"]
                if not ends:
                    await check_killed(hub, client)
            key = KeyPair.create(KeyKind.USER)
            token = BusAuthority(hub.state.authority).participant_jwt("p", "new", key.public)
            await (await NatsBus.connect(hub.bus_url, "p.new", creds=credentials(token, key), timeout=60)).close()
            again = hub.supervisor.pids()
        assert all(gone(pid) for pid in again.values())


def token_of_release_0_1_0(hub: EmbeddedHub) -> str:
    """A site's credentials, as that release gave them."""
    key = KeyPair.create(KeyKind.USER)
    account = KeyPair.from_seed((hub.state.authority / "account.seed").read_text())
    granted = {"publish": ["hanse.v1.result.p.old.>"], "subscribe": ["_INBOX.p.old.>"]}
    return credentials(user_jwt(account, key.public, "p/old", granted), key)


async def comes_in(hub: EmbeddedHub, creds: str) -> bool:
    try:
        await (await NatsBus.connect(hub.bus_url, "p.old", creds=creds, timeout=60)).close()
    except HanseError as error:
        if error.code is not ErrorCode.UNAUTHENTICATED or "expired, or were revoked" not in error.hint:
            raise  # it is not what a site of before is to be told
        return False
    return True


async def check_killed(hub: EmbeddedHub, client: hanse.AsyncHub) -> None:
    for name in ("coordinator", "nats-server"):
        os.kill(hub.supervisor.pids()[name], signal.SIGKILL)
        async with asyncio.timeout(60):
            while hub.supervisor.pids().get(name) is None:  # noqa: ASYNC110 - a process's start has no event
                await asyncio.sleep(0.02)
        assert [view.name for view in await client.projects.list()] == ["triage"]


async def test_a_hub_that_cannot_start_says_why_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        with monkeypatch.context() as patch:
            patch.setattr(EmbeddedHub, "services_from", SERVICES)
            with pytest.raises(HanseError, match="another program listens on it") as caught:
                await EmbeddedHub(tmp_path / "hub", http_port=port).__aenter__()
    assert str(port) in caught.value.message
    left = {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert all(gone(pid) for pid in left)
    async with EmbeddedHub(tmp_path / "hub", http_port=None) as hub:
        assert hub.url.endswith(f":{port}")
