"""A version is recorded beside the next round's training: no round waits for it, and no kill loses or doubles it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import RegistryReply, RunEvent
from hanse_fabric.subjects import EVENT, JOURNAL, PUBLISH_MODEL
from hanse_fabric.virtual_time import VirtualClock
from simulation.league import League
from simulation.stories import completed, hub_of, job_of

AWAY_S = 5.0
"""How long the registry is away."""


@pytest.mark.parametrize("killed", [False, True])
@in_virtual_time
async def test_a_round_does_not_wait_for_the_version_of_the_one_before(
    clock: VirtualClock, tmp_path: Path, killed: bool
) -> None:
    async with hub_of(clock, tmp_path, "north", "south") as made:
        made.processes["registry"].cut(AWAY_S)
        await made.submit(**job_of())
        await made.event("task-answered", step="r2-train")
        assert clock.monotonic() < AWAY_S, "the second round's training has waited"
        assert await made.versions() == []
        if killed:
            await made.restart("coordinator-0", after=0.1)
        record = await made.ended()
        await _whole(made, record)
        order = [entry.step for entry in made.published(JOURNAL, JournalEntry) if entry.kind == "closed"]
        assert order.index("r2-train") < order.index("r1-publish") < order.index("r2-publish")


async def _whole(made: League, record: RunRecord) -> None:
    """Each round's version is there once, in order, and each piece of news was told once."""
    assert (record.state, record.reason) == ("completed", "")
    versions = await made.versions()
    assert [version.lineage.round for version in versions] == [1, 2, 3]
    assert [version.lineage.parent for version in versions[1:]] == [version.digest for version in versions[:-1]]
    assert (record.model_version, record.model_digest) == (versions[-1].version, versions[-1].digest)
    assert EVENT.stream is not None
    events = [RunEvent.decode(record.data) for record in made.broker.matching(EVENT.stream, ">")]
    told = Counter((event.kind, event.round) for event in events if event.kind in ("round-started", "round-finished"))
    assert told == {(kind, number): 1 for kind in ("round-started", "round-finished") for number in (1, 2, 3)}
    assert len({event.subject for event in made.audits("model.record")}) == 3


@in_virtual_time
async def test_a_version_that_the_registry_refuses_ends_the_run(clock: VirtualClock, tmp_path: Path) -> None:
    """It is the first: the round that went on beside it does not make up for it."""

    async def refuse(subject: str, data: bytes) -> bytes:
        return RegistryReply(code=ErrorCode.TAMPERED.code, message="the bytes are others").encode()

    async with hub_of(clock, tmp_path, "north", "south") as made:
        await made.processes["registry"].crash()
        await made.submit(**job_of())
        await made.event("task-answered", step="r2-train")
        await made.owner.serve(PUBLISH_MODEL.wildcard(), refuse, group="registries")
        record = await made.ended()
        assert (record.state, record.reason) == ("failed", f"{ErrorCode.TAMPERED.code}: publish: the bytes are others")
        assert [event.round for event in made.events("round-started")] == [1, 2], "a third round was begun"


@in_virtual_time
async def test_a_run_that_is_cancelled_leaves_the_version_that_is_under_way_whole(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, "north", "south") as made:
        made.processes["registry"].cut(AWAY_S)
        await made.submit(**job_of())
        await made.event("task-answered", step="r2-train")
        await made.want("cancel")
        assert (await made.ended()).state == "cancelled"
        [version] = await made.versions()
        assert made.store.exists(version.key)


@in_virtual_time
async def test_the_last_version_is_there_when_the_run_has_ended(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, "north", "south") as made:
        await _whole(made, await completed(made, job_of()))
