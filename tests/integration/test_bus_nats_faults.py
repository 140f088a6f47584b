"""nats-server killed in the middle of everything: nothing lost, nothing twice, nothing stuck."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from nats.aio.msg import Msg

from hanse_fabric.bus.calls import Calls
from hanse_fabric.bus.follower import IDLE, Follower
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.bus.port import Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import DOORS, JOB, JOURNAL, WRITTEN, Door, Role
from servers import NatsServer

SUBJECT = JOURNAL.of(project="p", run="r")


async def with_three(server: NatsServer) -> NatsBus:
    """A connection, after three records were written."""
    bus = await server.connect(Role.COORDINATOR)
    for number in range(3):
        await bus.publish(SUBJECT, b"%d" % number)
    return bus


def numbers(stored: Sequence[Record]) -> list[int]:
    return [int(record.data) for record in stored]


async def test_a_follower_loses_and_repeats_nothing_when_the_server_is_killed(mortal_nats: NatsServer) -> None:
    reader, writer = await mortal_nats.connect(Role.COORDINATOR), await mortal_nats.connect(Role.COORDINATOR)
    seen: list[int] = []
    marks = {mark: asyncio.Event() for mark in (50, 120, 200)}

    async def read() -> None:
        async with reader.follow(JOURNAL.stream, SUBJECT) as records:
            async for record in records:
                seen.append(int(record.data))
                if seen[-1] in marks:
                    marks[seen[-1]].set()
                if seen[-1] == 299:
                    return

    async def write() -> None:
        for number in range(300):
            await writer.publish(SUBJECT, b"%d" % number)

    async def kill() -> None:
        for mark in marks.values():
            await mark.wait()
            await mortal_nats.restart()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for part in (read(), write(), kill()):
            group.create_task(part)
    assert seen == list(range(300))
    await reader.close()
    await writer.close()


async def test_a_fenced_append_survives_a_kill_without_a_conflict_with_itself(mortal_nats: NatsServer) -> None:
    writer = await mortal_nats.connect(Role.COORDINATOR)
    last = 0
    marks = {mark: asyncio.Event() for mark in (20, 60, 110)}

    async def write() -> None:
        nonlocal last
        for number in range(200):
            last = await writer.publish(SUBJECT, b"%d" % number, expected_last=last)
            if number in marks:
                marks[number].set()

    async with asyncio.timeout(60):
        writing = asyncio.create_task(write())
        for mark in marks.values():
            await mark.wait()
            await mortal_nats.restart()
        await writing
    stored = await writer.snapshot(JOURNAL.stream, SUBJECT)
    assert numbers(stored) == list(range(200))
    await writer.close()


async def test_a_snapshot_whose_request_was_answered_twice_is_whole(
    mortal_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is lost, as when the connection breaks or a busy server is late, and all was sent by then."""
    bus = await with_three(mortal_nats)
    attempt = Calls.attempt
    lost: list[str] = []

    async def losing(calls: Calls, subject: str, data: bytes, *rest: Any) -> Msg | None:
        answer = await attempt(calls, subject, data, *rest)
        if "CONSUMER.CREATE" in subject and not lost:
            lost.append(subject)
            return None
        return answer

    monkeypatch.setattr(Calls, "attempt", losing)
    assert numbers(await bus.snapshot(JOURNAL.stream, SUBJECT)) == [0, 1, 2]
    assert lost
    await bus.close()


async def test_snapshots_are_whole_however_the_server_is_killed(mortal_nats: NatsServer) -> None:
    bus = await with_three(mortal_nats)
    over = asyncio.Event()

    async def read() -> None:
        while not over.is_set():
            stored = await bus.snapshot(JOURNAL.stream, SUBJECT, timeout=60)
            assert numbers(stored) == [0, 1, 2]

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(read())
        for _ in range(12):
            await asyncio.sleep(0.02)
            await asyncio.to_thread(mortal_nats.kill)
            await asyncio.to_thread(mortal_nats.start)
        over.set()
    await bus.close()


async def test_a_snapshot_does_not_end_at_a_false_idle_sign_while_messages_wait(
    mortal_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await with_three(mortal_nats)
    nothing_yet = Follower.open

    async def idle_first(follower: Follower, deadline: float) -> int:
        follower._queue.put_nowait(IDLE)
        return await nothing_yet(follower, deadline)

    monkeypatch.setattr(Follower, "open", idle_first)
    assert numbers(await bus.snapshot(JOURNAL.stream, SUBJECT)) == [0, 1, 2]
    await bus.close()


async def test_publishing_while_the_server_is_down_waits_for_it(mortal_nats: NatsServer) -> None:
    writer = await mortal_nats.connect(Role.COORDINATOR)
    mortal_nats.kill()
    publishing = asyncio.create_task(writer.publish(SUBJECT, b"x", timeout=30))
    await asyncio.sleep(0)
    mortal_nats.start()
    await publishing
    assert len(await writer.snapshot(JOURNAL.stream, SUBJECT)) == 1
    await writer.close()


async def test_publishing_without_a_server_ends_at_its_timeout(mortal_nats: NatsServer) -> None:
    writer = await mortal_nats.connect(Role.COORDINATOR)
    mortal_nats.kill()
    with pytest.raises(HanseError) as refusal:
        await writer.publish(SUBJECT, b"x", timeout=0.5)
    assert refusal.value.code is ErrorCode.UNAVAILABLE
    await writer.close()


async def test_a_worker_goes_on_after_a_kill_and_every_job_is_done(mortal_nats: NatsServer) -> None:
    coordinator = await mortal_nats.connect(Role.COORDINATOR)
    workers = [await mortal_nats.connect(Role.AGGREGATOR) for _ in range(2)]
    done: set[str] = set()
    all_done = asyncio.Event()

    async def work(bus: NatsBus) -> None:
        async with bus.work(JOB.stream) as jobs:
            async for job in jobs:
                await job.done()
                done.add(job.record.data.decode())
                if len(done) == 60:
                    all_done.set()

    async with asyncio.timeout(60):
        working = [asyncio.create_task(work(bus)) for bus in workers]
        for number in range(60):
            await coordinator.publish(JOB.of(project="p", run="r", step="s", job=f"j{number}"), b"%d" % number)
            if number in (20, 40):
                await mortal_nats.restart()
        await all_done.wait()
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert done == {str(number) for number in range(60)}
    for bus in (coordinator, *workers):
        await bus.close()


async def test_a_job_held_through_a_kill_can_be_finished(mortal_nats: NatsServer) -> None:
    coordinator, worker = await mortal_nats.connect(Role.COORDINATOR), await mortal_nats.connect(Role.AGGREGATOR)
    await coordinator.publish(JOB.of(project="p", run="r", step="s", job="j"), b"job")
    async with asyncio.timeout(40), worker.work(JOB.stream) as jobs:
        job = await anext(jobs)
        await mortal_nats.restart()
        await job.done()
    for bus in (coordinator, worker):
        await bus.close()


async def test_requests_are_answered_again_after_a_kill(mortal_nats: NatsServer) -> None:
    coordinator = await mortal_nats.connect(Role.COORDINATOR)
    site, _ = await mortal_nats.enrol("p", "north")

    async def answer(subject: str, request: bytes) -> bytes:
        return request

    served = await coordinator.serve(DOORS[Door.LINK].wildcard(), answer, group="coordinators")
    subject = DOORS[Door.LINK].of(region="hub", project="p", participant="north")
    assert await site.request(subject, b"before", timeout=20) == b"before"
    await mortal_nats.restart()
    assert await site.request(subject, b"after", timeout=20) == b"after"
    await served.stop()
    for bus in (coordinator, site):
        await bus.close()


async def test_a_hundred_followers_of_one_connection_go_on_after_a_kill(mortal_nats: NatsServer) -> None:
    bus = await mortal_nats.connect(Role.COORDINATOR)
    entered = asyncio.Semaphore(0)

    async def one(run: str) -> None:
        async with bus.follow(JOURNAL.stream, JOURNAL.of(project="p", run=run)) as records:
            entered.release()
            assert (await anext(records)).data == run.encode()

    runs = [f"r{number}-{secrets.token_hex(2)}" for number in range(100)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for run in runs:
            group.create_task(one(run))
        for _ in runs:
            await entered.acquire()
        await mortal_nats.restart()
        for run in runs:
            await bus.publish(JOURNAL.of(project="p", run=run), run.encode())
    await bus.close()


async def test_more_than_a_thousand_may_follow_one_stream(mortal_nats: NatsServer) -> None:
    """The server's own limit is 1,000 consumers a stream; each of 1,000 participants follows its tasks."""
    bus = await mortal_nats.connect(Role.COORDINATOR)
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        for number in range(1100):
            await stack.enter_async_context(bus.follow(JOURNAL.stream, JOURNAL.of(project="p", run=f"r{number}")))
    await bus.close()


async def test_provisioning_again_changes_nothing_and_keeps_messages(mortal_nats: NatsServer) -> None:
    bus = await mortal_nats.connect(Role.COORDINATOR)
    await bus.publish(SUBJECT, b"kept")
    await mortal_nats.provision()
    assert [record.data for record in await bus.snapshot(JOURNAL.stream, SUBJECT)] == [b"kept"]
    await bus.close()


async def test_a_listener_that_raises_ends_neither_its_own_listening_nor_others(
    mortal_nats: NatsServer,
) -> None:
    hearer, teller = await mortal_nats.connect(Role.COORDINATOR), await mortal_nats.connect(Role.AGGREGATOR)
    seen: list[bytes] = []
    all_seen = asyncio.Event()

    async def listener(message: Msg) -> None:
        seen.append(message.data)
        if len(seen) == 3:
            all_seen.set()
        raise ValueError("a listener's defect")

    await hearer._connection.subscribe(WRITTEN.wildcard(), listener)
    where = {"project": "p", "run": "r", "participant": "site", "digest": "0" * 64}
    async with asyncio.timeout(30):
        for number in range(3):
            await teller.tell(WRITTEN.of(**where), b"%d" % number)
        await all_seen.wait()
        assert await hearer.publish(SUBJECT, b"an answer comes all the same") > 0
    assert seen == [b"0", b"1", b"2"]
    await hearer.close()
    await teller.close()
