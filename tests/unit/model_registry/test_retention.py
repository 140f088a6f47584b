"""What the registry deletes, by itself and when it is asked to, and what it keeps."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import (
    AuditEvent,
    ModelVersion,
    RegistryReply,
    RegistryRequest,
    Stage,
)
from hanse_fabric.subjects import AUDIT, PUBLISH_MODEL, REGISTRY
from hanse_fabric.telemetry import catalogue
from hanse_fabric.virtual_time import VirtualClock
from hanse_model_registry.registry import Registry
from hanse_model_registry.service import RegistryService
from unit.model_registry.registry_hub import PROJECT, Hub, a_model


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


async def test_retention_keeps_the_best_version_of_each_run(tmp_path: Path) -> None:
    hub = Hub(tmp_path, keep=2)
    for number in range(1, 8):
        await hub.put(number, best=number in (1, 3))
    await hub.put(1, run="zzzzzzzzzzzz", best=True)
    for number in range(2, 5):
        await hub.put(number, run="zzzzzzzzzzzz")
    # Version 1 was the best once, until 3 was better; 8 is the other run's.
    assert await hub.registry.sweep(PROJECT) == [1, 2, 4, 5, 9]
    assert sorted(await hub.stages()) == [3, 6, 7, 8, 10, 11]
    await hub.registry.delete(PROJECT, 3, actor="key:o", reason="its owner does not want it")


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
    for _ in range(2):
        assert (await hub.registry.delete(PROJECT, 3, actor="key:o", reason="old")).deleted
    assert [event.action for event in await hub.audit()].count("model.delete") == 1
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


async def test_the_parent_of_a_version_that_was_deleted_may_be_deleted(hub: Hub) -> None:
    first = await hub.put(1)
    await hub.put(2, parent=first.digest)
    await hub.promote(2, Stage.ARCHIVED)
    for version in (2, 1):
        assert (await hub.registry.delete(PROJECT, version, actor="key:o", reason="old")).deleted


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
    await hub.registry.delete(PROJECT, 3, actor="key:o", reason="old")
    assert catalogue.DELETED_VERSIONS.value() == deleted + 3


async def test_who_may_not_delete_a_version_is_told_what_to_do_first(hub: Hub) -> None:
    await hub.put(1)
    for stage in (Stage.STAGING, Stage.PRODUCTION):
        await hub.promote(1, stage)
        with pytest.raises(HanseError, match=f"is in {stage.value}") as caught:
            await hub.registry.delete(PROJECT, 1, actor="key:o", reason="old")
        assert caught.value.hint == "archive it first"
    await hub.promote(1, Stage.ARCHIVED)
    assert (await hub.registry.delete(PROJECT, 1, actor="key:o", reason="old")).deleted


async def test_retention_leaves_archived_versions_which_take_no_candidates_place(tmp_path: Path) -> None:
    hub = Hub(tmp_path, keep=1)
    for number in (1, 2, 3, 4):
        await hub.put(number)
    for number in (1, 4):
        await hub.promote(number, Stage.ARCHIVED)
    assert await hub.registry.sweep(PROJECT) == [2]
    assert sorted(await hub.stages()) == [1, 3, 4]


async def test_where_the_best_version_of_a_run_was_deleted_the_best_before_it_is_kept(tmp_path: Path) -> None:
    hub = Hub(tmp_path, keep=1)
    for number in range(1, 5):
        await hub.put(number, best=number < 3)
    await hub.registry.delete(PROJECT, 2, actor="key:o", reason="its owner does not want it")
    assert await hub.registry.sweep(PROJECT) == [3]
    assert sorted(await hub.stages()) == [1, 4]


async def test_the_parent_of_a_final_version_is_not_deleted_and_a_version_is_no_parent_of_itself(hub: Hub) -> None:
    first = await hub.put(1)
    await hub.put(2, parent=first.digest, final=True)
    with pytest.raises(HanseError, match="version 1 of triage is the parent of a version in use") as caught:
        await hub.registry.delete(PROJECT, 1, actor="key:o", reason="old")
    assert (caught.value.code, caught.value.hint) == (ErrorCode.CONFLICT, "delete that first")
    # A round that changes nothing ends in the digest that it began with.
    same = b"the same bits"
    before = await hub.put(3, content=same)
    await hub.put(4, content=same, parent=before.digest, final=True)
    assert (await hub.registry.delete(PROJECT, 4, actor="key:o", reason="old")).deleted


async def test_the_same_bytes_are_deleted_as_often_as_their_last_version_is(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, delete = list[str](), hub.store.delete

    def noted(key: str) -> None:
        gone.append(key)
        delete(key)

    monkeypatch.setattr(hub.store, "delete", noted)
    for number, run in enumerate(("abcdefghijkl", "zzzzzzzzzzzz"), start=1):
        version = await hub.put(1, run=run, content=b"the same bits")
        assert hub.store.exists(version.key)
        await hub.registry.delete(PROJECT, number, actor="key:o", reason="private data")
        assert not hub.store.exists(version.key)
        await hub.registry.sweep(PROJECT)
        assert gone == [version.key] * number, "what is gone is not deleted again"


async def test_a_link_is_given_to_a_version_that_lives(hub: Hub) -> None:
    await hub.put(1)
    version, link = await hub.registry.link(PROJECT, 1, timedelta(minutes=1))
    assert (version.version, link) == (1, hub.store.link_get(version.key, timedelta(minutes=1)))
    await hub.registry.delete(PROJECT, 1, actor="key:o", reason="private data")
    with pytest.raises(HanseError, match="version 1 of triage was deleted") as caught:
        await hub.registry.link(PROJECT, 1, timedelta(minutes=1))
    assert caught.value.code is ErrorCode.GONE


async def test_a_bus_that_is_away_ends_retention_and_is_told(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1, 8):
        await hub.put(number)

    async def away(*_: object) -> ModelVersion:
        raise HanseError(ErrorCode.UNAVAILABLE, "the bus does not answer")

    monkeypatch.setattr(hub.registry._ledger, "change", away)
    with pytest.raises(HanseError, match="the bus does not answer"):
        await hub.registry.sweep(PROJECT)
