"""A compensator remembers over which sets a work was summed, whoever asks again, and whatever the hub forgot."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hanse_compensator.memory import Memory
from hanse_compensator.own_memory import OwnMemory
from hanse_compensator.works import Claim
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import WorkRecord
from hanse_fabric.subjects import WORK_RECORDS
from hanse_privacy.works.chain import SummedSets
from hanse_privacy.works.codec import decode_whole

W, NEAR, OTHER = b"w" * 32, b"n" * 32, b"o" * 32


def members(*numbers):
    return frozenset(number.to_bytes(16, "big") for number in numbers)


def claim(numbers, work=W, *, gap=3, tags=None):
    tag = {} if tags is None else {"tags": tuple(f"{tags}{number:015}".encode() for number in numbers)}
    return Claim(work, members(*numbers), gap, **tag)


def refusal(own, asked):
    with pytest.raises(HanseError) as caught:
        own.works.claim(asked, SummedSets())
    return caught.value.code


@pytest.fixture
def own(tmp_path):
    return OwnMemory(tmp_path / "memory")


def test_a_work_is_summed_over_chains_of_sets_after_a_restart_too(own, tmp_path):
    own.works.claim(claim(range(1, 8)), SummedSets())
    own = OwnMemory(tmp_path / "memory")
    assert refusal(own, claim(range(1, 7))) is ErrorCode.CONFLICT
    own.works.claim(claim((1, 2, 3)), SummedSets())
    assert refusal(own, claim((4, 5, 6))) is ErrorCode.CONFLICT
    own.works.claim(claim(range(1, 8)), SummedSets())
    own.works.claim(claim((4, 5, 6), OTHER), SummedSets())


def test_answers_near_to_earlier_ones_are_summed_as_if_they_were_the_same_work(own):
    own.works.claim(claim(range(1, 11), tags="a"), SummedSets())
    assert refusal(own, claim(range(1, 10), NEAR, tags="a")) is ErrorCode.CONFLICT
    own.works.claim(claim(range(1, 8), NEAR, tags="a"), SummedSets())
    # What a near work was summed over counts for the first one.
    assert refusal(own, claim((1, 2, 3, 8, 9, 10), tags="b")) is ErrorCode.CONFLICT
    own.works.claim(claim(range(1, 10), OTHER, tags="c"), SummedSets())


def test_one_member_whose_answer_is_near_is_enough_for_the_rule_to_hold(own):
    own.works.claim(Claim(W, members(*range(1, 11)), 3, (b"only-of-one-site",)), SummedSets())
    assert refusal(own, Claim(NEAR, members(*range(1, 10)), 3, (b"only-of-one-site",))) is ErrorCode.CONFLICT


def test_one_of_many_claims_to_a_work_wins(own, tmp_path):
    def ask(first):
        try:
            OwnMemory(tmp_path / "memory").works.claim(claim(range(first, first + 5)), SummedSets())
        except HanseError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        won = list(threads.map(ask, [1, 2] * 8))
    assert won in ([True, False] * 8, [False, True] * 8)


def test_beyond_the_limit_the_oldest_works_are_refused_and_new_ones_summed(tmp_path):
    own = OwnMemory(tmp_path / "memory", limit=56 << 10)
    works = [number.to_bytes(32, "big") for number in range(120)]
    for work in works:
        own.works.claim(claim(range(1, 41), work), SummedSets())
    assert refusal(own, claim(range(1, 41), works[0])) is ErrorCode.GONE
    own.works.claim(claim(range(1, 41), works[-1]), SummedSets())


def test_a_memory_that_is_full_of_keys_stops_all_new_sums(tmp_path):
    own = OwnMemory(tmp_path / "memory", limit=36 << 10)

    def fill():
        for number in range(5000):
            own.works.claim(claim((1, 2, 3), number.to_bytes(32, "big")), SummedSets())

    with pytest.raises(HanseError, match="full") as caught:
        fill()
    assert caught.value.code is ErrorCode.NO_SPACE


async def record(bus):
    found = await bus.last(WORK_RECORDS.stream, WORK_RECORDS.of(work=W.hex()))
    told = WorkRecord.decode(found.data)
    return decode_whole(told.keys, told.sets)


async def test_replicas_on_several_machines_know_of_each_others_sets(triage, tmp_path):
    one, two = (
        Memory(triage.bus, SYSTEM_CLOCK, OwnMemory(tmp_path / name / "memory")) for name in ("one", "two")
    )  # fmt: skip
    await one.claim_set(claim(range(1, 11)))
    with pytest.raises(HanseError):
        await two.claim_set(claim(range(1, 10)))
    await two.claim_set(claim(range(1, 8)))
    with pytest.raises(HanseError):
        await one.claim_set(claim(range(1, 7)))
    await one.claim_set(claim(range(1, 8)))
    assert [len(each) for each in (await record(triage.bus)).chains[0].sets] == [10, 7]


async def test_a_hub_that_forgets_or_goes_back_gets_the_same_set_or_one_within_or_nothing(triage, tmp_path):
    memory = Memory(triage.bus, SYSTEM_CLOCK, OwnMemory(tmp_path / "memory"))
    await memory.claim_set(claim(range(1, 11)))
    await triage.bus.purge(WORK_RECORDS.stream, WORK_RECORDS.of(work=W.hex()))
    with pytest.raises(HanseError) as caught:
        await memory.claim_set(claim(range(1, 10)))
    assert caught.value.code is ErrorCode.CONFLICT
    await memory.claim_set(claim(range(1, 11)))
    assert len((await record(triage.bus)).chains[0].sets) == 1
    await memory.claim_set(claim(range(1, 8)))


async def test_without_a_file_of_its_own_the_bus_is_trusted_with_it(triage):
    memory = Memory(triage.bus, SYSTEM_CLOCK)
    await memory.claim_set(claim(range(1, 11)))
    with pytest.raises(HanseError):
        await memory.claim_set(claim(range(1, 10)))
