"""How work is divided, asked for and told on every bus: jobs, requests and tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.subjects import DOORS, JOB, TELL, Door, Role
from servers import Connect, NatsServer


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
    async with asyncio.timeout(60), site.hear(TOLD) as early:
        await hub.tell(TOLD, b"before")
        assert await anext(early) is None
        # Who listened has it. So the server has given it to all that there were.
        before = await anext(early)
    assert before is not None
    assert before.data == b"before"
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


async def test_a_purged_job_is_not_given_out(connect: Connect, bus: Bus, project: str) -> None:
    worker = await connect(Role.AGGREGATOR)
    for run in ("purged", "left"):
        await bus.publish(JOB.of(project=project, run=run, step="s", job="j"), run.encode())
    await bus.purge(JOB.stream, JOB.wildcard(project=project, run="purged"))
    async with asyncio.timeout(60), worker.work(JOB.stream) as jobs:
        job = await anext(jobs)
        assert job.record.data == b"left"
        await job.done()


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
