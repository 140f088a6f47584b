"""A hub that lies to sites whose masks cancel: whatever it unmasks of one work speaks of no fewer than the minimum."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.pairwise.thresholds import threshold_of
from hanse_privacy.works.pairwise import Past, UnmaskingSession
from lying_pairwise_hub import LyingHub, Remembering, session
from spans import members


def refused(check, *arguments):
    with pytest.raises(HanseError) as caught:
        check(*arguments)
    return caught.value.code is ErrorCode.CONFLICT


ALL = session(range(1, 13), 9)


def test_after_a_sum_was_unmasked_the_same_members_sum_again():
    past = Past().after_answer(ALL).after_reveal(ALL, ALL.members)
    past.check(ALL)
    past.check_survivors(ALL, ALL.members)


def test_after_a_sum_was_unmasked_one_member_fewer_is_refused_as_member_and_as_survivor():
    past = Past().after_answer(ALL).after_reveal(ALL, ALL.members)
    assert refused(past.check, session(range(1, 12), 9))
    assert refused(past.check_survivors, ALL, members(*range(1, 12)))
    assert refused(past.check, session(range(2, 14), 9))


def test_after_a_sum_was_unmasked_it_is_made_once_more_by_fewer_than_it_by_the_gap():
    past = Past().after_answer(ALL).after_reveal(ALL, ALL.members)
    assert ALL.smallest == 8
    fewer = session(range(1, 6), 5, gap=3)
    assert refused(past.check, fewer)  # 2 * 5 of 12: two such sums could have no site in common
    assert refused(past.check_survivors, ALL, fewer.members)
    wide = session(range(1, 25), 20)
    assert wide.smallest == 20
    past = Past().after_answer(wide).after_reveal(wide, wide.members)
    fewer = session(range(1, 18), 14)
    past.check(fewer)
    assert refused(past.check, session(range(1, 19), 14))
    after = past.after_answer(fewer).after_reveal(fewer, fewer.members)
    after.check(fewer)
    assert refused(after.check, session(range(1, 9), 8))


def test_an_answer_that_was_not_unmasked_is_left_only_with_enough_of_its_members_to_make_it_dead():
    past = Past().after_answer(ALL)
    past.check(session(range(1, 10), 7))
    past.check(session(range(1, 5), 4))
    assert refused(past.check, session(range(1, 5), 3))  # the fourth may answer the first after it shared for this one
    assert refused(past.check, session(range(1, 4), 3))
    assert refused(Past().after_answer(session(range(1, 13), 9, colluding=1)).check, session(range(1, 5), 4))


def test_who_is_refused_for_an_answer_that_was_not_unmasked_reads_how_many_are_sure_and_how_many_are_wanted():
    with pytest.raises(HanseError, match=r"3 of the 12 .* sure to answer where 3 of 4 do, at least 4 are wanted"):
        Past().after_answer(ALL).check(session(range(1, 5), 3))


def test_each_answer_that_was_not_unmasked_is_asked_about_and_kept_once_until_one_is_unmasked():
    all_must = session(range(1, 13), 12)
    past = Past().after_answer(ALL).after_answer(all_must).after_answer(ALL)
    assert past.answered == (ALL, all_must)
    assert refused(past.check, session(range(1, 4), 3))
    assert past.after_reveal(ALL, ALL.members).answered == ()


@pytest.mark.parametrize(("members", "again"), [(12, 7), (18, 10), (30, 16)])
def test_after_silent_members_a_step_is_redone_by_half_and_one_at_the_default_threshold(members, again):
    def threshold(count):
        return threshold_of(None, members=count, minimum=3)

    past = Past().after_answer(session(range(members), threshold(members)))
    past.check(session(range(again), threshold(again)))
    assert refused(past.check, session(range(again - 1), threshold(again - 1)))


LyingHub.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestALyingHub = LyingHub.TestCase


def four_shared_ahead() -> LyingHub:
    hub = LyingHub()
    hub.begin(0)
    hub.has_three_answer_where_four_shared(ahead=True)
    return hub


def test_who_shared_ahead_and_does_not_answer_leaves_no_sum_alive_beside_it() -> None:
    hub = four_shared_ahead()
    assert list(hub.sums()) == [{1, 2, 3, 4}]
    hub.what_is_unmasked_speaks_of_no_few()


def test_control_where_who_shared_ahead_counts_as_who_answers_the_sums_tell_the_fourths_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UnmaskingSession, "sure", property(lambda among: len(among.members)))
    hub = four_shared_ahead()
    assert sorted(map(len, hub.sums())) == [3, 4]
    with pytest.raises(AssertionError):
        hub.what_is_unmasked_speaks_of_no_few()


@pytest.fixture
def hub() -> LyingHub:
    made = LyingHub()
    made.begin(0)
    return made


def test_who_shared_before_and_answers_another_session_after_it_leaves_no_sum_alive_beside_it(hub: LyingHub) -> None:
    hub.has_three_answer_where_four_shared_before()
    assert list(hub.sums()) == [{1, 2, 3, 4}]
    hub.what_is_unmasked_speaks_of_no_few()


def test_control_where_who_shares_counts_as_who_answers_the_order_of_two_runs_tells_the_fourths_part(
    hub: LyingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UnmaskingSession, "sure", property(lambda among: len(among.members)))
    hub.has_three_answer_where_four_shared_before()
    with pytest.raises(AssertionError):
        hub.what_is_unmasked_speaks_of_no_few()


def test_a_session_that_few_answer_for_show_leaves_no_sum_alive_beside_the_next(hub: LyingHub) -> None:
    hub.has_three_answer_for_show()
    assert list(hub.sums()) == [{1, 2, 3, 4}]
    hub.what_is_unmasked_speaks_of_no_few()


def test_control_sites_that_hold_against_their_last_answer_alone_tell_the_fourths_part(
    hub: LyingHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Past, "after_answer", lambda past, session: replace(past, answered=(session,)))
    hub.has_three_answer_for_show()
    with pytest.raises(AssertionError):
        hub.what_is_unmasked_speaks_of_no_few()


class Begins(Remembering):
    """A site that does not ask its memory before sums in the middle of a work."""

    def begin(self, number: int, order: Any) -> bool:
        known = self.shared.get(order.run) == number
        if known:
            self.past = self.past.after_answer(order).after_reveal(order, order.members)
        return known


class Answers(Remembering):
    """A site that does not ask its memory before it answers."""

    def answer(self, number: int, order: Any) -> bool:
        known = self.shared.get(order.run) == number
        if known:
            self.past, self.live = self.past.after_answer(order), number
            self.answered.add(number)
        return known


class Reveals(Remembering):
    """A site that does not ask its memory before it helps to unmask."""

    def reveal(self, number: int, order: Any, survivors: Any) -> bool:
        known = self.live == number and number in self.answered
        if known:
            self.past, self.live = self.past.after_reveal(order, survivors), None
        return known


def hub_of(site: type[Remembering]) -> type[LyingHub]:
    class Hub(LyingHub):
        shares_ahead = st.just(False)

        def site(self, number: int) -> Any:
            return site()

    return Hub


@pytest.mark.parametrize("site", [Begins, Reveals])
def test_control_the_hub_finds_which_check_was_taken_away(site: type[Remembering]) -> None:
    tried = settings(
        max_examples=1000, stateful_step_count=20, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], print_blob=False,
    )  # fmt: skip
    with pytest.raises(AssertionError):
        run_state_machine_as_test(hub_of(site), settings=tried)


def three_of_seven(site: type[Remembering], *, within: bool) -> LyingHub:
    hub = hub_of(site)()
    hub.begin(0)
    hub.has_three_of_seven_go_on(within=within)
    return hub


@pytest.mark.parametrize("within", [False, True])
def test_few_who_go_on_leave_the_sum_that_they_answered_alive_and_are_refused(within: bool) -> None:
    hub = three_of_seven(Remembering, within=within)
    assert list(hub.sums()) == [{1, 2, 3, 4}]
    hub.what_is_unmasked_speaks_of_no_few()


@pytest.mark.parametrize(("site", "within"), [(Answers, False), (Begins, True)])
def test_control_few_who_go_on_unasked_tell_one_more_members_part(site: type[Remembering], within: bool) -> None:
    hub = three_of_seven(site, within=within)
    assert sorted(map(len, hub.sums())) == [3, 4]
    with pytest.raises(AssertionError):
        hub.what_is_unmasked_speaks_of_no_few()
