"""The model registry as a deployed process on real servers: two replicas, one killed, and its memory at rest."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from forked_services import ForkedService, ForkedServices, forked_services
from hanse.embedded.nursery import NurseryKind
from hanse.verification import verify_model
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Lineage, ObjectRef, PublishModel, RegistryReply, RegistryRequest, Stage
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.subjects import PUBLISH_MODEL, REGISTRY, Role
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_operations.servers.nats import nats_program
from hanse_operations.servers.program import free_ports
from hanse_operations.servers.seaweedfs import BUCKET, store_keys
from servers import stand_ready

PROJECT = "triage"


class Weed(Protocol):
    folder: Path

    @property
    def url(self) -> str: ...


class Bus(Protocol):
    url: str
    authority: BusAuthority


class NatsServer:
    """A nats-server of this module's own."""

    def __init__(self, folder: Path) -> None:
        self.authority = BusAuthority(folder / "authority")
        port = free_ports(1)[0]
        self.url = f"nats://127.0.0.1:{port}"
        program = nats_program(folder, self.authority, port=port)
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(program.argv, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while not program.answers():
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    made = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(stand_ready(made.url, made.authority))
    yield made
    made.process.kill()
    made.process.wait(60)


@dataclass
class Start:
    """Starts replicas, as programs or forked, each with the address of its health."""

    environment: dict[str, str]
    log: Path
    services: ForkedServices
    programs: list[subprocess.Popen[str]] = field(default_factory=list)

    def program(self) -> tuple[subprocess.Popen[str], str]:
        port = free_ports(1)[0]
        process = subprocess.Popen(
            [sys.executable, "-m", "hanse_model_registry"],
            env=self.environment | {"HANSE_HEALTH_PORT": str(port)}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.programs.append(process)
        return process, f"http://127.0.0.1:{port}"

    def forked(self) -> ForkedService:
        environment = self.environment | {"HANSE_HEALTH_PORT": str(free_ports(1)[0])}
        return self.services.start("hanse_model_registry", environment, self.log)


@pytest.fixture
def start(services_nursery: NurseryKind, server: NatsServer, weed: Weed, tmp_path: Path) -> Iterator[Start]:
    """Ends what it has started."""
    pair = store_keys(weed.folder)["model-registry"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")} | {
        "HANSE_BUS_URL": server.url,
        "HANSE_BUS_CREDS": str(server.authority.service_credentials(Role.MODEL_REGISTRY)),
        "HANSE_STORE_URL": weed.url,
        "HANSE_STORE_ACCESS_KEY": pair.access_key,
        "HANSE_STORE_SECRET_KEY": pair.secret_key,
        "HANSE_STORE_BUCKET": BUCKET,
        "HANSE_REGISTRY_KEY": str(tmp_path / "registry.pem"),
        "HANSE_REGISTRY_KEEP": "2",
        "HANSE_REGISTRY_SWEEP": "0.05",
    }

    with forked_services(services_nursery) as services:
        made = Start(environment, tmp_path / "forked.log", services)
        yield made
    for process in made.programs:
        process.kill()
        process.communicate(timeout=60)


@pytest.fixture
async def coordinator(server: NatsServer) -> AsyncIterator[NatsBus]:
    creds = server.authority.service_credentials(Role.COORDINATOR)
    bus = await NatsBus.connect(server.url, "coordinator", creds=creds)
    yield bus
    await bus.close()


async def publish(bus: NatsBus, number: int, model: ObjectRef | None = None) -> RegistryReply:
    request = PublishModel(
        project=PROJECT,
        model=model or ref_of_bytes(f"model {number}".encode(), inline=True),
        architecture={"name": "linear"},
        lineage=Lineage(
            run="abcdefghijkl", round=number, workflow="federated_averaging", participants=("north",), examples=1,
            strategy={}, seed=1,
        ),
    )  # fmt: skip
    return RegistryReply.decode(await bus.request(PUBLISH_MODEL.of(project=PROJECT), request.encode(), timeout=60))


async def ask(bus: NatsBus, **what: Any) -> RegistryReply:
    request = RegistryRequest(project=PROJECT, actor="key:owner", **what)
    return RegistryReply.decode(await bus.request(REGISTRY.of(project=PROJECT), request.encode(), timeout=60))


def health(address: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/readyz", timeout=60) as response:  # noqa: S310 - our own loopback
        body: dict[str, Any] = json.load(response)
    return body


async def test_replicas_share_one_numbering_and_a_killed_one_is_not_missed(
    start: Start, coordinator: NatsBus, tmp_path: Path
) -> None:
    first, (second, address) = start.forked(), start.program()
    made = await asyncio.gather(*(publish(coordinator, number) for number in range(1, 9)))
    assert sorted(reply.version.version for reply in made if reply.version) == list(range(1, 9))
    first.kill()
    first.wait(60)
    again = await publish(coordinator, 8)
    assert again.version == made[7].version
    assert again.version is not None
    promoted = await ask(coordinator, action="promote", version=again.version.version, stage=Stage.PRODUCTION)
    assert promoted.version is not None, promoted.message
    linked = await ask(coordinator, action="link", version=again.version.version)
    path = tmp_path / "model"
    with await asyncio.to_thread(urllib.request.urlopen, linked.url, timeout=60) as response:
        path.write_bytes(response.read())
    trusted = SigningKey.load(tmp_path / "registry.pem").public_bytes
    verify_model(path, promoted.version, trusted)
    assert (await ask(coordinator, action="delete", version=again.version.version)).code == "conflict"

    assert (await asyncio.to_thread(health, address))["ready"]
    resident = psutil.Process(second.pid).memory_info().rss / 2**20
    print(f"model registry at rest: {resident:.1f} MiB")
    assert resident < 80
    second.terminate()
    _, log = await asyncio.to_thread(second.communicate, timeout=60)
    assert second.returncode == 0, log
    assert '"stopped"' in log


async def test_a_model_that_was_altered_in_the_store_after_its_reduction_is_not_signed(
    start: Start, coordinator: NatsBus, weed: Weed
) -> None:
    pair = store_keys(weed.folder)["aggregator"]
    store = S3Store(weed.url, pair.access_key, pair.secret_key, BUCKET)
    key = f"models/{PROJECT}/abcdefghijkl/r77-reduce/model"
    data = random.Random(77).randbytes(LEAF_BYTES + 1000)
    altered = bytearray(data)
    altered[LEAF_BYTES + 500] ^= 1
    start.forked()
    try:
        await asyncio.to_thread(store.put, key, altered)
        refused = await publish(coordinator, 77, ref_of_bytes(data, key=key))
        assert (refused.version, refused.code) == (None, "tampered")
        assert f"{key}: leaf 1 " in refused.message
        await asyncio.to_thread(store.put, key, data)
        assert (await publish(coordinator, 77, ref_of_bytes(data, key=key))).version is not None
    finally:
        store.close()
