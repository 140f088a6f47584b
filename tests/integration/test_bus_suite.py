"""What every bus does: one suite, for the one inside the process and for NATS."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ClassVar

import pytest

from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Message
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import DOORS, EVENT, JOB, JOURNAL, RUNS, TASK, TELL, Door, Role
from servers import NatsServer

Connect = Callable[[Role], Awaitable[Bus]]


@pytest.fixture(params=["memory", "nats"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Connections of services, closed after the test."""
    open_buses: list[Bus] = []
    broker = MemoryBroker()
    server: NatsServer | None = request.getfixturevalue("nats_server") if request.param == "nats" else None

    async def new(role: Role) -> Bus:
        bus: Bus = MemoryBus(broker) if server is None else await server.connect(role)
        open_buses.append(bus)
        return bus

    yield new
    for bus in open_buses:
        await bus.close()


@pytest.fixture(params=["memory", "nats"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Bus, Bus]]:
    """The coordinator's connection, and that of the participant north of project p: sites alone hear tells."""
    if request.param == "memory":
        broker = MemoryBroker()
        hub, site = MemoryBus(broker), MemoryBus(broker)
    else:
        server: NatsServer = request.getfixturevalue("nats_server")
        hub, (site, _) = await server.connect(Role.COORDINATOR), await server.enrol("p", "north")  # type: ignore[assignment]
    yield hub, site
    await hub.close()
    await site.close()


TOLD = TELL.of(region="hub", project="p", participant="north")


async def test_what_is_told_reaches_who_listens_in_order_and_nobody_who_comes_later(pair: tuple[Bus, Bus]) -> None:
    hub, site = pair
    await hub.tell(TOLD, b"before")
    assert await hub.ready()  # the server has it, and has nobody to give it to
    async with asyncio.timeout(60), site.hear(TOLD) as first, site.hear(TOLD) as second:
        for told in (first, second):
            assert await anext(told) is None  # what was told before may have been missed
        for number in range(3):
            await hub.tell(TOLD, b"%d" % number, headers={"traceparent": "00-1"})
        for told in (first, second):
            found = [await anext(told) for _ in range(3)]
            assert [(each.data, each.sequence) for each in found if each] == [(b"0", 0), (b"1", 0), (b"2", 0)]
            assert found[0] is not None
            assert found[0].headers["traceparent"] == "00-1"


async def test_what_is_told_where_somebody_serves_is_handled_without_an_answer(pair: tuple[Bus, Bus]) -> None:
    hub, site = pair
    handled: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(_: str, data: bytes) -> bytes:
        handled.put_nowait(data)
        return b"nobody hears this"

    row = DOORS[Door.PROGRESS]
    served = await hub.serve(row.wildcard(), handle, group="g")
    await site.tell(row.of(region="hub", project="p", participant="north"), b"half")
    assert await asyncio.wait_for(handled.get(), 60) == b"half"
    await served.stop()


async def test_who_listens_learns_that_the_connection_was_closed(pair: tuple[Bus, Bus]) -> None:
    _, site = pair
    async with asyncio.timeout(60), site.hear(TOLD) as told:
        assert await anext(told) is None
        await site.close()
        with pytest.raises(HanseError) as closed:
            await anext(told)
    assert closed.value.code is ErrorCode.UNAVAILABLE


@pytest.fixture
async def bus(connect: Connect) -> Bus:
    return await connect(Role.COORDINATOR)


@pytest.fixture
def project() -> str:
    """A name that no other test uses: the server is shared."""
    return f"p{secrets.token_hex(6)}"


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


async def test_a_purged_job_is_not_given_out(connect: Connect, bus: Bus, project: str) -> None:
    worker = await connect(Role.AGGREGATOR)
    for run in ("purged", "left"):
        await bus.publish(JOB.of(project=project, run=run, step="s", job="j"), run.encode())
    await bus.purge(JOB.stream, JOB.wildcard(project=project, run="purged"))
    async with asyncio.timeout(60), worker.work(JOB.stream) as jobs:
        job = await anext(jobs)
        assert job.record.data == b"left"
        await job.done()


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


async def test_a_job_left_undone_goes_to_another_worker(connect: Connect, bus: Bus, project: str) -> None:
    first, second = await connect(Role.AGGREGATOR), await connect(Role.AGGREGATOR)
    subject = JOB.of(project=project, run="r", step="s", job="j")
    await bus.publish(subject, b"job")
    async with asyncio.timeout(60):
        async with first.work(JOB.stream) as jobs:
            assert (await anext(jobs)).record.data == b"job"
        async with second.work(JOB.stream) as jobs:
            again = await anext(jobs)
            assert again.record.subject == subject
            await again.done()


async def test_a_finished_job_is_not_given_out_again(connect: Connect, bus: Bus, project: str) -> None:
    worker = await connect(Role.AGGREGATOR)
    for job in ("a", "b"):
        await bus.publish(JOB.of(project=project, run="r", step="s", job=job), job.encode())
    async with asyncio.timeout(60):
        async with worker.work(JOB.stream) as jobs:
            first = await anext(jobs)
            await first.done()
        async with worker.work(JOB.stream) as jobs:
            second = await anext(jobs)
            await second.done()
    assert {first.record.data, second.record.data} == {b"a", b"b"}


async def test_two_workers_hold_different_jobs(connect: Connect, bus: Bus, project: str) -> None:
    workers = [await connect(Role.AGGREGATOR), await connect(Role.AGGREGATOR)]
    for name in ("a", "b"):
        await bus.publish(JOB.of(project=project, run="r", step="s", job=name), name.encode())
    async with asyncio.timeout(60), workers[0].work(JOB.stream) as one, workers[1].work(JOB.stream) as other:
        held = [await anext(one), await anext(other)]
        assert {job.record.data for job in held} == {b"a", b"b"}
        for job in held:
            await job.done()


async def test_a_job_given_back_is_offered_again(connect: Connect, bus: Bus, project: str) -> None:
    worker = await connect(Role.AGGREGATOR)
    await bus.publish(JOB.of(project=project, run="r", step="s", job="j"), b"job")
    async with asyncio.timeout(60), worker.work(JOB.stream) as jobs:
        await (await anext(jobs)).give_back()
        again = await anext(jobs)
        assert again.record.data == b"job"
        await again.done()


async def test_a_request_waits_for_a_server_to_appear(connect: Connect, project: str) -> None:
    registry, coordinator = await connect(Role.MODEL_REGISTRY), await connect(Role.COORDINATOR)
    subject = f"hanse.v1.registry.request.{project}"
    asked = asyncio.ensure_future(coordinator.request(subject, b"hello", timeout=60))

    async def answer(subject: str, request: bytes) -> bytes:
        return subject.encode() + b" " + request

    await asyncio.sleep(0)
    served = await registry.serve("hanse.v1.registry.request.*", answer, group="registry")
    assert await asked == subject.encode() + b" hello"
    await served.stop()


async def test_a_request_that_nobody_answers_times_out(bus: Bus, project: str) -> None:
    with pytest.raises(HanseError) as refusal:
        await bus.request(f"hanse.v1.registry.publish.{project}", b"hello", timeout=0.3)
    assert refusal.value.code is ErrorCode.TIMEOUT


async def test_a_handler_that_fails_answers_nothing_and_serves_on(connect: Connect, project: str) -> None:
    registry, coordinator = await connect(Role.MODEL_REGISTRY), await connect(Role.COORDINATOR)

    async def answer(subject: str, request: bytes) -> bytes:
        if request == b"bad":
            raise ValueError("bad")
        return b"good"

    served = await registry.serve("hanse.v1.registry.request.*", answer, group="registry")
    subject = f"hanse.v1.registry.request.{project}"
    with pytest.raises(HanseError) as refusal:
        await coordinator.request(subject, b"bad", timeout=0.3)
    assert refusal.value.code is ErrorCode.TIMEOUT
    assert await coordinator.request(subject, b"fine", timeout=60) == b"good"
    await served.stop()


async def test_a_slow_answer_does_not_hold_up_the_next_request(connect: Connect, project: str) -> None:
    registry, coordinator = await connect(Role.MODEL_REGISTRY), await connect(Role.COORDINATOR)
    second = asyncio.Event()

    async def answer(_: str, request: bytes) -> bytes:
        if request == b"first":
            await second.wait()
        second.set()
        return request

    served = await registry.serve("hanse.v1.registry.request.*", answer, group="registry")
    subject = f"hanse.v1.registry.request.{project}"
    answers = await asyncio.gather(*(coordinator.request(subject, each, timeout=60) for each in (b"first", b"second")))
    assert answers == [b"first", b"second"]
    await served.stop()


async def test_a_request_that_waits_long_is_sent_again_and_a_late_answer_to_its_first_sending_counts(
    connect: Connect, project: str
) -> None:
    registry, coordinator = await connect(Role.MODEL_REGISTRY), await connect(Role.COORDINATOR)
    sent_again = asyncio.Event()
    times: list[str] = []

    async def answer(subject: str, _: bytes) -> bytes:
        times.append(subject)
        if len(times) > 1:
            sent_again.set()
            await asyncio.Event().wait()  # as a member that hangs
        await sent_again.wait()
        return b"late"

    served = await registry.serve("hanse.v1.registry.request.*", answer, group="registry")
    assert await coordinator.request(f"hanse.v1.registry.request.{project}", b"", timeout=60) == b"late"
    await served.stop()


async def test_a_stopped_server_leaves_requests_to_the_others(connect: Connect, project: str) -> None:
    coordinator = await connect(Role.COORDINATOR)
    registries = [await connect(Role.MODEL_REGISTRY), await connect(Role.MODEL_REGISTRY)]
    subject = f"hanse.v1.registry.request.{project}"

    async def first(_: str, __: bytes) -> bytes:
        return b"first"

    async def second(_: str, __: bytes) -> bytes:
        return b"second"

    one = await registries[0].serve("hanse.v1.registry.request.*", first, group="registry")
    other = await registries[1].serve("hanse.v1.registry.request.*", second, group="registry")
    seen = {await coordinator.request(subject, b"", timeout=60) for _ in range(40)}
    assert seen == {b"first", b"second"}
    await one.stop()
    assert {await coordinator.request(subject, b"", timeout=60) for _ in range(10)} == {b"second"}
    await other.stop()


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


class Note(Message):
    schema_id: ClassVar[str] = "hanse.test-note/1"

    text: str
    count: int = 0


@pytest.fixture
def notes(bus: Bus) -> Bucket[Note]:
    return Bucket(bus, RUNS, Note)


async def test_a_record_is_created_once(notes: Bucket[Note], project: str) -> None:
    created = await notes.create(Note(text="a"), project=project, run="r")
    assert await notes.get(project=project, run="r") == created
    with pytest.raises(HanseError) as refusal:
        await notes.create(Note(text="b"), project=project, run="r")
    assert refusal.value.code is ErrorCode.CONFLICT


async def test_an_update_of_a_record_that_changed_is_refused(notes: Bucket[Note], project: str) -> None:
    created = await notes.create(Note(text="a"), project=project, run="r")
    await notes.update(Note(text="b"), created.revision, project=project, run="r")
    with pytest.raises(HanseError) as refusal:
        await notes.update(Note(text="c"), created.revision, project=project, run="r")
    assert refusal.value.code is ErrorCode.CONFLICT


async def test_concurrent_changes_are_all_made(notes: Bucket[Note], project: str) -> None:
    await notes.create(Note(text="a"), project=project, run="r")

    def one_more(note: Note) -> Note:
        return note.model_copy(update={"count": note.count + 1})

    await asyncio.gather(*(notes.change(one_more, project=project, run="r") for _ in range(8)))
    entry = await notes.require(project=project, run="r")
    assert entry.value.count == 8


async def test_a_deleted_record_is_gone_and_can_be_created_again(notes: Bucket[Note], project: str) -> None:
    await notes.create(Note(text="a"), project=project, run="r")
    await notes.delete(project=project, run="r")
    assert await notes.get(project=project, run="r") is None
    assert await notes.list(project=project) == []
    await notes.create(Note(text="b"), project=project, run="r")
    assert [entry.value.text for entry in await notes.list(project=project)] == ["b"]


async def test_a_watch_tells_what_is_there_that_it_caught_up_and_what_changes(
    notes: Bucket[Note], project: str
) -> None:
    created = await notes.create(Note(text="a"), project=project, run="r")
    async with asyncio.timeout(60), notes.watch(project=project) as changes:
        first = await anext(changes)
        assert first is not None
        assert first.value == Note(text="a")
        assert await anext(changes) is None
        await notes.update(Note(text="b"), created.revision, project=project, run="r")
        # Read before the next change: a bucket keeps, and so a watch may give, only the newest.
        second = await anext(changes)
        assert second is not None
        assert second.value == Note(text="b")
        await notes.delete(project=project, run="r")
        third = await anext(changes)
        assert third is not None
        assert third.value is None
        assert third.tokens == {"project": project, "run": "r"}


async def test_a_watch_of_nothing_has_caught_up_at_once(notes: Bucket[Note], project: str) -> None:
    async with asyncio.timeout(60), notes.watch(project=project) as changes:
        assert await anext(changes) is None


async def test_a_key_that_would_widen_the_subject_is_refused(notes: Bucket[Note]) -> None:
    for bad in ("*", ">", "a.b", "", "a b"):
        with pytest.raises(HanseError) as refusal:
            await notes.get(project=bad, run="r")
        assert refusal.value.code is ErrorCode.INVALID_INPUT
