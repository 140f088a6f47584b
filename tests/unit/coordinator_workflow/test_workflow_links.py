"""Presigned links: what a participant's open task entitles it to, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hanse_coordinator.links import LinkServer
from hanse_coordinator.quotas import ProjectQuotas, Quotas
from hanse_coordinator.records import Buckets
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.messages import LinkReply, LinkRequest, ObjectRef, Task, TaskKind
from hanse_fabric.messages.uploads import UploadStep
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.subjects import LINK, TASK
from masked_sites import MaskedSite

PROJECT, RUN = "triage", "run000000001"
PUT, BEGIN = ObjectRef(digest="a" * 64, size=1_000_000), UploadStep(digests=("a" * 64,))
MODEL = f"models/{PROJECT}/{RUN}/r1-reduce/model"


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
async def server(bus: MemoryBus, tmp_path: Path) -> LinkServer:
    store, buckets, now = DirectoryStore(tmp_path), Buckets.on(bus), SYSTEM_CLOCK.now()
    record = MaskedSite("north", PROJECT).record()
    await buckets.participants.create(record, project=PROJECT, participant="north")
    task = Task(
        id="0" * 32, project=PROJECT, run=RUN, step="r2-train", participant="north", workflow="federated_averaging",
        kind=TaskKind.TRAIN, round=2, config={}, seed=1, peers=2, issued_at=now, deadline=now + timedelta(hours=1),
        model=ObjectRef(digest="b" * 64, size=1_000_000, key=MODEL),
    )  # fmt: skip
    subject = TASK.of(project=PROJECT, participant="north", run=RUN, step="r2-train")
    await bus.publish(subject, task.encode())
    store.put(MODEL, b"model")
    return LinkServer(
        bus=bus, store=store, buckets=buckets, clock=SYSTEM_CLOCK, settings=WorkflowSettings(),
        quotas=ProjectQuotas(Quotas(bytes_a_day=1_500_000), buckets, store, SYSTEM_CLOCK, "hub"),
    )  # fmt: skip


async def ask(server: LinkServer, *, asker: str = "north", **changes: Any) -> LinkReply:
    body = {"project": PROJECT, "participant": "north", "run": RUN, "step": "r2-train"}
    request = LinkRequest.model_validate(body | changes)
    subject = LINK.of(project=PROJECT, participant=asker)
    return LinkReply.decode(await server.answer(subject, request.encode()))


async def test_a_participant_gets_links_for_its_open_tasks_model_and_update(server: LinkServer) -> None:
    fetched = await ask(server, get=MODEL)
    assert fetched.link is not None
    assert fetched.link.key == MODEL
    sent = await ask(server, put=PUT, upload=BEGIN)
    assert sent.upload is not None
    assert sent.upload.key == f"updates/{PROJECT}/{RUN}/north/{'0' * 32}/{'a' * 64}"
    assert len(sent.upload.parts) == 1


async def test_a_site_of_release_0_1_0_is_told_to_upgrade_where_it_would_upload(server: LinkServer) -> None:
    reply = await ask(server, put=PUT)
    assert reply.code == "forbidden"
    assert "upgrade the site's software" in reply.message


async def test_an_upload_beyond_the_projects_day_is_refused_when_it_begins(server: LinkServer) -> None:
    first = (await ask(server, put=PUT, upload=BEGIN)).upload
    assert first is not None
    reply = await ask(server, put=PUT, upload=BEGIN)
    assert reply.code == "quota"
    assert "quota bytes-a-day of project triage: 1000000 are used, 1000000 more asked for, 1500000 are" in reply.message
    # What was let in goes on.
    again = BEGIN.model_copy(update={"upload": first.upload})
    assert (await ask(server, put=PUT, upload=again)).upload is not None


async def test_an_upload_that_is_not_ended_with_its_task_never_is(bus: MemoryBus, server: LinkServer) -> None:
    sent = await ask(server, put=PUT, upload=BEGIN)
    assert sent.upload is not None
    await bus.purge(TASK.stream, TASK.wildcard())
    end = BEGIN.model_copy(update={"upload": sent.upload.upload, "digests": (), "etags": ("e",)})
    assert (await ask(server, put=PUT, upload=end)).code == "gone"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"asker": "south", "get": MODEL}, "forbidden"),
        ({"step": "r1-train", "get": MODEL}, "gone"),
        ({"get": f"updates/{PROJECT}/{RUN}/{'a' * 64}"}, "forbidden"),
        ({"get": f"models/other/{'a' * 64}"}, "forbidden"),
        ({"put": PUT.model_copy(update={"size": 2_000_000}), "upload": BEGIN}, "too-large"),
        ({"put": PUT, "upload": BEGIN.model_copy(update={"digests": ("b" * 64,)})}, "invalid-input"),
        ({"put": PUT, "upload": BEGIN.model_copy(update={"digests": ("a" * 64,) * 2})}, "invalid-input"),
        ({"put": PUT, "upload": BEGIN.model_copy(update={"upload": "x", "digests": ()})}, "invalid-input"),
        ({}, "invalid-input"),
    ],
)
async def test_anything_else_is_refused(server: LinkServer, asked: dict[str, Any], code: str) -> None:
    reply = await ask(server, **asked)
    assert (reply.link, reply.code) == (None, code)
    assert reply.message


async def test_a_revoked_participant_gets_no_link(bus: MemoryBus, server: LinkServer) -> None:
    key = {"project": PROJECT, "participant": "north"}
    await Buckets.on(bus).participants.change(lambda record: record.model_copy(update={"revoked": True}), **key)
    assert (await ask(server, get=MODEL)).code == "forbidden"
