"""A hub combines the sums of one work as it likes: none speaks of fewer honest members than the minimum."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.works.chain import SetChain, SummedSets
from hanse_privacy.works.codec import decode_whole, encode_whole
from spans import members, smallest_support

SITES = range(1, 9)
MINIMUM, COLLUDING = 2, 1


def summed(*sets, gap):
    work = SummedSets()
    for each in sets:
        work = work.admit(members(*each), gap)
    return work


def test_the_support_of_a_span_is_found_where_only_three_sets_together_tell_it():
    assert smallest_support([{1, 2, 3, 4, 5, 6, 7}, {1, 2, 3}, {4, 5, 6}], SITES) == 1
    assert smallest_support([set(range(1, 9)), {1, 2, 3}], SITES) == 3
    assert smallest_support([{1, 2}], [3, 4]) is None


@pytest.mark.parametrize(
    ("gap", "sets"),
    [
        (3, [range(1, 8), (1, 2, 3), (4, 5, 6)]),
        (4, [range(1, 11), range(1, 6), range(6, 10)]),
        (3, [range(1, 11), range(1, 10)]),
        (3, [range(1, 6), range(1, 9)]),
        (3, [(1, 2, 3), (4, 5, 6), range(1, 7)]),
    ],
)
def test_sets_whose_sums_tell_of_few_together_are_refused(gap, sets):
    with pytest.raises(HanseError) as caught:
        summed(*sets, gap=gap)
    assert caught.value.code is ErrorCode.CONFLICT


def test_a_set_again_a_smaller_one_by_the_gap_and_strangers_are_summed():
    work = summed(range(1, 11), range(1, 11), range(1, 8), range(1, 11), (1, 2, 3), (11, 12, 13), gap=3)
    assert [len(chain.sets) for chain in work.chains] == [3, 1]
    assert work.members == members(*range(1, 14))


def test_the_largest_gap_that_anybody_of_a_chain_wanted_holds_for_its_next_set():
    work = summed(range(1, 11), gap=5)
    with pytest.raises(HanseError, match="at least 5"):
        work.admit(members(*range(1, 8)), 3)
    assert work.admit(members(*range(1, 6)), 3).chains == (
        SetChain(5, (members(*range(1, 11)), members(*range(1, 6)))),
    )


def test_a_set_again_is_asked_for_with_the_largest_gap_of_both_and_is_the_same_memory_where_nothing_changes():
    whole = members(*range(1, 11))
    work = SummedSets((SetChain(2, (members(20, 21),)), SetChain(4, (whole,))))
    assert work.admit(whole, 4) is work
    assert work.admit(whole, 2) is work
    assert work.admit(whole, 6) == SummedSets((SetChain(2, (members(20, 21),)), SetChain(6, (whole,))))


def test_a_refusal_says_what_is_wrong_with_the_set_and_of_how_many_the_others_were():
    of_both, few = summed((1, 2, 3), (4, 5, 6), gap=3), summed(range(1, 11), range(1, 7), gap=3)
    for work, asked, why in (
        (of_both, (1, 2, 4), "they have members of several sets; this work was summed over 3 members"),
        (few, range(3, 9), "they are not all of the last set's; this work was summed over 10, 6 members"),
        (few, range(1, 5), "they are 2 fewer than the last set's, at least 3 are wanted; this work was summed over 10"),
    ):
        with pytest.raises(HanseError) as refused:
            work.admit(members(*asked), 3)
        assert refused.value.code is ErrorCode.CONFLICT
        assert refused.value.message.startswith(f"members: {why}")


def test_as_few_members_as_the_gap_are_a_sum_and_as_many_fewer_are_a_next_one():
    assert summed(range(1, 7), range(1, 4), gap=3).chains == (SetChain(3, (members(*range(1, 7)), members(1, 2, 3))),)


def test_fewer_members_than_the_gap_are_no_sum():
    with pytest.raises(HanseError) as caught:
        summed((1, 2), gap=3)
    assert caught.value.code is ErrorCode.QUORUM


def test_two_memories_of_a_work_know_together_what_either_knows():
    shorter, longer = summed(range(1, 11), gap=3), summed(range(1, 11), range(1, 8), gap=3)
    assert shorter.joined(longer) == longer.joined(shorter) == longer
    assert summed(range(1, 8), gap=3).joined(shorter) == longer
    with pytest.raises(HanseError):
        longer.joined(summed(range(1, 10), gap=3))


@given(st.lists(st.frozensets(st.integers(0, 2000).map(lambda at: at.to_bytes(16, "big")), min_size=1), max_size=5))
def test_sets_come_back_from_their_bytes(sets):
    work = SummedSets(tuple(SetChain(at, (one,)) for at, one in enumerate(sets)))
    assert decode_whole(*encode_whole(work)) == work


def test_a_set_of_ten_thousand_takes_a_bit_for_each_of_them():
    work = SummedSets((SetChain(3, (frozenset(at.to_bytes(16, "big") for at in range(10_000)),)),))
    assert len(encode_whole(work)[1]) < 1300
    assert decode_whole(*encode_whole(work)) == work
    with pytest.raises(HanseError):
        decode_whole(encode_whole(work)[0], encode_whole(work)[1][:-1])


class LyingHub(RuleBasedStateMachine):
    """Asks for any set, in any order, and knows what the colluding members sent."""

    def __init__(self):
        super().__init__()
        self.work, self.sets = SummedSets(), set()

    @rule(asked=st.frozensets(st.sampled_from(SITES), min_size=1))
    def ask_any(self, asked):
        try:
            self.work = self.work.admit(members(*asked), MINIMUM + COLLUDING)
        except HanseError:
            return
        self.sets.add(asked)

    @rule(data=st.data())
    def ask_part(self, data):
        whole = data.draw(st.sampled_from(tuple(sorted(tuple(sorted(one)) for one in self.sets)) or (tuple(SITES),)))
        self.ask_any(frozenset(data.draw(st.lists(st.sampled_from(whole), min_size=3, unique=True))))

    @invariant()
    def no_combination_speaks_of_few(self):
        for colluding in combinations(SITES, COLLUDING):
            honest = [site for site in SITES if site not in colluding]
            smallest = smallest_support(self.sets, honest) if self.sets else None
            assert smallest is None or smallest >= MINIMUM


LyingHub.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestALyingHub = LyingHub.TestCase
