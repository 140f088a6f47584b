"""Masked sums of small models, whose updates, tallies and sums of masks all travel on the bus."""

import asyncio

import pytest

from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.messages import JobKind, Reduced
from hanse_fabric.subjects import JOB, MASKS, REDUCED, UPDATE
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_reduction.engine import Engine
from unit.aggregator.at_work import running
from unit.aggregator.masked_round import MaskedRound

LAYOUT = Layout.of([Entry("w", "F32", (40,))])


async def _outcome(bus, job):
    where = {"project": job.project, "run": job.run, "step": job.step, "job": job.id}
    await bus.publish(JOB.of(**where), job.encode())
    async with asyncio.timeout(60), bus.follow(REDUCED.stream, REDUCED.of(**where)) as records:
        return Reduced.decode((await anext(records)).data)


async def _sent(bus, masked, *, without=()):
    """The job's objects as they lie on the bus, and the job that refers to them there."""
    job = masked.job()

    async def send(kind, ref, row, **tokens):
        subject = row.of(project=job.project, run=job.run, digest=ref.digest, **tokens)
        if kind not in without:
            await bus.publish(subject, bytes(ref.inline))
        return ref.model_copy(update={"inline": None})

    updates = [
        each.model_copy(
            update={
                "ref": await send("update", each.ref, UPDATE, participant=each.participant),
                "tally": await send("tally", each.tally, UPDATE, participant=each.participant),
            }
        )
        for each in job.updates
    ]
    masks = {
        "update": await send("masks", job.sum.masks.update, MASKS, session=job.sum.session),
        "tally": await send("tally masks", job.sum.masks.tally, MASKS, session=job.sum.session),
    }
    ring = job.sum.model_copy(update={"masks": job.sum.masks.model_copy(update=masks)})
    return job.model_copy(update={"updates": tuple(updates), "sum": ring})


@pytest.fixture
def masked(tmp_path):
    return MaskedRound(tmp_path, None, LAYOUT)


async def test_a_masked_sum_of_what_is_on_the_bus_becomes_a_model(masked):
    bus = MemoryBus()
    async with running(bus):
        reduced = await _outcome(bus, await _sent(bus, masked))
    assert masked.bytes_of(reduced) == masked.bytes_of(Engine(None).run(masked.job()))
    assert reduced.tally.weight == sum(masked.weights)


async def test_tallies_on_the_bus_are_summed_alone(masked):
    bus = MemoryBus()
    async with running(bus):
        job = await _sent(bus, masked, without={"update", "masks"})
        updates = tuple(each.model_copy(update={"ref": each.tally, "tally": None}) for each in job.updates)
        reduced = await _outcome(
            bus, job.model_copy(update={"kind": JobKind.TALLY, "updates": updates, "model": None})
        )  # fmt: skip
    assert (reduced.error, reduced.outputs) == ("", {})
    assert reduced.tally.weight == sum(masked.weights)


@pytest.mark.parametrize("lost", ["masks", "tally masks"])
async def test_a_sum_of_masks_that_is_not_on_the_bus_is_an_error(masked, lost):
    bus = MemoryBus()
    async with running(bus):
        reduced = await _outcome(bus, await _sent(bus, masked, without={lost}))
    assert reduced.refused == ()
    assert "sum of" in reduced.error
    assert "is not on the bus" in reduced.error


async def test_tallies_that_are_not_on_the_bus_are_refused_by_name(masked):
    bus = MemoryBus()
    async with running(bus):
        reduced = await _outcome(bus, await _sent(bus, masked, without={"tally"}))
    assert [refusal.participant for refusal in reduced.refused] == masked.names
