"""What the coordinator makes of several compensators of which some are gone: for a moment, or for so long that they
have no sealing key of the present."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from hanse_compensator.service import announce
from hanse_coordinator.verbs.requests import Patience
from hanse_coordinator.verbs.shared_mask_sums import SharedMaskSums, announced_group
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Compensators, MaskAnswer
from hanse_fabric.subjects import MASKS, PARTICIPANTS
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_workflows.failures import RunFailure
from masked_sites import RUN, SESSION, masked_sites
from shared_masks import ASKED, Compensator, Shared, compensators, serving, shared

CLOCK = SystemClock()
LONG_AGO = timedelta(hours=30)
STEP = timedelta(minutes=5)
TALLY = 9


@pytest.fixture
def three(tmp_path: Path) -> list[Compensator]:
    return compensators(tmp_path, 3)


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(MemoryBroker())


async def announced(
    bus: MemoryBus, members: Sequence[Compensator], gone: Sequence[int] = (), *, needed: int = 2,
    step: timedelta = STEP,
) -> Compensators:  # fmt: skip
    """The group, where some have announced themselves for the last time long ago."""
    names = tuple(f"c-{place}" for place in range(len(members)))
    for place, member in enumerate(members):
        then = CLOCK.now() - (LONG_AGO if place in gone else timedelta(0))
        key = member.keys.present(then)
        await announce(bus, names[place], key.key, CLOCK, key)
    return await announced_group(bus, names, needed, CLOCK.now(), step)


async def handed_in(bus: MemoryBus, group: Compensators) -> list[Shared]:
    sites = masked_sites("triage", 3)
    for site in sites:
        await bus.publish(PARTICIPANTS.of(project="triage", participant=site.name), site.record().encode())
    return [shared(site, group, tally=TALLY) for site in sites]


async def summed(bus: MemoryBus, given: Sequence[Shared], group: Compensators, *, timeout: float = 60.0) -> MaskAnswer:
    sums = SharedMaskSums(
        bus, CLOCK, Notices(bus, CLOCK, "triage", RUN, actor="c"), project="triage", run=RUN,
        patience=Patience(timeout=timeout, tries=1),
    )  # fmt: skip
    return await sums.of(SESSION, 1, tuple(each.sealed for each in given), group)


async def tally_of(bus: MemoryBus, answer: MaskAnswer) -> np.ndarray:
    assert answer.sum is not None
    total = np.zeros(TALLY, "<u8")
    for part in answer.sum.parts:
        subject = MASKS.of(project="triage", run=RUN, session=SESSION, digest=part.tally.digest)
        stored = await bus.last(MASKS.stream, subject)
        assert stored is not None
        total += decode_tensors(stored.data)[1]["u64"]
    return total


def masks(given: Sequence[Shared]) -> np.ndarray:
    total = np.zeros(TALLY, "<u8")
    for each in given:
        for seed in each.seeds:
            MaskStream(bound_seed(seed, ASKED.request), Purpose.TALLY).add_to(total, 0)
    return total


async def test_a_compensator_that_is_there_is_sealed_to_and_none_is_gone(
    bus: MemoryBus, three: list[Compensator]
) -> None:
    group = await announced(bus, three)
    assert [key.owner for key in group.keys] == list(group.owners) == [each.owner.public_bytes for each in three]
    assert group.gone is None


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_that_is_gone_for_longer_than_its_key_lasts_is_not_sealed_to_and_the_others_sum(
    bus: MemoryBus, three: list[Compensator], place: int
) -> None:
    group = await announced(bus, three, [place])
    assert group.gone == (three[place].owner.public_bytes,)
    given = await handed_in(bus, group)
    assert {len(each.sealed.seals or ()) for each in given} == {2}
    async with serving([each.agent(bus) for index, each in enumerate(three) if index != place]):
        answer = await summed(bus, given, group)
    assert np.array_equal(await tally_of(bus, answer), masks(given))


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_that_is_back_before_the_sum_takes_no_part_and_does_no_harm(
    bus: MemoryBus, three: list[Compensator], place: int
) -> None:
    group = await announced(bus, three, [place])
    given = await handed_in(bus, group)
    async with serving([each.agent(bus) for each in three]):
        assert np.array_equal(await tally_of(bus, await summed(bus, given, group)), masks(given))


async def test_one_that_does_not_answer_is_done_without(bus: MemoryBus, three: list[Compensator]) -> None:
    group = await announced(bus, three)
    given = await handed_in(bus, group)
    async with serving([each.agent(bus) for each in three[:2]]):
        answer = await summed(bus, given, group)
    assert np.array_equal(await tally_of(bus, answer), masks(given))


async def test_where_too_few_answer_the_run_fails_and_says_how_many(bus: MemoryBus, three: list[Compensator]) -> None:
    group = await announced(bus, three)
    given = await handed_in(bus, group)
    async with serving([three[0].agent(bus)]):
        with pytest.raises(RunFailure, match="1 of 3 compensators answered, 2 are needed") as failed:
            await summed(bus, given, group, timeout=0.3)
    assert failed.value.code is ErrorCode.TIMEOUT


async def test_whose_seals_are_wrong_is_named_before_anybody_votes(bus: MemoryBus, three: list[Compensator]) -> None:
    group = await announced(bus, three)
    given = await handed_in(bus, group)
    given[1] = shared(given[1].site, group, tally=TALLY, spoilt=(0, 1))
    async with serving([each.agent(bus) for each in three]):
        answer = await summed(bus, given, group)
    assert (answer.sum, answer.refused) == (None, (given[1].site.name,))


@pytest.mark.parametrize(("gone", "needed"), [((0, 1), 2), ((2,), 3)])
async def test_where_more_are_gone_than_may_be_the_run_fails_with_their_names(
    bus: MemoryBus, three: list[Compensator], gone: tuple[int, ...], needed: int
) -> None:
    with pytest.raises(RunFailure, match=f"sealing keys of {needed}") as failed:
        await announced(bus, three, gone, needed=needed)
    assert failed.value.code is ErrorCode.UNAVAILABLE
    assert all(f"c-{place} until " in failed.value.message for place in gone)


async def test_keys_that_do_not_last_for_a_step_are_not_used(bus: MemoryBus, three: list[Compensator]) -> None:
    with pytest.raises(RunFailure, match="last for a step of 90000 s"):
        await announced(bus, three, step=timedelta(hours=25))


async def test_who_was_never_announced_is_named(bus: MemoryBus) -> None:
    with pytest.raises(RunFailure, match="nobody: a sealing key of the present is expected"):
        await announced_group(bus, ("nobody", "else"), 2, CLOCK.now(), STEP)


async def test_two_names_of_one_compensator_are_not_two(bus: MemoryBus, three: list[Compensator]) -> None:
    with pytest.raises(RunFailure, match="c-1 has the key of another one"):
        await announced(bus, [three[0], three[0], three[1]])
