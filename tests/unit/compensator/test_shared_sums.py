"""Several compensators: what k of n answer together is the sum of the masks, whoever of them is there."""

import itertools

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages.masking import MaskShape, MaskStage
from hanse_fabric.subjects import MASKS
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.masks.stream import MaskStream, Purpose
from masked_sites import RUN, SESSION
from shared_masks import ASKED, ask, asking, compensators, group_of, serving, shared

SHAPE = MaskShape(u64=11, u32=1001)


@pytest.fixture
def three(tmp_path):
    return compensators(tmp_path, 3)


async def summed(bus, given, group, there):
    """What those who are there answer, by stage; the sum's arrays where they all do."""
    ballots = []
    for place in there:
        answer = await ask(bus, group.keys[place].owner, asking(given, group, MaskStage.BALLOT))
        assert not answer.code, answer.reason
        ballots.append(answer.ballot)
    totals = []
    for place in there:
        answer = await ask(bus, group.keys[place].owner, asking(given, group, MaskStage.SUM, ballots))
        assert not answer.code, answer.reason
        for ref in (answer.sum.update, answer.sum.tally):
            subject = MASKS.of(project="triage", run=RUN, session=SESSION, digest=ref.digest)
            totals.append(decode_tensors((await bus.last(MASKS.stream, subject)).data)[1])
    return totals[::2], totals[1::2]


def masks(given, purpose, dtype, first, count):
    """Plainly, from all the seeds."""
    total = np.zeros(count, dtype)
    for each in given:
        for seed in each.seeds:
            MaskStream(bound_seed(seed, ASKED.request), purpose).add_to(total, first)
    return total


@pytest.mark.parametrize("there", list(itertools.combinations(range(3), 2)))
async def test_any_two_of_three_sum_the_masks_of_all_sites(triage, three, there):
    group = group_of(three, 2)
    given = [shared(site, group, update=SHAPE, tally=5) for site in triage.sites]
    async with serving([three[place].agent(triage.bus) for place in there]):
        updates, tallies = await summed(triage.bus, given, group, there)
    assert np.array_equal(sum(part["u64"] for part in updates), masks(given, Purpose.UPDATE, "<u8", 0, SHAPE.u64))
    assert np.array_equal(
        sum(part["u32"] for part in updates), masks(given, Purpose.UPDATE, "<u4", 8 * SHAPE.u64, SHAPE.u32)
    )
    assert np.array_equal(sum(part["u64"] for part in tallies), masks(given, Purpose.TALLY, "<u8", 0, 5))


async def test_a_look_names_whose_seals_are_wrong_and_remembers_nothing(triage, three):
    group = group_of(three, 2)
    given = [shared(site, group, spoilt=(1,) if site is triage.sites[0] else ()) for site in triage.sites]
    async with serving([each.agent(triage.bus) for each in three]):
        for place, refused in ((0, ()), (1, (triage.sites[0].name,)), (2, ())):
            answer = await ask(triage.bus, group.keys[place].owner, asking(given, group, MaskStage.LOOK))
            assert answer.refused == refused
        fewer = [shared(site, group) for site in triage.sites[1:]]
        await summed_tally(triage.bus, fewer, group, (0, 1))


async def summed_tally(bus, given, group, there):
    ballots = [
        (await ask(bus, group.keys[place].owner, asking(given, group, MaskStage.BALLOT))).ballot for place in there
    ]
    for place in there:
        answer = await ask(bus, group.keys[place].owner, asking(given, group, MaskStage.SUM, ballots))
        assert answer.sum is not None, answer.reason


async def test_who_is_killed_after_its_ballot_votes_again_the_same_and_others_take_its_part(triage, three):
    group = group_of(three, 2)
    given = [shared(site, group) for site in triage.sites]
    request = asking(given, group, MaskStage.BALLOT)
    async with serving([each.agent(triage.bus) for each in three]):
        first = [(await ask(triage.bus, key.owner, request)).ballot for key in group.keys]
    async with serving([each.agent(triage.bus) for each in three[1:]]):
        again = [(await ask(triage.bus, key.owner, request)).ballot for key in group.keys[1:]]
        assert again == first[1:]
        for key in group.keys[1:]:
            assert (await ask(triage.bus, key.owner, asking(given, group, MaskStage.SUM, first[1:]))).sum


@pytest.mark.parametrize(
    ("damage", "code", "word"),
    [
        (lambda ballots: ballots[:1], ErrorCode.QUORUM, "exactly 2"),
        (lambda ballots: ballots[:1] * 2, ErrorCode.TAMPERED, "different compensators"),
        (lambda ballots: ballots[1:], ErrorCode.QUORUM, "this compensator's own"),
        (lambda ballots: [ballots[0], ballots[1].model_copy(update={"known": ()})], ErrorCode.TAMPERED, "signature"),
    ],
)
async def test_nothing_is_summed_without_the_ballots_of_two(triage, three, damage, code, word):
    group = group_of(three, 2)
    given = [shared(site, group) for site in triage.sites]
    async with serving([each.agent(triage.bus) for each in three]):
        ballots = [
            (await ask(triage.bus, key.owner, asking(given, group, MaskStage.BALLOT))).ballot for key in group.keys
        ]
        answer = await ask(triage.bus, group.keys[0].owner, asking(given, group, MaskStage.SUM, damage(ballots)))
    assert answer.sum is None
    assert answer.code == code.code
    assert word in answer.reason


async def test_who_is_not_one_of_them_answers_nothing(triage, three, tmp_path):
    stranger = compensators(tmp_path / "other", 1)[0]
    group = group_of(three, 2)
    given = [shared(site, group) for site in triage.sites]
    async with serving([stranger.agent(triage.bus)]):
        answer = await ask(triage.bus, stranger.owner.public_bytes, asking(given, group, MaskStage.BALLOT))
    assert (answer.code, answer.ballot) == ("invalid-input", None)
    assert "among them" in answer.reason
