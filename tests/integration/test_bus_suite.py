"""What the streams of every bus do: one suite, for the one inside the process and for NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import EVENT, JOURNAL, TASK, Role
from servers import Connect


def journal(project: str, run: str = "r") -> str:
    return JOURNAL.of(project=project, run=run)


async def take(records: AsyncIterator[Record], count: int) -> list[Record]:
    async with asyncio.timeout(60):
        return [await anext(records) for _ in range(count)]


async def test_a_published_message_is_the_last_of_its_subject(bus: Bus, project: str) -> None:
    sequence = await bus.publish(journal(project), b"one", headers={"traceparent": "00-1"})
    record = await bus.last(JOURNAL.stream, journal(project))
    assert record is not None
    assert (record.data, record.sequence, record.subject) == (b"one", sequence, journal(project))
    assert record.headers["traceparent"] == "00-1"


async def test_a_subject_without_messages_has_no_last(bus: Bus, project: str) -> None:
    assert await bus.last(JOURNAL.stream, journal(project)) is None


async def test_publishing_the_same_id_twice_stores_it_once(bus: Bus, project: str) -> None:
    first = await bus.publish(journal(project), b"one", message_id=f"{project}-1")
    assert await bus.publish(journal(project), b"one", message_id=f"{project}-1") == first
    assert len(await bus.snapshot(JOURNAL.stream, journal(project))) == 1


async def test_a_second_writer_with_the_same_expectation_is_refused(bus: Bus, project: str) -> None:
    first = await bus.publish(journal(project), b"one", expected_last=0)
    with pytest.raises(HanseError) as refusal:
        await bus.publish(journal(project), b"other", expected_last=0)
    assert refusal.value.code is ErrorCode.CONFLICT
    assert await bus.publish(journal(project), b"two", expected_last=first) > first


async def test_an_expected_sequence_is_of_the_subject_and_not_of_the_stream(bus: Bus, project: str) -> None:
    first = await bus.publish(journal(project, "a"), b"one")
    await bus.publish(journal(project, "b"), b"elsewhere")
    assert await bus.publish(journal(project, "a"), b"two", expected_last=first) > first


async def test_a_repeated_publication_does_not_conflict_with_itself(bus: Bus, project: str) -> None:
    first = await bus.publish(journal(project), b"one", message_id=f"{project}-1", expected_last=0)
    assert await bus.publish(journal(project), b"one", message_id=f"{project}-1", expected_last=0) == first


async def test_a_message_above_the_limit_is_too_large(bus: Bus, project: str) -> None:
    await bus.publish(journal(project), bytes(1 << 20))
    with pytest.raises(HanseError) as refusal:
        await bus.publish(journal(project), bytes((1 << 20) + 1))
    assert refusal.value.code is ErrorCode.TOO_LARGE


async def test_a_stream_of_last_messages_keeps_one_per_subject(bus: Bus, project: str) -> None:
    subject = TASK.of(project=project, participant="north", run="r", step="s")
    await bus.publish(subject, b"old")
    await bus.publish(subject, b"new")
    assert [record.data for record in await bus.snapshot(TASK.stream, subject)] == [b"new"]


async def test_a_follower_gets_what_was_there_and_then_what_comes(bus: Bus, project: str) -> None:
    for number in range(3):
        await bus.publish(journal(project), b"%d" % number)
    async with bus.follow(JOURNAL.stream, journal(project)) as records:
        before = await take(records, 3)
        await bus.publish(journal(project), b"3")
        after = await take(records, 1)
    assert [record.data for record in before + after] == [b"0", b"1", b"2", b"3"]
    assert [record.pending for record in before] == [2, 1, 0]


async def test_a_follower_begins_behind_the_sequence_it_names(bus: Bus, project: str) -> None:
    sequences = [await bus.publish(journal(project), b"%d" % number) for number in range(3)]
    async with bus.follow(JOURNAL.stream, journal(project), after=sequences[0]) as records:
        assert [record.sequence for record in await take(records, 2)] == sequences[1:]


async def test_a_follower_with_a_wildcard_gets_matching_subjects_only(bus: Bus, project: str) -> None:
    await bus.publish(journal(f"{project}x"), b"other")
    await bus.publish(journal(project, "a"), b"a")
    await bus.publish(journal(project, "b"), b"b")
    async with bus.follow(JOURNAL.stream, JOURNAL.wildcard(project=project)) as records:
        assert [record.data for record in await take(records, 2)] == [b"a", b"b"]


async def test_a_snapshot_of_nothing_is_empty(bus: Bus, project: str) -> None:
    assert await bus.snapshot(JOURNAL.stream, JOURNAL.wildcard(project=project)) == []


async def test_a_purge_removes_what_matches_and_nothing_else(bus: Bus, project: str) -> None:
    for participant in ("north", "south"):
        await bus.publish(TASK.of(project=project, participant=participant, run="r", step="s"), b"task")
    await bus.purge(TASK.stream, TASK.wildcard(project=project, participant="north"))
    left = await bus.snapshot(TASK.stream, TASK.wildcard(project=project))
    assert [TASK.parse(record.subject)["participant"] for record in left] == ["south"]


async def test_after_a_purge_a_subject_may_be_begun_anew_and_an_id_still_counts(bus: Bus, project: str) -> None:
    task = TASK.of(project=project, participant="north", run="r", step="s")
    first = await bus.publish(task, b"one", message_id=f"{project}-1", expected_last=0)
    await bus.purge(TASK.stream, task)
    assert await bus.publish(task, b"one", message_id=f"{project}-1") == first
    assert await bus.last(TASK.stream, task) is None
    assert await bus.publish(task, b"anew", expected_last=0) > first


async def test_a_follower_of_last_messages_gets_the_newest_of_each_subject(bus: Bus, project: str) -> None:
    for step, data in (("a", b"old"), ("b", b"only"), ("a", b"new")):
        await bus.publish(TASK.of(project=project, participant="north", run="r", step=step), data)
    async with bus.follow(TASK.stream, TASK.wildcard(project=project)) as records:
        assert [record.data for record in await take(records, 2)] == [b"only", b"new"]


async def test_a_closed_connection_refuses_to_publish(connect: Connect, project: str) -> None:
    bus = await connect(Role.COORDINATOR)
    await bus.close()
    with pytest.raises(HanseError) as refusal:
        await bus.publish(journal(project), b"late", timeout=1)
    assert refusal.value.code is ErrorCode.UNAVAILABLE


async def test_a_closed_connection_ends_its_followers(connect: Connect, project: str) -> None:
    bus = await connect(Role.COORDINATOR)
    async with bus.follow(JOURNAL.stream, journal(project)) as records:
        waiting = asyncio.ensure_future(anext(records))
        await asyncio.sleep(0)
        await bus.close()
        async with asyncio.timeout(60):
            with pytest.raises(HanseError) as refusal:
                await waiting
    assert refusal.value.code is ErrorCode.UNAVAILABLE


async def test_many_followers_each_get_their_own(bus: Bus, project: str) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:

        async def one(run: str) -> None:
            async with bus.follow(EVENT.stream, EVENT.of(project=project, run=run)) as records:
                assert (await anext(records)).data == run.encode()

        for number in range(100):
            group.create_task(one(f"r{number}"))
        for number in range(100):
            await bus.publish(EVENT.of(project=project, run=f"r{number}"), f"r{number}".encode())
