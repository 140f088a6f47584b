"""The coordinator as a deployed process on a real nats-server: enrolling, revoking, replicas, mutual TLS."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from certificates import ThrowawayCa
from forked_services import ForkedService, forked_services
from hanse.embedded.nursery import NurseryKind
from hanse_fabric import tls
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.messages import Presence
from hanse_fabric.subjects import Door, Role
from hanse_operations.bus.server import ServerTls
from hanse_operations.servers.program import free_ports
from hanse_site.joining import proved
from servers import NatsServer

IDLE_MIB = 58
"""Of the memory that no other process can use. What it maps of library files is left out: how much of these is mapped
depends on how the machine's cache came to hold them (4 MiB more after a fresh installation)."""
JOB = {"rounds": 1, "model": {"name": "mlp"}, "participants": {"minimum": 2}}


@dataclass
class Replica:
    """A running coordinator."""

    process: subprocess.Popen[bytes] | ForkedService
    url: str
    health: str
    log: Path

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


Start = Callable[..., Replica]


@pytest.fixture(scope="module")
def nats_server(new_nats: Callable[..., NatsServer]) -> NatsServer:
    """A hub's bus of this module's own: coordinators read all of it."""
    return new_nats()


@pytest.fixture(scope="module")
def api_key() -> str:
    return make_api_key().text


@pytest.fixture(scope="module")
def start(services_nursery: NurseryKind, tmp_path_factory: pytest.TempPathFactory, api_key: str) -> Iterator[Start]:
    """Starts a replica on a bus, forked or as a program; the test waits until it is ready."""
    started: list[subprocess.Popen[bytes] | ForkedService] = []
    folder = tmp_path_factory.mktemp("coordinators")
    key_file = folder / "key"
    key_file.write_text(api_key)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}

    def begin(
        bus: NatsServer, name: str = "one", scheme: str = "http", program: bool = False, **settings: Path | str
    ) -> Replica:
        http, health = free_ports(2)
        own = {
            "HANSE_BUS_URL": bus.url,
            "HANSE_BUS_CREDS": bus.authority.service_credentials(Role.COORDINATOR),
            "HANSE_BUS_AUTHORITY": bus.authority.folder,
            "HANSE_STORE_URL": f"file://{folder / 'store'}",
            "HANSE_BOOTSTRAP_KEY_FILE": key_file,
            "HANSE_HTTP_PORT": http,
            "HANSE_HEALTH_PORT": health,
            "HANSE_INSTANCE": name,
        } | settings
        environment = clean | {key: str(value) for key, value in own.items()}
        log = folder / f"{len(started)}.log"
        process: subprocess.Popen[bytes] | ForkedService
        if program:
            argv = [sys.executable, "-m", "hanse_coordinator"]
            with log.open("ab") as file:
                process = subprocess.Popen(argv, env=environment, stderr=file)
        else:
            process = services.start("hanse_coordinator", environment, log)
        started.append(process)
        return Replica(process, f"{scheme}://127.0.0.1:{http}", f"{scheme}://127.0.0.1:{health}", log)

    with forked_services(services_nursery) as services:
        yield begin
        for process in started:
            process.kill()
            process.wait(60)


@pytest.fixture(scope="module")
def pair(nats_server: NatsServer, start: Start) -> tuple[Replica, Replica]:
    """Two replicas of one hub, for the tests up to that which stops the first."""
    return start(nats_server, "one"), start(nats_server, "two")


async def ready(replica: Replica, client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while True:
            assert replica.process.poll() is None, replica.log.read_text()[-2000:]
            try:
                if (await client.get(f"{replica.health}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


def client_of(api_key: str, **more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(headers={"Authorization": f"Bearer {api_key}"}, timeout=60, trust_env=False, **more)


async def invite(client: httpx.AsyncClient, url: str, project: str) -> str:
    schema = {"kind": "open"}
    (await client.post(f"{url}/v1/projects", json={"name": project, "schema": schema})).raise_for_status()
    answer = await client.post(f"{url}/v1/projects/{project}/invitations", json={"participant": "north"})
    return str(answer.raise_for_status().json()["token"])


async def join(
    client: httpx.AsyncClient, url: str, token: str, bus_key: KeyPair, signing: SigningKey | None = None
) -> httpx.Response:
    """Join as a site does: the hub's challenge, and its answer to the proof."""
    given = (await client.post(f"{url}/v1/join/challenge", json={"token": token})).raise_for_status().json()
    body = proved(token, given["challenge"], signing or SigningKey.create(), bus_key, datetime.now(UTC))
    return await client.post(f"{url}/v1/join", json=body)


async def say_hello(bus: NatsBus, project: str, key: SigningKey) -> None:
    presence = Presence(project=project, participant="north", version="0.1.0", sent_at=datetime.now(UTC))
    await Doors(bus, project, "north", key).ask(Door.PRESENCE, presence.encode(), timeout=20)


async def test_a_site_joins_connects_is_seen_and_is_cut_off_when_revoked(
    pair: tuple[Replica, Replica], api_key: str
) -> None:
    replica = pair[0]
    async with client_of(api_key) as client:
        await ready(replica, client)
        project, key, signing = "joins-and-leaves", KeyPair.create(KeyKind.USER), SigningKey.create()
        token = await invite(client, replica.url, project)

        async def joins(key: KeyPair) -> tuple[dict[str, str], NatsBus]:
            joined = (await join(client, replica.url, token, key, signing)).raise_for_status().json()
            creds, inbox = credentials(joined["bus_jwt"], key), f"_INBOX.{project}.north"
            return joined, await NatsBus.connect(joined["bus_url"], "site", creds=creds, inbox_prefix=inbox)

        _, former = await joins(KeyPair.create(KeyKind.USER))
        joined, site = await joins(key)
        try:
            with pytest.raises(HanseError):
                await say_hello(former, project, signing)  # it joined again with another bus key, and this one is void
            await say_hello(site, project, signing)
            member = f"{replica.url}/v1/projects/{project}/participants/north"
            async with asyncio.timeout(60):
                while not (seen := (await client.get(member)).json())["online"]:  # noqa: ASYNC110 - HTTP has no event
                    await asyncio.sleep(0.02)
            assert abs(seen["clock_difference"]) < 60
            (await client.post(f"{member}/revoke")).raise_for_status()
            with pytest.raises(HanseError):
                await say_hello(site, project, signing)
        finally:
            await former.close()
            await site.close()
        with pytest.raises(HanseError):
            await NatsBus.connect(joined["bus_url"], "site", creds=credentials(joined["bus_jwt"], key))
        refused = await client.get(member, headers={"Authorization": f"Bearer {joined['api_key']}"})
        assert refused.status_code == 401


async def test_one_of_two_replicas_racing_for_one_token_wins_and_both_know_the_keys(
    pair: tuple[Replica, Replica], api_key: str
) -> None:
    async with client_of(api_key) as client:
        await asyncio.gather(*(ready(replica, client) for replica in pair))
        token = await invite(client, pair[0].url, "raced-for")
        answers = await asyncio.gather(
            *(join(client, pair[place % 2].url, token, KeyPair.create(KeyKind.USER)) for place in range(6))
        )
        assert sum(answer.status_code == 200 for answer in answers) == 1
        (key,) = [answer.json()["api_key"] for answer in answers if answer.status_code == 200]
        for replica in pair:
            answer = await client.get(
                f"{replica.url}/v1/projects/raced-for/participants/north", headers={"Authorization": f"Bearer {key}"}
            )
            assert answer.status_code == 200


async def test_sigterm_ends_a_watched_coordinator_in_order_and_another_carries_the_watch_on(
    pair: tuple[Replica, Replica], api_key: str
) -> None:
    first, second = pair
    async with client_of(api_key) as client:
        await asyncio.gather(ready(first, client), ready(second, client))
        await invite(client, first.url, "watched")
        runs = "/v1/projects/watched/runs"
        run = (await client.post(f"{first.url}{runs}", json={"job": JOB})).raise_for_status().json()["run"]
        async with client.stream("GET", f"{first.url}{runs}/{run}/events") as watching:
            lines = watching.aiter_lines()
            number = (await anext(lines)).removeprefix("id: ")
            assert await asyncio.to_thread(first.stop) == 0
            async for _ in lines:
                pass
        (await client.post(f"{second.url}{runs}/{run}/cancel")).raise_for_status()
        again = await client.get(f"{second.url}{runs}/{run}/events", headers={"Last-Event-ID": number})
        assert f"id: {number}\n" not in again.text
        assert '"state":"cancelled"' in again.text


async def test_every_link_may_be_mutual_tls(
    new_nats: Callable[..., NatsServer], start: Start, api_key: str, tmp_path: Path
) -> None:
    ca = ThrowawayCa(tmp_path)
    server, own, ours = ca.issue("server"), ca.issue("coordinator"), ca.issue("owner")
    nats = new_nats(tls=ServerTls(server.cert, server.key, ca.cert), bare=True)
    with_cert = tls.client_context(ca.cert, ours.cert, ours.key)
    await nats.provision(with_cert)
    replica = start(
        nats, scheme="https", HANSE_STORE_URL=f"file://{tmp_path / 'store'}",
        HANSE_BUS_CA=ca.cert, HANSE_BUS_CERT=own.cert, HANSE_BUS_KEY=own.key,
        HANSE_TLS_CERT=server.cert, HANSE_TLS_KEY=server.key, HANSE_TLS_CLIENT_CA=ca.cert,
    )  # fmt: skip
    async with client_of(api_key, verify=with_cert) as client:
        await ready(replica, client)
        key = KeyPair.create(KeyKind.USER)
        token = await invite(client, replica.url, "sealed")
        signing = SigningKey.create()
        joined = (await join(client, replica.url, token, key, signing)).raise_for_status().json()
        assert joined["bus_ca"] == ca.cert.read_text()
        site = await NatsBus.connect(
            joined["bus_url"],
            "site",
            creds=credentials(joined["bus_jwt"], key),
            inbox_prefix="_INBOX.sealed.north",
            tls=with_cert,
        )
        await say_hello(site, "sealed", signing)
        await site.close()
        revoked = await client.post(f"{replica.url}/v1/projects/sealed/participants/north/revoke")
        assert revoked.status_code == 200, revoked.text
    async with client_of(api_key, verify=tls.client_context(ca.cert)) as stranger:
        with pytest.raises(httpx.TransportError):
            await stranger.get(f"{replica.url}/v1/hub")


def own_memory(pid: int) -> int:
    """Bytes of memory of a process that are not of a file."""
    return sum(maps.anonymous for maps in psutil.Process(pid).memory_maps(grouped=True))


async def test_the_coordinator_at_rest_takes_little_memory(nats_server: NatsServer, start: Start, api_key: str) -> None:
    taken = []
    async with client_of(api_key) as client:
        for name in ("one", "two", "three"):  # one start in ten takes 5 MiB more, by where its libraries come to lie
            replica = start(nats_server, name, program=True)
            await ready(replica, client)
            (await client.get(f"{replica.url}/v1/status")).raise_for_status()
            taken.append(own_memory(replica.process.pid) / 2**20)
            if taken[-1] < IDLE_MIB:
                break
    assert min(taken) < IDLE_MIB


async def test_a_taken_port_ends_it_with_a_line_that_says_so(nats_server: NatsServer, start: Start) -> None:
    other = start(nats_server, HANSE_HTTP_PORT=str(nats_server.port))
    assert other.process.wait(60) == 10
    assert "HANSE_HTTP_PORT" in other.log.read_text()
