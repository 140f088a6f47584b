"""A site, or an owner, with a link that the hub gave: for other bytes, in another's place, at another time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hanse_coordinator.api.submission import object_key
from hanse_coordinator.links import LinkServer
from hanse_coordinator.records import Buckets
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.verbs.objects import RunObjects
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import LinkReply, LinkRequest, ObjectRef, Task, TaskKind
from hanse_fabric.messages.objects import update_key
from hanse_fabric.messages.uploads import PartLink, UploadState, UploadStep
from hanse_fabric.names import derive_id, new_run_id
from hanse_fabric.store.s3 import S3Store
from hanse_fabric.store.transfer import HttpTransfer
from hanse_fabric.store.uploads import go_on
from hanse_fabric.subjects import LINK, TASK
from hanse_fabric.tensors.digest import LEAF_BYTES
from links import unlimited
from masked_sites import MaskedSite

PROJECT, STEP, HONEST, HOSTILE = "links", "r1-train", "north", "south"
UPDATE = b"the honest update"
MINUTE = timedelta(minutes=1)


class Hub:
    """The coordinator's link server at a SeaweedFS, with a task open for two sites; and what an administrator sees."""

    def __init__(self, store: S3Store, admin: S3Store, folder: Path) -> None:
        self.store, self.admin, self.bus, self.run = store, admin, MemoryBus(), new_run_id()
        self.folder, self.transfer = folder, HttpTransfer(patience=5)
        settings = WorkflowSettings(instance="hub")
        self.links = LinkServer(
            bus=self.bus, store=store, buckets=Buckets.on(self.bus), clock=SYSTEM_CLOCK, settings=settings,
            quotas=unlimited(self.bus, store),
        )  # fmt: skip

    async def open(self) -> None:
        now = SYSTEM_CLOCK.now()
        for name in (HONEST, HOSTILE):
            record = MaskedSite(name, PROJECT).record()
            await Buckets.on(self.bus).participants.create(record, project=PROJECT, participant=name)
            task = Task(
                id=derive_id(self.run, STEP, name), project=PROJECT, run=self.run, step=STEP, participant=name,
                workflow="federated_averaging", kind=TaskKind.TRAIN, round=1, config={}, seed=1, peers=2, issued_at=now,
                deadline=now + timedelta(hours=1), model=ObjectRef(digest="b" * 64, size=1000, key="models/links/m"),
            )  # fmt: skip
            await self.bus.publish(TASK.of(project=PROJECT, participant=name, run=self.run, step=STEP), task.encode())

    async def ask(self, asker: str, put: ObjectRef, step: UploadStep, *, named: str = "") -> LinkReply:
        """What the hub answers to a site, which may give another's name."""
        request = LinkRequest(
            project=PROJECT, participant=named or asker, run=self.run, step=STEP, put=put, upload=step
        )
        subject = LINK.of(project=PROJECT, participant=asker)
        return LinkReply.decode(await self.links.answer(subject, request.encode()))

    async def begun(self, site: str, content: bytes) -> tuple[ObjectRef, UploadState]:
        put = ObjectRef(digest=hashlib.sha256(content).hexdigest(), size=len(content))
        reply = await self.ask(site, put, UploadStep(digests=(put.digest,)))
        assert reply.upload is not None, reply.message
        return put, reply.upload

    def send(self, part: PartLink, content: bytes) -> str:
        (self.folder / "sent").write_bytes(content)
        return self.transfer.send_part(self.folder / "sent", part, 0, len(content))

    async def upload(self, site: str, content: bytes) -> str:
        """An honest upload; its key."""
        put, state = await self.begun(site, content)
        if not state.stored:
            end = UploadStep(upload=state.upload, etags=(self.send(state.parts[0], content),))
            reply = await self.ask(site, put, end)
            assert reply.upload is not None, reply.message
            state = reply.upload
        assert state.stored
        return state.key

    def former_link(self, key: str) -> PartLink:
        """What release 0.1.0 gave: signed for the host and the key alone."""
        return PartLink(number=1, url=self.store._sign("PUT", key, expires=MINUTE), headers={})


@pytest.fixture
async def hub(weed: Any, tmp_path: Path) -> AsyncIterator[Hub]:
    made = Hub(weed.store("coordinator", patience=5.0), weed.store("admin"), tmp_path)
    await made.open()
    yield made
    made.store.close()
    made.admin.close()
    made.transfer.close()


def key_of(hub: Hub, site: str, content: bytes) -> str:
    task = derive_id(hub.run, STEP, site)
    return update_key(PROJECT, hub.run, site, task, hashlib.sha256(content).hexdigest())


async def test_an_honest_site_uploads_and_repeats_what_was_lost_on_the_way(hub: Hub) -> None:
    for _ in range(2):
        key = await hub.upload(HONEST, UPDATE)
    assert hub.admin.get(key, limit=100) == UPDATE


async def test_a_site_writes_nothing_over_anothers_update(hub: Hub) -> None:
    key = await hub.upload(HONEST, UPDATE)
    put = ObjectRef(digest=hashlib.sha256(UPDATE).hexdigest(), size=len(UPDATE))
    assert (await hub.ask(HOSTILE, put, UploadStep(digests=(put.digest,)), named=HONEST)).code == "forbidden"
    # The same digest in its own name leads to its own place.
    _, state = await hub.begun(HOSTILE, UPDATE)
    assert state.key == key_of(hub, HOSTILE, UPDATE) != key
    for url in (state.parts[0].url.replace(state.key, key), state.parts[0].url.replace(HOSTILE, HONEST)):
        with pytest.raises(HanseError) as caught:
            hub.send(PartLink(number=1, url=url, headers=state.parts[0].headers), UPDATE)
        assert caught.value.code is ErrorCode.UNAUTHENTICATED
    # An upload of its own is not ended at another's place, nor another's by itself.
    end = UploadStep(upload=state.upload, etags=(hub.send(state.parts[0], UPDATE),))
    assert (await hub.ask(HOSTILE, put, end, named=HONEST)).code == "forbidden"
    _, other = await hub.begun(HONEST, b"its next update..")
    stolen = UploadStep(upload=other.upload, etags=end.etags)
    assert (await hub.ask(HOSTILE, put, stolen)).upload is None
    assert hub.admin.get(key, limit=100) == UPDATE


async def test_a_site_writes_no_more_than_it_announced_and_no_other_bytes(hub: Hub) -> None:
    put, state = await hub.begun(HOSTILE, UPDATE)
    for content in (os.urandom(3 << 20), UPDATE[::-1], UPDATE[:-1]):
        with pytest.raises(HanseError) as caught:
            hub.send(state.parts[0], content)
        assert caught.value.code in (ErrorCode.UNAUTHENTICATED, ErrorCode.INVALID_INPUT)
    assert (await hub.ask(HOSTILE, put, UploadStep(upload=state.upload, etags=("0" * 32,)))).upload is None
    assert not list(hub.admin.keys(f"updates/{PROJECT}/{hub.run}/"))


async def test_after_the_run_a_link_stores_nothing(hub: Hub) -> None:
    put, state = await hub.begun(HOSTILE, UPDATE)
    etag = hub.send(state.parts[0], UPDATE)
    await hub.bus.purge(TASK.stream, TASK.wildcard())  # type: ignore[arg-type]
    objects = RunObjects(hub.store, PROJECT)
    await objects.abort_uploads(hub.run)
    await objects.clear(hub.run, but=())
    with pytest.raises(HanseError) as caught:
        hub.send(state.parts[0], UPDATE)
    assert caught.value.code is ErrorCode.NOT_FOUND
    assert (await hub.ask(HOSTILE, put, UploadStep(upload=state.upload, etags=(etag,)))).code == "gone"
    assert not list(hub.admin.keys(f"updates/{PROJECT}/{hub.run}/"))


async def test_an_owner_writes_nothing_over_a_model_that_is_there_by_an_upload_that_was_begun_before(hub: Hub) -> None:
    """Of a model in several parts the owner says the parts' digests, and may say those of other bytes."""
    model, other = (os.urandom(LEAF_BYTES + 100) for _ in range(2))
    ref = ObjectRef(digest=hashlib.sha256(model).hexdigest(), size=len(model))
    key = object_key(PROJECT, ref.digest)

    def begun(content: bytes) -> tuple[UploadState, bytes]:
        digests = tuple(hashlib.sha256(part).hexdigest() for part in (content[:LEAF_BYTES], content[LEAF_BYTES:]))
        return go_on(hub.store, key, ref, UploadStep(digests=digests), MINUTE), content

    def ended(upload: tuple[UploadState, bytes]) -> UploadState:
        state, content = upload
        (hub.folder / "sent").write_bytes(content)
        etags = tuple(
            hub.transfer.send_part(hub.folder / "sent", part, start, min(LEAF_BYTES, len(content) - start))
            for part, start in zip(state.parts, (0, LEAF_BYTES), strict=True)
        )
        return go_on(hub.store, key, ref, UploadStep(upload=state.upload, etags=etags), MINUTE)

    first, second = begun(model), begun(other)
    for upload in (first, second):
        assert ended(upload).stored
        assert hub.admin.get(key, limit=len(model)) == model
    assert go_on(hub.store, key, ref, UploadStep(digests=("0" * 64,) * 2), MINUTE).parts == ()


@pytest.mark.control(
    "test_a_site_writes_nothing_over_anothers_update",
    "test_a_site_writes_no_more_than_it_announced_and_no_other_bytes",
    "test_after_the_run_a_link_stores_nothing",
    "test_an_owner_writes_nothing_over_a_model_that_is_there_by_an_upload_that_was_begun_before",
)
async def test_control_by_a_link_of_release_0_1_0_each_of_these_succeeds(hub: Hub) -> None:
    update = await hub.upload(HONEST, UPDATE)
    model = object_key(PROJECT, hashlib.sha256(UPDATE).hexdigest())
    hub.store.put(model, UPDATE)
    links = {key: hub.former_link(key) for key in (update, model)}
    await RunObjects(hub.store, PROJECT).clear(hub.run, but=())
    for key, link in links.items():
        for content in (os.urandom(3 << 20), UPDATE[::-1]):
            hub.send(link, content)
            assert hub.admin.get(key, limit=4 << 20) == content
