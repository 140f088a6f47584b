"""A site on a real nats-server with its own credentials: served, cut off by SIGKILL of the server, and revoked."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.agent.loop import Agent
from hanse_datapod.data.settings import Split
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.outbox import Outbox, verify_log
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import TRAINING_KINDS, DataSummary, OnProgress, WorkOutcome, WorkRequest
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Presence, Result, Task, TaskKind
from hanse_fabric.names import derive_id
from hanse_fabric.subjects import PRESENCE, RESULT, TASK, UPDATE, Role
from hanse_operations.bus.provision import provision
from hanse_operations.servers.nats import nats_program
from hanse_operations.servers.program import free_ports
from hanse_schemas.schema import DataSchema, OpenSchema
from hanse_site import SiteIdentity, SiteLink, load_identity
from hanse_site.identity import BUS_CREDS, RECORD, SIGNING_KEY, SiteRecord
from hub_doors import hub_doors

RUN = "a" * 12
KEYS: dict[str, bytes] = {}
"""Of the sites that are enrolled."""


class Server:
    """A nats-server of this test's own, which may be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.authority = BusAuthority(folder / "authority")
        self.port = free_ports(1)[0]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._program = nats_program(folder, self.authority, port=self.port)
        self._log = (folder / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(self._program.argv, stdout=self._log, stderr=self._log)
        end = time.monotonic() + 60
        while not self._program.answers():
            assert time.monotonic() < end
            time.sleep(0.02)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path)
    await asyncio.to_thread(made.start)
    creds = made.authority.service_credentials(Role.PROVISIONER).read_text()
    await provision(made.url, creds)
    yield made
    made.kill()


@pytest.fixture
async def hub(server: Server) -> AsyncIterator[NatsBus]:
    """The coordinator's connection."""
    bus = await NatsBus.connect(
        server.url, "coordinator", creds=server.authority.service_credentials(Role.COORDINATOR),
        inbox_prefix="_INBOX.coordinator",
    )  # fmt: skip
    aggregator = await NatsBus.connect(
        server.url, "aggregator", creds=server.authority.service_credentials(Role.AGGREGATOR)
    )
    async with hub_doors(bus, aggregator, keys=KEYS):
        yield bus
    await aggregator.close()
    await bus.close()


class Doubling:
    """A worker whose update is the model twice."""

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.kinds = TRAINING_KINDS
        self.device = "cpu"

    def require(self, config: Mapping[str, Any]) -> None:
        """Any device does."""

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        self.rounds.append(request.round)
        assert request.model is None
        request.output.write_bytes(f"{request.seed}".encode() * 2)
        return WorkOutcome(request.output, 5, {"loss": 1.0}, 0.0)

    async def check_data(self, schema: DataSchema, split: Split = "shuffled") -> DataSummary:
        return DataSummary(5, 1, "0" * 64)

    async def rest(self) -> None:
        """Nothing to give back."""

    async def close(self) -> None:
        """Nothing to stop."""


class Running:
    """An agent at work for one enrolled home."""

    def __init__(self, server: Server, home: Path) -> None:
        home.mkdir()
        SigningKey.create().save(home / SIGNING_KEY)
        self.key = KeyPair.create(KeyKind.USER)
        token = server.authority.participant_jwt("triage", "north", self.key.public)
        (home / BUS_CREDS).write_text(credentials(token, self.key))
        record = SiteRecord(
            hub="http://hub.example", hub_name="", project="triage", participant="north", bus_url=server.url,
            api_key="", data_schema=OpenSchema(), token_id="t", joined_at=datetime.now(UTC),
        )  # fmt: skip
        (home / RECORD).write_bytes(record.encode())
        self.home = home
        self.worker = Doubling()
        found = load_identity(home)
        assert found is not None
        self.identity: SiteIdentity = found
        KEYS["north"] = found.signing_key.public_bytes

    async def __aenter__(self) -> Running:
        self.link = await SiteLink.connect(self.identity)
        self.journal, self.outbox = TaskJournal(self.home), Outbox(self.home)
        agent = Agent(
            self.link, self.worker, home=self.home, policy=Policy(), schema=OpenSchema(), journal=self.journal,
            outbox=self.outbox,
        )  # fmt: skip
        self.agent = asyncio.create_task(agent.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.agent.cancel()
        await asyncio.gather(self.agent, return_exceptions=True)
        await self.link.close()
        self.journal.close()
        self.outbox.close()


def task(number: int) -> Task:
    now = datetime.now(UTC)
    return Task(
        id=derive_id(RUN, str(number)), project="triage", run=RUN, step=f"r{number}-train", participant="north",
        workflow="federated_averaging", kind=TaskKind.TRAIN, round=number, config={}, seed=number, peers=2,
        issued_at=now, deadline=now + timedelta(hours=2),
    )  # fmt: skip


async def play(hub: NatsBus, numbers: range) -> list[Result]:
    """Rounds as a coordinator plays them: open a step, wait for its answer, close it."""
    found = []
    pattern = RESULT.wildcard(project="triage", run=RUN)
    async with hub.follow(RESULT.stream, pattern) as records, asyncio.timeout(60):
        for number in numbers:
            given = task(number)
            subject = TASK.of(project="triage", participant="north", run=RUN, step=given.step)
            await hub.publish(subject, given.encode())
            async for record in records:
                result = Result.decode(record.data)
                if result.task == given.id:
                    found.append(result)
                    break
            await hub.purge(TASK.stream, subject)
    return found


async def test_a_site_with_its_own_credentials_does_rounds(server: Server, hub: NatsBus, tmp_path: Path) -> None:
    async with Running(server, tmp_path / "site") as site:
        results = await play(hub, range(1, 6))
        assert len(results) == 5
        assert site.worker.rounds == [1, 2, 3, 4, 5]
        key = site.identity.signing_key.verify_key
        for result in results:
            key.verify(result.signature, result.canonical(without=frozenset({"signature"})), what="result")
        subject = PRESENCE.of(project="triage", participant="north")
        async with asyncio.timeout(60), hub.follow(PRESENCE.stream, subject) as signs:
            assert Presence.decode((await anext(signs)).data).participant == "north"
        aggregator = await NatsBus.connect(
            server.url, "aggregator", creds=server.authority.service_credentials(Role.AGGREGATOR),
            inbox_prefix="_INBOX.aggregator",
        )  # fmt: skip
        ref = results[-1].update
        assert ref is not None
        update = await aggregator.last(
            UPDATE.stream, UPDATE.of(project="triage", run=RUN, participant="north", digest=ref.digest)
        )
        assert update is not None
        assert update.data == b"55"
        await aggregator.close()
    assert verify_log(site.home).broken is None


async def test_the_server_killed_and_restarted_costs_nothing_but_time(
    server: Server, hub: NatsBus, tmp_path: Path
) -> None:
    async with Running(server, tmp_path / "site") as site:
        await play(hub, range(1, 3))
        for number in (3, 4):
            server.kill()
            rounds = asyncio.create_task(play(hub, range(number * 10, number * 10 + 2)))
            await asyncio.to_thread(server.start)
            assert len(await rounds) == 2
        assert site.worker.rounds == [1, 2, 30, 31, 40, 41]


async def test_a_revoked_site_stops_and_says_why(server: Server, hub: NatsBus, tmp_path: Path) -> None:
    async with Running(server, tmp_path / "site") as site:
        await play(hub, range(1, 2))
        await server.authority.revoke(site.key.public, url=server.url)
        await asyncio.wait({site.agent}, timeout=30)
        with pytest.raises(ExceptionGroup):
            site.agent.result()
    with pytest.raises(HanseError) as caught:
        await SiteLink.connect(site.identity)
    assert caught.value.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.FORBIDDEN)
