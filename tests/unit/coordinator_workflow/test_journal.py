"""The journal of a run: one writer at a time, and what its appends do when they are cancelled or unanswered."""

from __future__ import annotations

import asyncio
import json

import pytest

from hanse_coordinator.runs.journal import EntryKind, Journal, JournalEntry
from hanse_coordinator.runs.journal_room import JournalRoom
from hanse_coordinator.verbs.failures import Fenced
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import JOURNAL
from hanse_workflows.failures import RunFailure

PROJECT, RUN = "triage", "run000000001"


class HeldBus(MemoryBus):
    """A bus on which a publication arrives and its confirmation waits while `hold` is set; or which is away."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self.hold: asyncio.Event | None = None
        self.arrived = asyncio.Event()
        self.away: ErrorCode | None = None
        self.published = 0

    async def publish(self, subject: str, data: bytes, **more: object) -> int:
        self.published += 1
        if self.away is not None:
            raise HanseError(self.away, "the bus does not answer")
        sequence = await super().publish(subject, data, **more)  # type: ignore[arg-type]
        self.arrived.set()
        if self.hold is not None:
            await self.hold.wait()
        return sequence


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker()


async def opened(bus: MemoryBus, holder: str = "one") -> Journal:
    return await Journal.open(bus, PROJECT, RUN, holder=holder)


async def written(bus: MemoryBus, run: str = RUN) -> list[tuple[str, str]]:
    assert JOURNAL.stream is not None
    records = await bus.snapshot(JOURNAL.stream, JOURNAL.of(project=PROJECT, run=run))
    entries = [JournalEntry.decode(record.data) for record in records]
    return [(entry.kind, entry.step) for entry in entries]


async def test_an_append_after_one_that_was_cancelled_on_its_way_is_not_taken_for_a_second_writer(
    broker: MemoryBroker,
) -> None:
    bus = HeldBus(broker)
    journal = await opened(bus)
    bus.hold, bus.arrived = asyncio.Event(), asyncio.Event()
    first = asyncio.create_task(journal.append("opened", "r1-train", {}))
    await bus.arrived.wait()
    first.cancel()
    assert isinstance((await asyncio.gather(first, return_exceptions=True))[0], asyncio.CancelledError)
    second = asyncio.create_task(journal.append("closed", "r1-train", {}))
    await asyncio.sleep(0)
    bus.hold.set()
    await second
    await journal.append("opened", "r1-reduce", {})
    assert await written(bus) == [
        ("lease", "lease"), ("opened", "r1-train"), ("closed", "r1-train"), ("opened", "r1-reduce"),
    ]  # fmt: skip


async def test_an_append_after_one_that_failed_is_written(broker: MemoryBroker) -> None:
    bus = HeldBus(broker)
    journal = await opened(bus)
    bus.away = ErrorCode.UNAVAILABLE
    with pytest.raises(HanseError) as away:
        await journal.append("opened", "r1-train", {})
    assert away.value.code is ErrorCode.UNAVAILABLE
    bus.away = None
    await journal.append("opened", "r1-train", {})
    assert await written(bus) == [("lease", "lease"), ("opened", "r1-train")]


@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT])
async def test_a_bus_that_is_away_when_the_journal_is_opened_is_said_at_once(
    broker: MemoryBroker, code: ErrorCode
) -> None:
    bus = HeldBus(broker)
    bus.away = code
    with pytest.raises(HanseError) as away:
        await opened(bus)
    assert (away.value.code, bus.published) == (code, 1)


async def test_who_opened_the_journal_last_writes_it_and_the_former_is_fenced_for_ever(broker: MemoryBroker) -> None:
    former = await opened(MemoryBus(broker), "former")
    await former.append("opened", "r1-train", {})
    latter = await opened(MemoryBus(broker), "latter")
    assert (former.epoch, latter.epoch) == (1, 2)
    for _ in range(2):
        with pytest.raises(Fenced):
            await former.append("closed", "r1-train", {})
    await latter.append("closed", "r1-train", {})
    assert await written(MemoryBus(broker)) == [
        ("lease", "lease"), ("opened", "r1-train"), ("lease", "lease"), ("closed", "r1-train"),
    ]  # fmt: skip


async def test_coordinators_that_open_the_journal_at_once_have_epochs_of_their_own(broker: MemoryBroker) -> None:
    made = await asyncio.gather(*(opened(MemoryBus(broker), f"holder-{number}") for number in range(5)))
    assert sorted(journal.epoch for journal in made) == [1, 2, 3, 4, 5]


async def test_who_never_gets_its_turn_gives_up(broker: MemoryBroker) -> None:
    bus = HeldBus(broker)
    bus.away = ErrorCode.CONFLICT
    with pytest.raises(Fenced):
        await opened(bus)
    assert bus.published > 1


async def test_what_was_recorded_is_given_once_and_nothing_is_replayed_of_an_empty_journal(
    broker: MemoryBroker,
) -> None:
    first = await opened(MemoryBus(broker))
    assert not first.replaying
    await first.append("opened", "r1-train", {"deadline": 1})
    first = await opened(MemoryBus(broker))
    assert first.replaying
    await first.append("closed", "r1-train", {"answers": 2})
    await first.append("opened", "r1-reduce", {"deadline": 3})
    replay = await opened(MemoryBus(broker))
    assert replay.replaying
    assert [replay.take_closed("r1-train") for _ in range(2)] == [{"answers": 2}, None]
    assert replay.take_opened("r1-train") is None
    assert replay.take_closed("r1-reduce") is None
    assert [replay.take_opened("r1-reduce") for _ in range(2)] == [{"deadline": 3}, None]


async def test_what_others_opened_is_no_step_and_a_step_that_was_closed_at_once_was_not_opened(
    broker: MemoryBroker,
) -> None:
    await opened(MemoryBus(broker), "former")
    leased = await opened(MemoryBus(broker), "latter")
    assert not leased.replaying, "leases are no steps"
    await leased.append("closed", "r1-decide", {"answer": 1})
    replay = await opened(MemoryBus(broker))
    assert replay.replaying
    assert (replay.take_opened("r1-decide"), replay.take_opened("lease")) == (None, None)
    assert replay.take_closed("r1-decide") == {"answer": 1}


async def test_a_journals_size_is_that_of_all_its_entries_whoever_wrote_them(broker: MemoryBroker) -> None:
    async def stored() -> int:
        assert JOURNAL.stream is not None
        records = await MemoryBus(broker).snapshot(JOURNAL.stream, JOURNAL.of(project=PROJECT, run=RUN))
        return sum(len(record.data) for record in records)

    journal = await opened(MemoryBus(broker))
    assert journal.size == await stored()
    await journal.append("closed", "r1-decide", {"answer": 1})
    assert journal.size == await stored()
    assert (await opened(MemoryBus(broker), "next")).size == await stored()


async def test_an_abandoned_journal_waits_for_nothing(broker: MemoryBroker) -> None:
    bus = HeldBus(broker)
    journal = await opened(bus)
    await journal.abandon()
    bus.hold, bus.arrived = asyncio.Event(), asyncio.Event()
    appending = asyncio.create_task(journal.append("opened", "r1-train", {}))
    await bus.arrived.wait()
    appending.cancel()
    await asyncio.gather(appending, return_exceptions=True)
    await journal.abandon()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_entry_of_a_newer_release_is_no_failure_of_the_run_but_one_that_cannot_be_read_is(
    broker: MemoryBroker,
) -> None:
    bus = MemoryBus(broker)
    journal = await opened(bus)
    await journal.append("opened", "r1-train", {})
    entry = json.loads((await bus.snapshot(JOURNAL.stream, JOURNAL.of(project=PROJECT, run=RUN)))[-1].data)  # type: ignore[arg-type]
    newer = entry | {"schema": entry["schema"].rpartition("/")[0] + "/99"}
    await bus.publish(JOURNAL.of(project=PROJECT, run=RUN), json.dumps(newer).encode())
    with pytest.raises(HanseError, match="99") as caught:
        await opened(bus)
    assert not isinstance(caught.value, RunFailure)
    await bus.publish(JOURNAL.of(project=PROJECT, run=RUN), b"{")
    with pytest.raises(HanseError):
        await opened(bus)


async def test_a_damaged_entry_ends_the_run_in_words_that_say_which_it_is(broker: MemoryBroker) -> None:
    await opened(MemoryBus(broker))
    await MemoryBus(broker).publish(JOURNAL.of(project=PROJECT, run=RUN), b"{")
    with pytest.raises(RunFailure, match="entry 2 of the journal cannot be read"):
        await opened(MemoryBus(broker))


@pytest.mark.parametrize("kind", ["opened", "closed"])
async def test_two_entries_of_a_step_that_differ_are_an_error_that_names_both_and_take_no_lease(
    broker: MemoryBroker, kind: EntryKind
) -> None:
    former = await opened(MemoryBus(broker))
    await former.append(kind, "r1-reduce", {"model": "a"}, fingerprint="2.00")
    await former.append(kind, "r1-reduce", {"model": "b"}, fingerprint="2.11")
    before = await written(MemoryBus(broker))
    with pytest.raises(RunFailure, match=rf"entries 2 and 3 .* of step r1-reduce, {kind}, .*2\.00 and 2\.11") as raised:
        await opened(MemoryBus(broker))
    assert raised.value.code is ErrorCode.STEP_CHANGED
    assert await written(MemoryBus(broker)) == before


async def test_an_entry_that_is_there_twice_is_taken_once(broker: MemoryBroker) -> None:
    former = await opened(MemoryBus(broker))
    for _ in range(2):
        await former.append("closed", "r1-reduce", {"model": "a"}, fingerprint="2.00")
    replay = await opened(MemoryBus(broker))
    assert [replay.take_closed("r1-reduce") for _ in range(2)] == [{"model": "a"}, None]


async def test_the_projects_journals_have_room_for_no_more_than_they_may_but_for_the_entry_that_a_run_ends_with(
    broker: MemoryBroker,
) -> None:
    former = await opened(MemoryBus(broker))
    await former.append("opened", "r1-train", {"long": "x" * 500})
    room, other = JournalRoom(former.size + 400), "run000000002"
    taken = await Journal.open(MemoryBus(broker), PROJECT, RUN, holder="next", room=room)
    journal = await Journal.open(MemoryBus(broker), PROJECT, other, holder="next", room=room)
    size, asked = journal.size, {"long": "x" * 250}
    with pytest.raises(RunFailure, match=rf"quota journals .*its other runs have {taken.size}, ") as full:
        await journal.append("opened", "r1-train", asked)
    assert full.value.code is ErrorCode.QUOTA
    assert journal.size == size
    assert await written(MemoryBus(broker), other) == [("lease", "lease")]
    await journal.append("closed", "end", asked, last=True)
    assert await written(MemoryBus(broker), other) == [("lease", "lease"), ("closed", "end")]
