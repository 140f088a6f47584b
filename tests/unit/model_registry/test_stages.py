"""Promotion and rollback: production has one version, and what was there before it can be put back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import (
    ModelVersion,
    Stage,
)
from hanse_fabric.telemetry import catalogue
from hanse_model_registry import rules
from unit.model_registry.registry_hub import PROJECT, Hub


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


@pytest.mark.parametrize("stage", [Stage.STAGING, Stage.PRODUCTION])
async def test_replicas_that_promote_at_once_leave_one_in_the_stage(hub: Hub, stage: Stage) -> None:
    for number in range(1, 5):
        await hub.put(number)
    replicas = [hub.replica() for _ in range(4)]
    await asyncio.gather(*(r.promote(PROJECT, n, stage, actor="key:a", reason="") for n, r in enumerate(replicas, 1)))
    assert [*(await hub.stages()).values()].count(stage) == 1


async def test_rollback_returns_the_previous_production_version_and_the_next_one_goes_further(hub: Hub) -> None:
    for number in (1, 2, 3, 4):
        await hub.put(number)
    promoted = [await hub.promote(number) for number in (1, 2, 3)]
    counted = catalogue.PROMOTIONS.value(stage="production")
    returned = await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")
    assert (returned.version, returned.promoted_at) == (2, promoted[1].promoted_at)
    told = (await hub.audit())[-1]
    assert (told.action, told.actor, told.subject) == ("model.rollback", "key:o", "model:2")
    assert told.detail == {"reason": "worse", "replaced": [3]}
    assert catalogue.PROMOTIONS.value(stage="production") == counted + 1
    await hub.promote(4)
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 2
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 1
    assert [n for n, stage in (await hub.stages()).items() if stage is Stage.PRODUCTION] == [1]
    with pytest.raises(HanseError, match="no version of triage was in production before version 1"):
        await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")


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


async def test_a_version_that_was_only_staged_is_none_to_roll_back_to(hub: Hub) -> None:
    for number in (1, 2, 3):
        await hub.put(number)
    await hub.promote(1)
    staged = await hub.promote(2, Stage.STAGING)
    await hub.promote(3)
    assert (staged.stage, staged.promoted_at) == (Stage.STAGING, None)
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 1


async def test_rollback_passes_over_a_version_that_was_deleted(hub: Hub) -> None:
    for number in (1, 2, 3):
        await hub.put(number)
        await hub.promote(number)
    await hub.registry.delete(PROJECT, 2, actor="key:o", reason="private data")
    assert (await hub.registry.rollback(PROJECT, actor="key:o", reason="worse")).version == 1


def promoted(version: ModelVersion, *, at: int | None) -> ModelVersion:
    time = None if at is None else datetime(2026, 1, at, tzinfo=UTC)
    return version.model_copy(update={"promoted_at": time})


async def test_before_a_version_was_the_last_that_was_promoted_earlier(hub: Hub) -> None:
    one, two, three = [await hub.put(number) for number in (1, 2, 3)]
    versions = [promoted(one, at=2), promoted(two, at=3), promoted(three, at=4)]
    assert rules.before(versions, versions[1]).version == 1
    assert rules.before(versions, versions[2]).version == 2
    untimed = promoted(three, at=None)
    assert rules.before([*versions[:2], untimed], untimed).version == 2
    at_once = [promoted(version, at=3) for version in (one, two, three)]
    assert rules.before(at_once, at_once[2]).version == 2, "of those that were promoted at once, the next by number"
    for none in ([versions[0]], [promoted(one, at=None), versions[1]]):
        with pytest.raises(HanseError) as caught:
            rules.before(none, none[-1])
        assert caught.value.code is ErrorCode.NOT_FOUND


async def test_the_holders_of_a_stage_are_told_by_number(hub: Hub) -> None:
    made = [await hub.put(number) for number in (1, 2, 3)]
    assert [version.version for version in rules.holders(made[::-1], Stage.CANDIDATE)] == [1, 2, 3]
    assert rules.holders(made, Stage.STAGING) == []
    gone = made[1].model_copy(update={"deleted": True})
    assert [version.version for version in rules.holders([made[0], gone], Stage.CANDIDATE)] == [1]


async def test_a_deleted_version_is_not_promoted_and_the_one_in_production_stays(hub: Hub) -> None:
    for number in (1, 2):
        await hub.put(number)
    await hub.promote(1)
    await hub.registry.delete(PROJECT, 2, actor="key:o", reason="private data")
    with pytest.raises(HanseError, match="version 2 of triage was deleted") as caught:
        await hub.promote(2)
    assert caught.value.code is ErrorCode.GONE
    assert await hub.stages() == {1: Stage.PRODUCTION}


async def test_a_version_that_another_replica_deletes_meanwhile_is_not_promoted(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    living = await hub.put(1)
    await hub.registry.delete(PROJECT, 1, actor="key:o", reason="private data")

    async def behind(_project: str, _version: int) -> ModelVersion:
        return living

    monkeypatch.setattr(hub.registry._ledger, "get", behind)
    with pytest.raises(HanseError, match="version 1 of triage was deleted"):
        await hub.promote(1)


async def test_a_version_that_another_replica_promotes_meanwhile_keeps_its_stage(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        await hub.put(number)
    await hub.promote(1, Stage.STAGING)
    ledger = hub.registry._ledger
    before, read = await ledger.all(PROJECT), ledger.all
    await hub.promote(1)

    async def behind(_project: str) -> list[ModelVersion]:
        monkeypatch.setattr(ledger, "all", read)
        return before

    monkeypatch.setattr(ledger, "all", behind)
    await hub.promote(2, Stage.STAGING)
    assert await hub.stages() == {1: Stage.PRODUCTION, 2: Stage.STAGING}


async def test_the_version_in_production_is_promoted_again_to_no_effect(hub: Hub) -> None:
    await hub.put(1)
    first, again = await hub.promote(1), await hub.promote(1)
    assert again == first
    assert (await hub.audit())[-1].detail["replaced"] == []
