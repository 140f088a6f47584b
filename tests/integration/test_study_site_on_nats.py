"""A site with genotypes on a real nats-server and a real object store: steps side by side, small answers on the bus."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hanse_datapod.agent.loop import Agent
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.outbox import Outbox, verify_log
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.bus.jwt import credentials
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import Outcome, Result, Task, TaskKind
from hanse_fabric.names import derive_id
from hanse_fabric.subjects import RESULT, TASK, UPDATE, Role
from hanse_fabric.tensors.file import decode_tensors
from hanse_schemas.schema import GenotypesSchema
from hanse_schemas.study import Study
from hanse_site import SiteLink, load_identity
from hanse_site.identity import BUS_CREDS, RECORD, SIGNING_KEY, SiteRecord
from hub_doors import hub_doors
from own_worker import OwnWorker
from servers import NatsServer

COHORT = Path(__file__).parents[1] / "data" / "hapmap1" / "client1" / "hapmap1_100_1"
PROJECT, RUN = "genotypes", "c" * 12


def task(step: str, function: str = "open") -> Task:
    now = datetime.now(UTC)
    config = {"study": Study(test="chi_square").model_dump(mode="json"), "step": function, "settings": {}}
    return Task(
        id=derive_id(RUN, step), project=PROJECT, run=RUN, step=step, participant="north",
        workflow="association_study", kind=TaskKind.STUDY, round=0, config=config, seed=0, peers=3, issued_at=now,
        deadline=now + timedelta(seconds=120),
    )  # fmt: skip


@pytest.fixture
async def link(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[SiteLink]:
    home = tmp_path / "site"
    home.mkdir()
    SigningKey.create().save(home / SIGNING_KEY)
    key = KeyPair.create(KeyKind.USER)
    token = nats_server.authority.participant_jwt(PROJECT, "north", key.public)
    (home / BUS_CREDS).write_text(credentials(token, key))
    record = SiteRecord(
        hub="http://hub.example", hub_name="", project=PROJECT, participant="north", bus_url=nats_server.url,
        api_key="", data_schema=GenotypesSchema(), token_id="t", joined_at=datetime.now(UTC),
    )  # fmt: skip
    (home / RECORD).write_bytes(record.encode())
    identity = load_identity(home)
    assert identity is not None
    coordinator, aggregator = [await nats_server.connect(role) for role in (Role.COORDINATOR, Role.AGGREGATOR)]
    async with hub_doors(coordinator, aggregator, keys={"north": identity.signing_key.public_bytes}):
        made = await SiteLink.connect(identity)
        yield made
        await made.close()
    await coordinator.close()
    await aggregator.close()


async def results(hub: NatsBus, count: int) -> dict[str, Result]:
    found: dict[str, Result] = {}
    async with asyncio.timeout(120), hub.follow(RESULT.stream, RESULT.wildcard(project=PROJECT, run=RUN)) as records:
        async for record in records:
            result = Result.decode(record.data)
            found[result.step] = result
            if len(found) == count:
                break
    return found


async def test_a_site_answers_open_steps_side_by_side_and_refuses_an_unmasked_sum(
    nats_server: NatsServer, link: SiteLink
) -> None:
    home = link.identity.home
    hub = await nats_server.connect(Role.COORDINATOR)
    aggregator = await nats_server.connect(Role.AGGREGATOR)
    worker = OwnWorker(DataSettings(train=COHORT))
    journal, outbox = TaskJournal(home), Outbox(home)
    agent = Agent(
        link, worker, home=home, policy=Policy(workflows=("association_study",)), schema=GenotypesSchema(),
        journal=journal, outbox=outbox,
    )  # fmt: skip
    for given in (task("open"), task("open-again"), task("c0000-counts", "counts")):
        subject = TASK.of(project=PROJECT, participant="north", run=RUN, step=given.step)
        await hub.publish(subject, given.encode())
    running = asyncio.create_task(agent.run())
    try:
        found = await results(hub, 3)
        assert found["c0000-counts"].outcome is Outcome.REFUSED
        assert "no policy allows it" in found["c0000-counts"].reason
        opened = found["open"].update
        assert opened is not None
        assert found["open-again"].update == opened
        subject = UPDATE.of(project=PROJECT, run=RUN, participant="north", digest=opened.digest)
        record = await aggregator.last(UPDATE.stream, subject)
        assert record is not None
        assert "position" in decode_tensors(record.data)[1]
        assert (home / "studies" / RUN).is_dir()

        subject = TASK.of(project=PROJECT, participant="north", run=RUN, step="forget")
        await hub.publish(subject, task("forget", "forget").encode())
        async with asyncio.timeout(60):
            while (home / "studies" / RUN).exists():  # noqa: ASYNC110 - a folder's end has no event
                await asyncio.sleep(0.02)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await worker.close()
        journal.close()
        outbox.close()
        await hub.close()
        await aggregator.close()
    assert verify_log(home).broken is None
