"""What the compensator answers: the sum of the masks of the members, the same bytes for the same request."""

import asyncio

import numpy as np
import pytest

from hanse_compensator.service import announce
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import CompensatorRecord, MaskRecord
from hanse_fabric.subjects import COMPENSATORS, MASK_ANSWER, MASK_RECORDS, MASK_REQUEST
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.tensors.refs import check_leaves, verify_bytes
from hanse_privacy.masks.stream import MaskStream, Purpose


def _masks(sites, purpose, dtype, first, count):
    """Sum of the masks of elements that begin at byte `first`, written plainly."""
    total = np.zeros(count, dtype)
    for site in sites:
        total += np.frombuffer(MaskStream(site.seed, purpose).block(first, total.nbytes), dtype)
    return total


def _check_update(data, sites, shape):
    _, arrays = decode_tensors(data)
    assert np.array_equal(arrays["u64"], _masks(sites, Purpose.UPDATE, "<u8", 0, shape.u64))
    assert np.array_equal(arrays["u32"], _masks(sites, Purpose.UPDATE, "<u4", 8 * shape.u64, shape.u32))


async def test_small_sums_travel_on_the_bus(triage, inline):
    request = triage.request(update=inline, tally=5)
    async with triage.running():
        answer = await triage.ask(request)
    assert (answer.code, answer.refused) == ("", ())
    assert answer.participants == tuple(site.name for site in triage.sites)
    for ref in (answer.sum.update, answer.sum.tally):
        assert ref.key is None
        verify_bytes(ref, await triage.small(request, ref.digest))
    _check_update(await triage.small(request, answer.sum.update.digest), triage.sites, inline)
    _, tally = decode_tensors(await triage.small(request, answer.sum.tally.digest))
    assert np.array_equal(tally["u64"], _masks(triage.sites, Purpose.TALLY, "<u8", 0, 5))


async def test_a_large_sum_rests_in_the_store(triage, stored):
    request = triage.request(update=stored)
    async with triage.running():
        answer = await triage.ask(request)
    ref = answer.sum.update
    assert ref.key == f"masks/triage/{request.run}/{request.session}/update"
    assert len(ref.leaves) == 3
    check_leaves(ref)
    data = triage.store.get(ref.key, limit=ref.size)
    verify_bytes(ref, data)
    _check_update(data, triage.sites, stored)
    assert triage.store.abort_uploads("masks/") == 0


async def test_tallies_alone_are_summed_where_nothing_is_trained(triage):
    request = triage.request()
    async with triage.running():
        answer = await triage.ask(request)
    assert answer.sum.update is None
    assert await triage.small(request, answer.sum.tally.digest) is not None


async def test_the_same_request_gets_the_same_answer_from_any_replica(triage, stored):
    request = triage.request(update=stored)
    async with triage.running():
        first = await triage.ask(request)
    triage.store.delete(first.sum.update.key)
    async with triage.running(bus=MemoryBus(triage.bus.broker)):
        assert await triage.ask(request) == first
    assert triage.store.exists(first.sum.update.key)


async def test_the_compensator_remembers_a_set_before_it_answers(triage, inline):
    request = triage.request(update=inline)
    async with triage.running():
        answer = await triage.ask(request)
    tokens = {"project": "triage", "run": request.run, "session": request.session}
    remembered = await triage.bus.last(MASK_RECORDS.stream, MASK_RECORDS.of(**tokens))
    answered = await triage.bus.last(MASK_ANSWER.stream, MASK_ANSWER.of(**tokens))
    assert MaskRecord.decode(remembered.data).participants == answer.participants
    assert answered is not None


async def test_the_request_of_a_dead_replica_is_answered_by_another(triage, inline):
    request = triage.request(update=inline)
    dead = MemoryBus(triage.bus.broker)
    async with dead.work(MASK_REQUEST.stream) as jobs:
        asked = asyncio.create_task(triage.ask(request))
        await anext(jobs)
        await dead.close()
        async with triage.running():
            assert (await asked).sum is not None


async def test_a_request_is_answered_although_a_replica_died_after_remembering_it(triage, inline):
    """The record is there, the answer is not: the same request again is answered."""
    request = triage.request(update=inline)
    async with triage.running():
        first = await triage.ask(request)
    tokens = {"project": "triage", "run": request.run, "session": request.session}
    await triage.bus.purge(MASK_ANSWER.stream, MASK_ANSWER.of(**tokens))
    async with triage.running():
        assert await triage.ask(request) == first


async def test_a_store_that_is_away_is_waited_for(triage, stored, monkeypatch):
    from hanse_fabric import queue

    monkeypatch.setattr(queue, "RETRY_S", 0.0)
    calls = []

    class Flaky:
        def __getattr__(self, name):
            return getattr(triage.store, name)

        def put_part(self, *args):
            calls.append(1)
            if len(calls) in (1, 3):
                raise HanseError(ErrorCode.UNAVAILABLE, "the store is down")
            return triage.store.put_part(*args)

    async with triage.running(store=Flaky()):
        answer = await triage.ask(triage.request(update=stored))
    assert answer.sum is not None
    assert triage.store.abort_uploads("masks/") == 0


async def test_a_message_that_is_no_request_is_dropped_and_the_next_is_answered(triage, inline):
    await triage.bus.publish(MASK_REQUEST.of(project="triage", run="a" * 12, session="x"), b"junk")
    async with triage.running():
        assert (await triage.ask(triage.request(update=inline))).sum is not None


async def test_the_public_key_is_announced_and_renewed(triage):
    await announce(triage.bus, "compensator", triage.key.public_bytes, SystemClock())
    await announce(triage.bus, "compensator", triage.key.public_bytes, SystemClock())
    record = await triage.bus.last(COMPENSATORS.stream, COMPENSATORS.of(name="compensator"))
    assert CompensatorRecord.decode(record.data).public_key == triage.key.public_bytes
    other = type(triage.key).create()
    await announce(triage.bus, "compensator", other.public_bytes, SystemClock())
    record = await triage.bus.last(COMPENSATORS.stream, COMPENSATORS.of(name="compensator"))
    assert CompensatorRecord.decode(record.data).public_key == other.public_bytes


@pytest.mark.parametrize("count", [3, 200])
async def test_the_compensator_sums_the_masks_of_few_and_of_many_sites(triage, count):
    from masked_sites import masked_sites

    sites = masked_sites("triage", count)
    await triage.enrol(*sites)
    async with triage.running():
        answer = await triage.ask(triage.request(sites))
    assert len(answer.participants) == count
    assert answer.sum is not None
