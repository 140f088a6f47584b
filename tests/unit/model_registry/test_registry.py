"""The registry's promises, on the in-process bus and a directory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import HandClock, in_virtual_time
from hanse.verification import verify_model
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import (
    AuditEvent,
    Lineage,
    ModelVersion,
    ObjectRef,
    PublishModel,
    RegistryReply,
    RegistryRequest,
    Stage,
)
from hanse_fabric.store.directory import DirectoryStore
from hanse_fabric.store.port import RangeReader
from hanse_fabric.subjects import AUDIT, PUBLISH_MODEL, REGISTRY
from hanse_fabric.telemetry import catalogue
from hanse_fabric.tensors.digest import LEAF_BYTES
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_fabric.virtual_time import VirtualClock
from hanse_model_registry import rules
from hanse_model_registry.registry import Registry
from hanse_model_registry.service import RegistryService

PROJECT = "triage"
RUN = "abcdefghijkl"


def a_model(
    number: int, *, run: str = RUN, content: bytes | None = None, parent: str | None = None, final: bool = False
) -> PublishModel:
    data = content or f"model {run} {number}".encode()
    return PublishModel(
        project=PROJECT,
        model=ref_of_bytes(data, inline=True),
        architecture={"name": "linear"},
        lineage=Lineage(
            run=run, round=number, workflow="federated_averaging", participants=("north", "south"), examples=100,
            strategy={}, seed=1, parent=parent,
        ),
        metrics={"accuracy": 0.5},
        final=final,
    )  # fmt: skip


class Hub:
    """A registry with what it stands on; `replica` adds another over the same state."""

    def __init__(self, folder: Path, keep: int = 5) -> None:
        self.broker, self.clock, self.key = MemoryBroker(), HandClock(), SigningKey.create()
        self.store = DirectoryStore(folder / "store")
        self.bus = MemoryBus(self.broker)
        self.keep = keep
        self.registry = self.replica()

    def replica(self) -> Registry:
        return Registry(MemoryBus(self.broker), self.store, self.key, self.clock, keep=self.keep)

    async def put(self, number: int, **given: object) -> ModelVersion:
        self.clock.advance(1)
        return await self.registry.publish(a_model(number, **given))  # type: ignore[arg-type]

    async def promote(self, version: int, stage: Stage = Stage.PRODUCTION) -> ModelVersion:
        self.clock.advance(1)
        return await self.registry.promote(PROJECT, version, stage, actor="key:owner", reason="better")

    async def stages(self) -> dict[int, Stage]:
        return {v.version: v.stage for v in await self.registry._ledger.all(PROJECT) if not v.deleted}

    async def audit(self) -> list[AuditEvent]:
        assert AUDIT.stream is not None
        records = await self.bus.snapshot(AUDIT.stream, AUDIT.of(project=PROJECT))
        return [AuditEvent.decode(record.data) for record in records]


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


async def test_versions_are_numbered_from_one_and_keep_their_lineage(hub: Hub) -> None:
    first, second = await hub.put(1), await hub.put(2)
    assert (first.version, second.version) == (1, 2)
    assert second.lineage.participants == ("north", "south")
    assert hub.store.get(first.key, limit=100) == b"model abcdefghijkl 1"
    assert first.key == f"models/{PROJECT}/{first.digest}"


async def test_publishing_a_round_again_is_the_same_version_and_is_audited_once(hub: Hub) -> None:
    first = await hub.put(1)
    again = await hub.registry.publish(a_model(1))
    other_replica = await hub.replica().publish(a_model(1))
    assert first == again == other_replica
    assert [event.action for event in await hub.audit()] == ["model.record"]


async def test_replicas_that_publish_at_once_leave_no_gap_and_no_double(hub: Hub) -> None:
    replicas = [hub.replica() for _ in range(4)]
    made = await asyncio.gather(*(replicas[n % 4].publish(a_model(n // 2)) for n in range(24)))
    assert sorted({version.version for version in made}) == list(range(1, 13))


async def test_a_model_in_the_store_must_be_there_with_its_size_and_in_its_projects_folder(hub: Hub) -> None:
    data = b"a large model"
    key = f"models/{PROJECT}/{RUN}/r1-reduce/model"
    request = a_model(1)
    with pytest.raises(HanseError) as absent:
        await hub.registry.publish(request.model_copy(update={"model": ref_of_bytes(data, key=key)}))
    assert absent.value.code is ErrorCode.NOT_FOUND
    hub.store.put(key, data + b"!")
    with pytest.raises(HanseError, match="14 bytes are in the store, 13 were announced"):
        await hub.registry.publish(request.model_copy(update={"model": ref_of_bytes(data, key=key)}))
    hub.store.put(key, data)
    version = await hub.registry.publish(request.model_copy(update={"model": ref_of_bytes(data, key=key)}))
    assert version.key == key
    elsewhere = ref_of_bytes(data, key="models/other/x")
    with pytest.raises(HanseError, match="models/triage/"):
        await hub.registry.publish(a_model(2).model_copy(update={"model": elsewhere}))


class AlteringStore(DirectoryStore):
    """Alters one byte of what is read from it: `at` counts from the object's first."""

    at = 0

    def open_range(self, key: str, offset: int, length: int) -> RangeReader:
        reader, store, position = super().open_range(key, offset, length), self, offset

        class Altered:
            def read_into(self, buffer: memoryview) -> None:
                nonlocal position
                reader.read_into(buffer)
                if position <= store.at < position + len(buffer):
                    buffer[store.at - position] ^= 1
                position += len(buffer)

            def close(self) -> None:
                reader.close()

            def __enter__(self) -> Altered:
                return self

            def __exit__(self, *exception: object) -> None:
                self.close()

        return Altered()


@pytest.mark.parametrize("at", [0, LEAF_BYTES - 1, LEAF_BYTES, LEAF_BYTES + 9])
async def test_a_model_is_not_signed_when_the_store_alters_one_byte_of_it(hub: Hub, tmp_path: Path, at: int) -> None:
    data = bytes(LEAF_BYTES) + b"the model's"[:10]
    key = f"models/{PROJECT}/{RUN}/r1-reduce/model"
    hub.store = AlteringStore(tmp_path / "store")
    hub.store.at = at
    hub.store.put(key, data)
    request = a_model(1).model_copy(update={"model": ref_of_bytes(data, key=key)})
    with pytest.raises(HanseError) as refusal:
        await hub.replica().publish(request)
    assert refusal.value.code is ErrorCode.TAMPERED
    assert f"{key}: leaf {at // LEAF_BYTES} " in refusal.value.message
    assert await hub.stages() == {}
    assert await hub.audit() == []
    assert (await hub.registry.publish(request)).version == 1


@pytest.mark.parametrize("inline", [False, True])
async def test_leaves_that_do_not_make_the_digest_are_not_signed(hub: Hub, inline: bool) -> None:
    data = b"the model"
    key = f"models/{PROJECT}/{RUN}/r1-reduce/model"
    hub.store.put(key, data)
    lying = ref_of_bytes(data, inline=inline, key=key).model_copy(update={"leaves": ("0" * 64,)})
    with pytest.raises(HanseError, match="its leaves do not make its digest") as refusal:
        await hub.registry.publish(a_model(1).model_copy(update={"model": lying}))
    assert refusal.value.code is ErrorCode.TAMPERED


async def test_an_inline_model_with_another_digest_or_no_bytes_is_refused(hub: Hub) -> None:
    request = a_model(1)
    forged = request.model.model_copy(update={"digest": "0" * 64})
    with pytest.raises(HanseError) as refusal:
        await hub.registry.publish(request.model_copy(update={"model": forged}))
    assert refusal.value.code is ErrorCode.TAMPERED
    nowhere = ObjectRef(digest="0" * 64, size=3)
    with pytest.raises(HanseError, match="bytes inline or a key"):
        await hub.registry.publish(request.model_copy(update={"model": nowhere}))


async def test_a_downloaded_file_is_verified_offline_and_promotion_keeps_the_signature(
    hub: Hub, tmp_path: Path
) -> None:
    version = await hub.put(1)
    path = tmp_path / "model.safetensors"
    path.write_bytes(hub.store.get(version.key, limit=100))
    promoted = ModelVersion.decode((await hub.promote(1)).encode())
    verify_model(path, promoted, hub.key.public_bytes)
    with pytest.raises(HanseError, match="signature"):
        verify_model(path, promoted.model_copy(update={"metrics": {"accuracy": 0.99}}), hub.key.public_bytes)
    with pytest.raises(HanseError, match="another key"):
        verify_model(path, promoted, SigningKey.create().public_bytes)
    path.write_bytes(b"model abcdefghijkl 2")
    with pytest.raises(HanseError, match="digest"):
        verify_model(path, promoted, hub.key.public_bytes)


async def test_production_has_one_version_and_the_former_is_archived(hub: Hub) -> None:
    for number in (1, 2, 3):
        await hub.put(number)
    await hub.promote(1)
    await hub.promote(2, Stage.STAGING)
    await hub.promote(3, Stage.STAGING)
    await hub.promote(3)
    assert await hub.stages() == {1: Stage.ARCHIVED, 2: Stage.CANDIDATE, 3: Stage.PRODUCTION}
    last = (await hub.audit())[-1]
    assert (last.action, last.actor, last.subject) == ("model.promote", "key:owner", "model:3")
    assert last.detail == {"reason": "better", "stage": "production", "before": "staging", "replaced": [1]}


async def test_replicas_that_promote_at_once_leave_one_in_production(hub: Hub) -> None:
    for number in range(1, 5):
        await hub.put(number)
    replicas = [hub.replica() for _ in range(4)]
    await asyncio.gather(
        *(r.promote(PROJECT, n, Stage.PRODUCTION, actor="key:a", reason="") for n, r in enumerate(replicas, 1))
    )
    assert [*(await hub.stages()).values()].count(Stage.PRODUCTION) == 1


async def test_rollback_returns_the_previous_production_version_and_the_next_one_goes_further(hub: Hub) -> None:
    for number in (1, 2, 3, 4):
        await hub.put(number)
    for number in (1, 2, 3):
        await hub.promote(number)
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 2
    await hub.promote(4)
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 2
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 1
    assert [n for n, stage in (await hub.stages()).items() if stage is Stage.PRODUCTION] == [1]
    with pytest.raises(HanseError, match="no version of triage was in production before version 1"):
        await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")


async def test_retention_keeps_newest_final_staged_and_referenced_versions(tmp_path: Path) -> None:
    hub = Hub(tmp_path, keep=2)
    made = []
    for number in range(1, 9):
        made.append(await hub.put(number, parent=made[-1].digest if made else None))
    await hub.put(9, final=True, parent=made[-1].digest)
    await hub.put(1, run="zzzzzzzzzzzz")
    await hub.promote(4)
    await hub.promote(1, Stage.STAGING)
    # Kept: production 4 and its parent 3, staging 1, final 9 and its parent 8, the newest 7 and 8, a run's only 10.
    assert await hub.registry.sweep(PROJECT) == [2, 5, 6]
    assert sorted(await hub.stages()) == [1, 3, 4, 7, 8, 9, 10]
    assert not hub.store.exists(made[4].key)
    assert hub.store.exists(made[6].key)
    assert await hub.replica().sweep(PROJECT) == []


async def test_bytes_that_a_living_version_shares_are_not_deleted(tmp_path: Path) -> None:
    hub = Hub(tmp_path, keep=1)
    same = b"the same bits"
    await hub.put(1, content=same)
    await hub.put(2)
    shared = await hub.put(1, run="zzzzzzzzzzzz", content=same)
    assert await hub.registry.sweep(PROJECT) == [1]
    assert hub.store.exists(shared.key)
    await hub.put(2, run="zzzzzzzzzzzz")
    assert await hub.registry.sweep(PROJECT) == [3]
    assert not hub.store.exists(shared.key)
    revived = await hub.put(5, run="yyyyyyyyyyyy", content=same)
    await hub.registry.sweep(PROJECT)
    assert hub.store.exists(revived.key)


async def test_a_version_in_use_is_not_deleted_and_a_deleted_one_is_gone(hub: Hub) -> None:
    first = await hub.put(1)
    await hub.put(2, parent=first.digest)
    await hub.promote(2)
    for version in (1, 2):
        with pytest.raises(HanseError) as refusal:
            await hub.registry.delete(PROJECT, version, actor="key:o", reason="old")
        assert refusal.value.code is ErrorCode.CONFLICT
    third = await hub.put(3)
    assert (await hub.registry.delete(PROJECT, 3, actor="key:o", reason="old")).deleted
    assert not hub.store.exists(third.key)
    with pytest.raises(HanseError) as gone:
        await hub.promote(3)
    assert gone.value.code is ErrorCode.GONE
    with pytest.raises(HanseError) as unknown:
        await hub.promote(4)
    assert unknown.value.code is ErrorCode.NOT_FOUND


@in_virtual_time
async def test_the_service_answers_over_the_bus_and_sweeps_later(clock: VirtualClock, tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    registry = Registry(hub.bus, hub.store, hub.key, clock, keep=1)
    stopping, ready = asyncio.Event(), asyncio.Event()
    service = RegistryService(hub.bus, registry, clock, sweep_after=5.0, link_for=timedelta(minutes=15))

    async def ask(request: RegistryRequest) -> RegistryReply:
        return RegistryReply.decode(await hub.bus.request(REGISTRY.of(project=PROJECT), request.encode()))

    async with asyncio.TaskGroup() as group:
        group.create_task(service.run(stopping, on_ready=ready.set))
        await ready.wait()
        for number in (1, 2):
            subject = PUBLISH_MODEL.of(project=PROJECT)
            reply = RegistryReply.decode(await hub.bus.request(subject, a_model(number).encode()))
            assert reply.version is not None
            assert reply.version.version == number
        linked = await ask(RegistryRequest(action="link", project=PROJECT, version=1, actor="key:o"))
        assert linked.url.startswith("file:")
        refused = await ask(RegistryRequest(action="promote", project=PROJECT, version=9, actor="key:o"))
        assert refused.code == "invalid-input"
        absent = await ask(
            RegistryRequest(action="promote", project=PROJECT, version=9, stage=Stage.STAGING, actor="key:o")
        )
        assert absent.code == "not-found"
        wrong = RegistryRequest(action="rollback", project="other", actor="key:o")
        assert "subject" in (await ask(wrong)).message
        assert AUDIT.stream is not None
        async with hub.bus.follow(AUDIT.stream, AUDIT.of(project=PROJECT)) as records:
            async for record in records:
                event = AuditEvent.decode(record.data)
                if event.action == "model.expire":
                    break
        assert event.subject == "model:1"
        stopping.set()


async def test_rollback_where_nothing_is_in_production_says_so(hub: Hub) -> None:
    with pytest.raises(HanseError, match=f"rollback: no version of {PROJECT} is in production") as refused:
        await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")
    assert refused.value.code is ErrorCode.NOT_FOUND


async def test_rollback_goes_back_along_the_times_of_promotion_not_along_the_numbers(hub: Hub) -> None:
    for number in (1, 2, 3):
        await hub.put(number)
    for number in (3, 1, 2):
        await hub.promote(number)
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 1
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 3


async def test_rollback_passes_over_a_version_that_was_deleted(hub: Hub) -> None:
    for number in (1, 2, 3):
        await hub.put(number)
        await hub.promote(number)
    await hub.registry.delete(PROJECT, 2, actor="key:o", reason="private data")
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 1


async def test_retention_keeps_the_newest_rounds_whatever_the_order_of_their_publication(tmp_path: Path) -> None:
    hub = Hub(tmp_path, keep=2)
    for number in (4, 2, 3, 1):
        await hub.put(number)
    assert sorted(await hub.registry.sweep(PROJECT)) == [2, 4]
    assert sorted(await hub.stages()) == [1, 3]


async def test_retention_that_keeps_none_keeps_the_newest_version_of_a_run(tmp_path: Path) -> None:
    hub = Hub(tmp_path, keep=0)
    for number in (1, 2):
        await hub.put(number)
    assert await hub.registry.sweep(PROJECT) == [1]
    assert await hub.registry.sweep(PROJECT) == []


async def test_five_candidates_of_a_run_are_kept_where_nothing_else_is_said(hub: Hub) -> None:
    hub.registry = Registry(hub.bus, hub.store, hub.key, hub.clock)
    for number in range(1, 8):
        await hub.put(number)
    assert await hub.registry.sweep(PROJECT) == [1, 2]


async def test_a_version_that_is_promoted_while_retention_runs_stays_with_its_bytes(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 8):
        await hub.put(number)
    ledger = hub.registry._ledger
    before, read = await ledger.all(PROJECT), ledger.all
    await hub.promote(1)

    async def behind(project: str) -> list[ModelVersion]:
        monkeypatch.setattr(ledger, "all", read)
        return before

    monkeypatch.setattr(ledger, "all", behind)
    assert await hub.registry.sweep(PROJECT) == [2]
    assert (await hub.stages())[1] is Stage.PRODUCTION
    assert hub.store.exists(before[0].key)


async def test_a_version_that_is_published_again_is_audited_again_only_while_the_bus_drops_the_second(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within that time the first audit may have been lost with the replica that should have sent it."""
    told, publish = list[str | None](), hub.registry._bus.publish

    async def noted(subject: str, data: bytes, **more: Any) -> int:
        if subject == AUDIT.of(project=PROJECT):
            told.append(more.get("message_id"))
        return await publish(subject, data, **more)

    monkeypatch.setattr(hub.registry._bus, "publish", noted)
    await hub.registry.publish(a_model(1))
    hub.clock.advance(99)
    await hub.registry.publish(a_model(1))
    hub.clock.advance(1)
    await hub.registry.publish(a_model(1))
    assert len(told) == 2
    assert len(set(told)) == 1


async def test_versions_that_are_recorded_and_deleted_are_counted(tmp_path: Path) -> None:
    hub = Hub(tmp_path, keep=1)
    recorded, deleted = catalogue.VERSIONS.value(), catalogue.DELETED_VERSIONS.value()
    for number in (1, 2, 3):
        await hub.put(number)
    await hub.registry.publish(a_model(3))
    assert catalogue.VERSIONS.value() == recorded + 3
    await hub.registry.sweep(PROJECT)
    await hub.registry.sweep(PROJECT)
    assert catalogue.DELETED_VERSIONS.value() == deleted + 2


def promoted(version: ModelVersion, *, at: int | None) -> ModelVersion:
    time = None if at is None else datetime(2026, 1, at, tzinfo=UTC)
    return version.model_copy(update={"promoted_at": time})


async def test_before_a_version_was_the_last_that_was_promoted_earlier(hub: Hub) -> None:
    one, two, three = [await hub.put(number) for number in (1, 2, 3)]
    versions = [promoted(one, at=2), promoted(two, at=3), promoted(three, at=4)]
    assert rules.before(versions, versions[1]).version == 1
    assert rules.before(versions, versions[2]).version == 2
    assert rules.before(versions, promoted(three, at=None)).version == 2
    for none in ([versions[0]], [promoted(one, at=None), versions[1]]):
        with pytest.raises(HanseError) as caught:
            rules.before(none, none[-1])
        assert caught.value.code is ErrorCode.NOT_FOUND


async def test_who_may_not_delete_a_version_is_told_what_to_do_first(hub: Hub) -> None:
    await hub.put(1)
    for stage in (Stage.STAGING, Stage.PRODUCTION):
        await hub.promote(1, stage)
        with pytest.raises(HanseError, match=f"is in {stage.value}") as caught:
            await hub.registry.delete(PROJECT, 1, actor="key:o", reason="old")
        assert caught.value.hint == "archive it first"
    await hub.promote(1, Stage.ARCHIVED)
    assert (await hub.registry.delete(PROJECT, 1, actor="key:o", reason="old")).deleted


async def test_the_holders_of_a_stage_are_told_by_number(hub: Hub) -> None:
    made = [await hub.put(number) for number in (1, 2, 3)]
    assert [version.version for version in rules.holders(made[::-1], Stage.CANDIDATE)] == [1, 2, 3]
