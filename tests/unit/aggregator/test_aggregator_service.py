"""The aggregator on a bus: jobs are taken, done once, redone after a crash, and refused or put back in order."""

import asyncio
import threading

import numpy as np
import pytest

from clocks import in_virtual_time
from hanse_fabric import queue
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Reduced
from hanse_fabric.subjects import JOB, REDUCED, UPDATE
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_reduction.engine import Engine
from unit.aggregator.at_work import running

LAYOUT = Layout.of([Entry("w", "F32", (4,))])


def _file(value):
    return LAYOUT.header + np.full(4, value, "<f4").tobytes()


def _subject(row, job):
    return row.of(project=job.project, run=job.run, step=job.step, job=job.id)


async def _answer(bus, job):
    async with asyncio.timeout(60), bus.follow(REDUCED.stream, _subject(REDUCED, job)) as records:
        return Reduced.decode((await anext(records)).data)


async def _submit(bus, cases, values=(2.0, 4.0), **more):
    """A job over updates on the bus, with their publication."""
    updates = {}
    for k, value in enumerate(values):
        ref = cases.ref_of(_file(value)).model_copy(update={"inline": None})
        updates[f"site-{k:03}"] = (1.0, ref)
    job = cases.job_of(cases.ref_of(_file(1.0)), updates, **more)
    for update, value in zip(job.updates, values, strict=True):
        subject = UPDATE.of(project=job.project, run=job.run, participant=update.participant, digest=update.ref.digest)
        await bus.publish(subject, _file(value))
    await bus.publish(_subject(JOB, job), job.encode())
    return job


async def test_updates_on_the_bus_become_a_model_in_the_answer(cases):
    bus = MemoryBus()
    async with running(bus, Engine(None)):
        job = await _submit(bus, cases)
        reduced = await _answer(bus, job)
    assert reduced.outputs["model"].inline == _file(4.0)
    assert (reduced.job, reduced.run, reduced.step) == (job.id, job.run, job.step)


async def test_a_hundred_participants_fit_in_one_job(cases):
    bus = MemoryBus()
    async with running(bus, Engine(None)):
        job = await _submit(bus, cases, values=[float(k) for k in range(128)])
        assert (await _answer(bus, job)).outputs["model"].inline == _file(64.5)


async def test_a_job_whose_answer_is_there_is_not_done_again(cases):
    bus, done = MemoryBus(), []

    class Watched(Engine):
        def run(self, job, *args, **more):
            done.append(job.id)
            return super().run(job, *args, **more)

    job = await _submit(bus, cases)
    known = Reduced(job=job.id, project=job.project, run=job.run, step=job.step, error="the first answer")
    sequence = await bus.publish(_subject(REDUCED, job), known.encode())
    async with running(bus, Watched(None)):
        later = job.model_copy(update={"id": "later"})
        await bus.publish(_subject(JOB, later), later.encode())
        assert (await _answer(bus, later)).error == ""
    assert done == ["later"]
    assert (await bus.last(REDUCED.stream, _subject(REDUCED, job))).sequence == sequence


@in_virtual_time
async def test_the_job_of_a_dead_replica_is_done_by_another(clock, cases):
    broker = MemoryBroker(clock)
    dead, living = MemoryBus(broker), MemoryBus(broker)
    job = await _submit(living, cases)
    async with dead.work(JOB.stream) as jobs:
        held = await anext(jobs)
        assert held.record.subject == _subject(JOB, job)
        await dead.close()
        async with running(living, Engine(None)):
            assert (await _answer(living, job)).outputs["model"].inline == _file(4.0)


async def test_a_job_that_waits_for_a_server_is_put_back_and_done_later(cases, monkeypatch):
    monkeypatch.setattr(queue, "RETRY_S", 0.0)
    bus, calls = MemoryBus(), []

    class Flaky(Engine):
        def run(self, *args, **more):
            calls.append(1)
            if len(calls) < 3:
                raise HanseError(ErrorCode.UNAVAILABLE, "the store is down")
            return super().run(*args, **more)

    async with running(bus, Flaky(None)):
        job = await _submit(bus, cases)
        assert (await _answer(bus, job)).error == ""
    assert len(calls) == 3


async def test_a_defect_is_answered_as_an_error(cases):
    bus = MemoryBus()

    class Broken(Engine):
        def run(self, *args, **more):
            raise ZeroDivisionError("oops")

    async with running(bus, Broken(None)):
        job = await _submit(bus, cases)
        assert "ZeroDivisionError: oops" in (await _answer(bus, job)).error


async def test_a_message_that_is_no_job_is_dropped_and_the_next_is_done(cases):
    bus = MemoryBus()
    async with running(bus, Engine(None)):
        await bus.publish(JOB.of(project="p", run="abcdefghijkl", step="x", job="y"), b"junk")
        job = await _submit(bus, cases)
        assert (await _answer(bus, job)).error == ""


async def test_a_missing_update_is_refused_by_name(cases):
    bus = MemoryBus()
    async with running(bus, Engine(None)):
        ref = cases.ref_of(_file(1.0))
        lost = ObjectRef(digest="0" * 64, size=ref.size)
        job = cases.job_of(ref, {"a": (1.0, ref), "b": (1.0, lost)})
        await bus.publish(_subject(JOB, job), job.encode())
        assert [refusal.participant for refusal in (await _answer(bus, job)).refused] == ["b"]


@pytest.mark.parametrize("count", [3])
async def test_stored_reductions_pass_one_at_a_time_while_small_ones_go_on(cases, store, count):
    bus, gate, running_now, most = MemoryBus(), threading.Event(), [], []

    class Slow(Engine):
        def run(self, job, fetched=None, **more):
            if job.updates[0].ref.key is None:
                return super().run(job, fetched, **more)
            running_now.append(job.id)
            most.append(len(running_now))
            gate.wait(60)
            running_now.remove(job.id)
            return super().run(job, fetched, **more)

    stored = cases.ref_of(_file(2.0), store, "updates/p/1")
    async with running(bus, Slow(store)):
        large = cases.job_of(cases.ref_of(_file(1.0)), {"a": (1.0, stored)})
        large = [large.model_copy(update={"id": f"large-{k}"}) for k in range(count)]
        await bus.publish(_subject(JOB, large[0]), large[0].encode())
        small = await _submit(bus, cases)
        assert (await _answer(bus, small)).error == ""
        for job in large[1:]:
            await bus.publish(_subject(JOB, job), job.encode())
        gate.set()
        for job in large:
            assert (await _answer(bus, job)).error == ""
    assert set(most) == {1}
