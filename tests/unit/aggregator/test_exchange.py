"""Exchange: sums in the middle of a task, the same to the bit whoever came first and whoever was restarted."""

import asyncio
import base64
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import hanse_aggregator.exchange as exchange_module
from clocks import in_virtual_time
from hanse_aggregator.exchange import OpenSums
from hanse_aggregator.service import Aggregator
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.exchange import Exchange, open_exchange
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import EXCHANGE_LIMIT, ExchangeJob, ParticipantRecord, Reduced, Ring
from hanse_fabric.records import Bucket
from hanse_fabric.subjects import JOB, PARTICIPANTS, REDUCED, TASK
from hanse_reduction.engine import Engine
from hub_doors import coordinator_doors
from unit.aggregator.at_work import running as aggregating

WHERE = {"project": "p", "run": "abcdefghijkl", "step": "r1-train"}
NAMES = ("a", "b", "c")


KEYS = {name: SigningKey.create() for name in NAMES}


def doors(bus, name):
    return Doors(bus, WHERE["project"], name, KEYS[name])


@asynccontextmanager
async def running(bus):
    """An aggregator, and the part of a coordinator that says which step is open."""
    async with coordinating(bus), aggregating(bus):
        yield


@asynccontextmanager
async def coordinating(bus):
    for name in NAMES:
        await bus.publish(TASK.of(participant=name, **WHERE), b"open")
    await enrol(bus)
    keys = {name: key.public_bytes for name, key in KEYS.items()}
    async with coordinator_doors(MemoryBus(bus.broker), keys=keys):
        yield


async def enrol(bus):
    bucket = Bucket(bus, PARTICIPANTS, ParticipantRecord)
    for name, key in KEYS.items():
        record = ParticipantRecord(
            project=WHERE["project"], participant=name, public_key=base64.b64encode(key.public_bytes), bus_key="U",
            enrolled_at=datetime.now(UTC),
        )  # fmt: skip
        if await bucket.get(project=WHERE["project"], participant=name) is None:
            await bucket.create(record, project=WHERE["project"], participant=name)


async def _open_session(bus, participants=NAMES, seconds=30.0):
    job = ExchangeJob(
        id="exchange", participants=participants, deadline=datetime.now(UTC) + timedelta(seconds=seconds), **WHERE
    )
    await bus.publish(JOB.of(job=job.id, **WHERE), job.encode())


async def _answer(bus):
    subject = REDUCED.of(job="exchange", **WHERE)
    async with asyncio.timeout(60), bus.follow(REDUCED.stream, subject) as records:
        return Reduced.decode((await anext(records)).data)


async def _take_part(bus, name, arrays):
    """All keys in order; the sums by key."""
    async with open_exchange(doors(bus, name), run=WHERE["run"], step=WHERE["step"]) as exchange:
        return {key: await exchange.sum(key, array, timeout=60) for key, array in arrays.items()}


def _arrays(name):
    rng = np.random.default_rng(ord(name))
    return {f"k{index}": rng.standard_normal((2, 3)) * 10.0 ** rng.integers(-8, 8) for index in range(5)}


def _expected(key):
    total = np.zeros((2, 3))
    for name in NAMES:
        total += _arrays(name)[key]
    return total


@pytest.mark.parametrize("order", [NAMES, NAMES[::-1]])
async def test_every_participant_gets_every_sum_in_the_order_of_names(order):
    broker = MemoryBroker()
    bus = MemoryBus(broker)
    async with running(bus):
        await _open_session(bus)
        async with asyncio.timeout(60):
            found = await asyncio.gather(*(_take_part(MemoryBus(broker), name, _arrays(name)) for name in order))
        assert (await _answer(bus)).error == ""
    for sums in found:
        for key, value in sums.items():
            assert value.tobytes() == _expected(key).tobytes()


@in_virtual_time
async def test_another_replica_goes_on_where_a_dead_one_was(clock):
    broker = MemoryBroker(clock)
    bus, first = MemoryBus(broker), MemoryBus(broker)
    early = {key: array for key, array in _arrays("a").items() if key in ("k0", "k1")}
    dead = asyncio.create_task(Aggregator(first, Engine(None)).run(asyncio.Event()))
    try:
        await _open_session(bus, ("a",))
        exchange = Exchange(doors(bus, "a"), WHERE["run"], WHERE["step"])
        async with coordinating(bus):
            before = {key: await exchange.sum(key, array, timeout=60) for key, array in early.items()}
            await first.close()
            async with aggregating(bus):
                after = await exchange.sum("k2", _arrays("a")["k2"], timeout=20)
                assert after.tobytes() == _arrays("a")["k2"].tobytes()
                again = await _take_part(MemoryBus(broker), "a", early)
                assert (await _answer(bus)).error == ""
    finally:
        dead.cancel()
        await asyncio.gather(dead, return_exceptions=True)
    assert {key: value.tobytes() for key, value in again.items()} == {
        key: value.tobytes() for key, value in before.items()
    }


async def test_participants_that_disagree_about_the_size_are_told_who():
    broker = MemoryBroker()
    bus = MemoryBus(broker)
    async with running(bus):
        await _open_session(bus, ("a", "b"))
        results = await asyncio.gather(
            _take_part(MemoryBus(broker), "a", {"k": np.ones(2)}),
            _take_part(MemoryBus(broker), "b", {"k": np.ones(3)}),
            return_exceptions=True,
        )
    for error in results:
        assert isinstance(error, HanseError)
        assert "b contributed 24 bytes, a 16" in error.message


async def test_an_exchange_ends_when_nobody_can_still_wait_for_a_begun_sum(monkeypatch):
    monkeypatch.setattr(exchange_module, "_SPARE_S", 0.0)
    bus = MemoryBus()
    job = ExchangeJob(
        id="exchange", participants=("a", "b"), deadline=datetime.now(UTC) + timedelta(seconds=3600), patience=0.05,
        **WHERE,
    )  # fmt: skip
    async with running(bus), open_exchange(doors(bus, "a"), run=WHERE["run"], step=WHERE["step"]) as exchange:
        with pytest.raises(HanseError):
            await exchange.sum("k", np.ones(1), timeout=0.05)
        await bus.publish(JOB.of(job=job.id, **WHERE), job.encode())
        assert (await _answer(bus)).error == "exchange: a sum was given up before a, b ended"


async def test_at_the_deadline_the_answer_names_who_was_missing():
    bus = MemoryBus()
    async with running(bus):
        await _take_part(bus, "a", {})
        await _open_session(bus, ("a", "b"), seconds=0.2)
        assert (await _answer(bus)).error == "exchange: the deadline passed before b ended"


@pytest.mark.parametrize("array", [np.array([np.nan]), np.zeros(EXCHANGE_LIMIT // 8 + 1)])
async def test_arrays_that_cannot_be_summed_are_refused_before_they_are_sent(array):
    with pytest.raises(HanseError) as caught:
        await Exchange(doors(MemoryBus(), "a"), WHERE["run"], WHERE["step"]).sum("k", array)
    assert caught.value.code is ErrorCode.INVALID_INPUT


def test_an_exchange_counts_no_stranger_and_no_second_answer_of_a_member():
    sums, one, two = OpenSums(("a", "b")), np.ones(1).tobytes(), np.full(1, 2.0).tobytes()
    assert sums.add("stranger", "k", one) is None
    assert sums.add("a", "k", one) is None
    assert sums.add("a", "k", two) is None
    assert sums.add("b", "k", two) == (np.full(1, 3.0).tobytes(), "")
    assert sums.add("b", "k", one) is None


def test_ring_elements_are_summed_modulo_their_size():
    sums = OpenSums(("a", "b"), Ring(bits=64, fraction=20, bound=8.0))
    one, two = np.array([2**64 - 1, 5], "<u8"), np.array([3, 7], "<u8")
    assert sums.add("b", "k", two.tobytes()) is None
    assert sums.add("a", "k", one.tobytes()) == (np.array([2, 12], "<u8").tobytes(), "")
    assert sums.add("a", "l", one.tobytes()) is None
    assert sums.add("b", "l", two.tobytes()[:8]) == (b"", "b contributed 8 bytes, a 16")
