"""What the bus in memory does when time passes, as JetStream does: ages, sizes, duplicates, silent workers, retries."""

from __future__ import annotations

import asyncio

import pytest

from clocks import in_virtual_time
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import EVENT, JOB, JOURNAL, UPDATE
from hanse_fabric.virtual_time import VirtualClock

ENTRY = JOURNAL.of(project="p", run="r")
UPDATE_OF_A = UPDATE.of(project="p", run="r", participant="a", digest="d")
A_JOB = JOB.of(project="p", run="r", step="s", job="j")


@in_virtual_time
async def test_a_message_id_is_remembered_for_two_minutes(clock: VirtualClock) -> None:
    bus = MemoryBus(MemoryBroker(clock))
    first = await bus.publish(ENTRY, b"one", message_id="same")
    await clock.sleep(119)
    assert await bus.publish(ENTRY, b"one", message_id="same") == first
    await clock.sleep(2)
    assert await bus.publish(ENTRY, b"one", message_id="same") > first


@in_virtual_time
async def test_messages_go_when_their_stream_says_that_they_are_too_old(clock: VirtualClock) -> None:
    bus = MemoryBus(MemoryBroker(clock))
    await bus.publish(UPDATE_OF_A, b"update")
    await bus.publish(ENTRY, b"entry")
    assert UPDATE.stream is not None
    await clock.sleep(UPDATE.stream.max_age_s - 1)
    assert await bus.last(UPDATE.stream, UPDATE_OF_A) is not None
    await clock.sleep(2)
    assert await bus.last(UPDATE.stream, UPDATE_OF_A) is None
    assert await bus.snapshot(UPDATE.stream, UPDATE_OF_A) == []
    await clock.sleep(400 * 86_400)
    assert await bus.last(JOURNAL.stream, ENTRY) is not None


@in_virtual_time
async def test_the_oldest_messages_go_when_a_stream_is_full(clock: VirtualClock) -> None:
    bus, stream = MemoryBus(MemoryBroker(clock)), EVENT.stream
    assert stream is not None
    piece = 1 << 20
    count = stream.max_bytes // piece
    for number in range(count + 3):
        await bus.publish(EVENT.of(project="p", run=f"r{number}"), bytes(piece))
    kept = await bus.snapshot(stream, EVENT.wildcard(project="p"))
    assert [record.subject for record in kept] == [EVENT.of(project="p", run=f"r{n}") for n in range(3, count + 3)]


@in_virtual_time
async def test_the_job_of_a_crashed_worker_is_offered_again_when_it_was_silent_for_long_enough(
    clock: VirtualClock,
) -> None:
    broker = MemoryBroker(clock)
    first, second = MemoryBus(broker), MemoryBus(broker)
    await first.publish(A_JOB, b"job")
    assert JOB.stream is not None
    async with first.work(JOB.stream) as dying, second.work(JOB.stream) as others:
        held = await anext(dying)
        await first.close()
        crashed = clock.monotonic()
        again = await anext(others)
        assert clock.monotonic() - crashed == pytest.approx(JOB.stream.ack_wait_s)
        await held.done()  # its word counts no more
        await again.give_back()
        last = await anext(others)
        assert last.record.data == b"job"
        await last.done()


@in_virtual_time
async def test_a_job_that_was_given_back_does_not_come_twice_when_its_former_worker_crashes(
    clock: VirtualClock,
) -> None:
    broker = MemoryBroker(clock)
    first, second = MemoryBus(broker), MemoryBus(broker)
    await first.publish(A_JOB, b"job")
    assert JOB.stream is not None
    async with first.work(JOB.stream) as one, second.work(JOB.stream) as other:
        await (await anext(one)).give_back()
        held = await anext(other)
        await first.close()
        with pytest.raises(TimeoutError):
            async with clock.timeout(60):
                await anext(other)
        await held.done()


@in_virtual_time
async def test_a_request_goes_to_another_server_when_the_first_crashes_before_it_answers(clock: VirtualClock) -> None:
    broker = MemoryBroker(clock)
    dying, living, asking = MemoryBus(broker), MemoryBus(broker), MemoryBus(broker)

    async def never(_: str, __: bytes) -> bytes:
        return await asyncio.get_running_loop().create_future()

    async def answer(_: str, __: bytes) -> bytes:
        return b"answer"

    subject = "hanse.v1.registry.request.p"
    await dying.serve(subject, never, group="registry")
    asked = asyncio.create_task(asking.request(subject, b"", timeout=10))
    await clock.sleep(0.1)
    await dying.close()
    await living.serve(subject, answer, group="registry")
    assert await asked == b"answer"
    assert clock.monotonic() < 10


@in_virtual_time
async def test_a_request_times_out_by_the_clock(clock: VirtualClock) -> None:
    with pytest.raises(HanseError) as refusal:
        await MemoryBus(MemoryBroker(clock)).request("hanse.v1.registry.request.p", b"", timeout=3600)
    assert refusal.value.code is ErrorCode.TIMEOUT
    assert clock.monotonic() == pytest.approx(3600)
