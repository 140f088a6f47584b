"""What a run survives: its coordinator dying at any write, several coordinators, pauses, cancellation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from workflow_hub import KEY, PROJECT, RUN, Hub, at_work, job_of, stopped

from hanse_coordinator.runs.journal import Journal, JournalEntry
from hanse_coordinator.verbs.failures import Fenced
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import JOURNAL, TASK


class MortalBus(MemoryBus):
    """A connection whose process dies at its n-th publication: just before the message is stored, or just after."""

    def __init__(self, broker: Any, *, at: int, stored: bool) -> None:
        super().__init__(broker)
        self._left, self._stored = at, stored
        self.dead, self.buried = asyncio.Event(), asyncio.Event()

    async def publish(self, subject: str, data: bytes, **options: Any) -> int:
        self._left -= 1
        is_last = self._left == 0
        if self.dead.is_set() or (is_last and not self._stored):
            await self._die()
        sequence = await super().publish(subject, data, **options)
        if is_last:
            await self._die()
        return sequence

    async def _die(self) -> None:
        self.dead.set()
        # A dead process does nothing more, neither errors nor clean-up, until the test clears it away.
        await self.buried.wait()
        raise HanseError(ErrorCode.UNAVAILABLE, "this process is dead")


async def undisturbed(folder: Path, rounds: int) -> str:
    hub = Hub(folder)
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_of(rounds=rounds))
        return str((await hub.ended()).model_digest)


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 62))
async def test_a_coordinator_killed_at_any_publication_changes_nothing_but_time(
    hub: Hub, tmp_path_factory: pytest.TempPathFactory, at: int, stored: bool
) -> None:
    expected = await undisturbed(tmp_path_factory.mktemp("calm"), 2)
    async with hub.running("north", "south"):
        mortal = MortalBus(hub.broker, at=at, stored=stored)
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        await hub.submit(job_of(rounds=2))
        ended = asyncio.ensure_future(hub.ended())
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([ended, died], return_when=asyncio.FIRST_COMPLETED)
        # The instance of the same name comes back; its old lease is its own.
        async with at_work(hub.supervisor()):
            record = await ended
        mortal.buried.set()
        await stopped(first, died)
    assert (record.state, record.reason, record.model_digest) == ("completed", "", expected)
    for site in hub.sites.values():
        assert set(site.done.values()) == {1}
    assert set(hub.published.values()) == {1, 2}


async def test_another_coordinator_takes_over_when_the_lease_has_not_been_renewed(hub: Hub) -> None:
    async with hub.running("north", "south"):
        mortal = MortalBus(hub.broker, at=14, stored=True)
        first = asyncio.ensure_future(hub.supervisor(mortal, instance="one").run())
        await hub.submit(job_of())
        async with asyncio.timeout(60):
            await mortal.dead.wait()
        async with at_work(hub.supervisor(instance="two")):
            assert (await hub.ended()).state == "completed"
        mortal.buried.set()
        await stopped(first)
    takers = [entry.body["holder"] for entry in await journal_of(hub) if entry.kind == "lease"]
    assert takers == ["one", "two"]


async def test_of_two_coordinators_one_writes(hub: Hub) -> None:
    both = hub.supervisor(instance="one"), hub.supervisor(instance="two")
    async with hub.running("north", "south"), at_work(*both):
        await hub.submit(job_of(rounds=5))
        assert (await hub.ended()).state == "completed"
    entries = await journal_of(hub)
    steps = [(entry.kind, entry.step) for entry in entries if entry.kind != "lease"]
    assert len(steps) == len(set(steps))
    assert all(set(site.done.values()) == {1} for site in hub.sites.values())


async def test_a_stopped_coordinator_gives_its_runs_to_another_at_once(hub: Hub) -> None:
    async with hub.running("north", "south"):
        hub.sites["north"].behave = lambda task: None if task.step == "r2-train" else {}
        async with at_work(hub.supervisor(instance="one", lease_ttl=1000.0)):
            await hub.submit(job_of())
            await hub.event("round-started", rounds=3)
            await hub.event("task-answered", step="r2-train")
        hub.sites["north"].behave = lambda _: {}
        async with at_work(hub.supervisor(instance="two", lease_ttl=1000.0)), asyncio.TaskGroup() as group:
            again = group.create_task(hub.sites["north"].run())
            record = await hub.ended()
            again.cancel()
    assert record.state == "completed"


async def test_a_fenced_writer_is_refused(hub: Hub) -> None:
    former = await Journal.open(hub.bus, PROJECT, RUN, holder="one")
    await former.append("opened", "r1-train", {})
    await Journal.open(hub.bus, PROJECT, RUN, holder="two")
    with pytest.raises(Fenced, match="another coordinator"):
        await former.append("closed", "r1-train", {})


async def test_a_paused_run_stops_at_a_verb_and_goes_on_where_it_stood(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        asked = asyncio.Event()
        hub.sites["north"].behave = lambda task: (asked.set() if task.round == 2 else None, {})[1]
        await hub.submit(job_of(rounds=40))
        async with asyncio.timeout(60):
            await asked.wait()
        await hub.want("pause")
        paused = await hub.until(lambda record: record.state == "paused")
        assert paused.round < 40
        await hub.want("run")
        assert (await hub.ended()).round == 40
    assert all(set(site.done.values()) == {1} for site in hub.sites.values())


async def test_a_run_that_waits_for_participants_pauses_at_once(hub: Hub) -> None:
    async with hub.running(), at_work(hub.supervisor()):
        await hub.submit(job_of())
        await hub.want("pause")
        await hub.until(lambda record: record.state == "paused")


async def test_a_cancelled_run_ends_and_takes_its_open_tasks_back(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.sites["north"].behave = lambda task: None if task.step == "r1-train" else {}
        await hub.submit(job_of())
        await hub.event("task-answered", step="r1-train")
        await hub.want("cancel")
        assert (await hub.ended()).state == "cancelled"
        assert await hub.bus.snapshot(TASK.stream, TASK.wildcard(**KEY)) == []


async def test_a_paused_run_can_be_cancelled(hub: Hub) -> None:
    async with hub.running(), at_work(hub.supervisor()):
        await hub.submit(job_of())
        await hub.want("pause")
        await hub.until(lambda record: record.state == "paused")
        await hub.want("cancel")
        assert (await hub.ended()).state == "cancelled"


async def journal_of(hub: Hub) -> list[JournalEntry]:
    records = await hub.bus.snapshot(JOURNAL.stream, JOURNAL.of(**KEY))
    return [JournalEntry.decode(record.data) for record in records]
