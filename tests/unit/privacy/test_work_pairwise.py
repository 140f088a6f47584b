"""A hub that lies to sites whose masks cancel: whatever it unmasks of one work speaks of no fewer than the minimum."""

from itertools import combinations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.works.pairwise import Past, Session
from spans import members, smallest_support


def session(numbers, threshold, *, gap=3, colluding=0):
    return Session(members(*numbers), threshold, gap, colluding)


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
    past.check(session(range(1, 5), 3))
    assert refused(past.check, session(range(1, 4), 3))
    assert refused(Past().after_answer(session(range(1, 13), 9, colluding=1)).check, session(range(1, 5), 3))


SITES, MINIMUM = range(1, 9), 2


class LyingHub(RuleBasedStateMachine):
    """Opens sessions of one work among any sites, names other survivors to each, and has what colluding sites know.

    A site answers as it remembers (`Past`); a session that it shares in ends its earlier ones.
    """

    @initialize(colluding=st.integers(0, 1))
    def begin(self, colluding):
        self.k = colluding
        self.colluding = set(list(SITES)[:colluding])
        self.past = {site: Past() for site in SITES}
        self.sessions = []  # (session, numbers)
        self.live = dict.fromkeys(SITES)
        self.answered, self.revealed = {}, {}
        self.orders = {}

    @rule(data=st.data())
    def open(self, data):
        least = MINIMUM + self.k + 1
        numbers = data.draw(st.lists(st.sampled_from(list(SITES)), min_size=max(3, least), unique=True))
        threshold = data.draw(st.integers(len(numbers) // 2 + 1, len(numbers)))
        opened = session(numbers, threshold, gap=MINIMUM + self.k, colluding=self.k)
        if threshold <= self.k or opened.smallest < MINIMUM + self.k:
            return  # sites refuse such a threshold
        number = len(self.sessions)
        self.sessions.append((opened, frozenset(numbers)))
        shared = set()
        for site in numbers:
            try:
                self.past[site].check(opened)
            except HanseError:
                if site not in self.colluding:
                    continue
            shared.add(site)
            self.live[site] = number
        order = frozenset(shared)
        if len(order) >= threshold:
            self.orders[number] = order

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def answer(self, data):
        number = data.draw(st.sampled_from(sorted(self.orders)))
        opened, _ = self.sessions[number]
        order = session(self.orders[number], opened.threshold, gap=opened.gap, colluding=self.k)
        for site in data.draw(st.sets(st.sampled_from(sorted(self.orders[number])))):
            if self.live[site] != number and site not in self.colluding:
                continue
            try:
                self.past[site].check(order)
            except HanseError:
                continue
            self.past[site] = self.past[site].after_answer(order)
            self.answered.setdefault(number, set()).add(site)

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def reveal(self, data):
        number = data.draw(st.sampled_from(sorted(self.answered)))
        opened, _ = self.sessions[number]
        order = session(self.orders[number], opened.threshold, gap=opened.gap, colluding=self.k)
        can = sorted(self.answered[number] | (self.colluding & self.orders[number]))
        if len(can) < opened.threshold:
            return
        survivors = data.draw(st.sets(st.sampled_from(can), min_size=opened.threshold))
        for site in data.draw(st.sets(st.sampled_from(sorted(self.orders[number])))) - self.colluding:
            if self.live[site] != number or site not in self.answered[number]:
                continue
            try:
                self.past[site].check_survivors(order, members(*survivors))
            except HanseError:
                continue
            self.past[site] = self.past[site].after_reveal(order, members(*survivors))
            self.live[site] = None
            self.revealed.setdefault(number, []).append(frozenset(survivors))

    def sums(self):
        """Every set whose sum can be unmasked: for each member t - k honest shares of one kind, and colluders' both."""
        for number, told in self.revealed.items():
            needed = self.sessions[number][0].threshold - len(self.colluding & self.sessions[number][1])
            own = {site: sum(site in survivors for survivors in told) >= needed for site in self.orders[number]}
            wrap = {site: sum(site not in survivors for survivors in told) >= needed for site in own}
            free = [site for site in own if own[site] and wrap[site]]
            if all(own[site] or wrap[site] for site in own):
                for size in range(len(free) + 1):
                    for extra in combinations(free, size):
                        one = {site for site in own if own[site] and not wrap[site]} | set(extra)
                        if one <= self.answered[number] | self.colluding:
                            yield one

    @invariant()
    def what_is_unmasked_speaks_of_no_few(self):
        if not hasattr(self, "revealed"):
            return
        sets = list(self.sums())
        honest = [site for site in SITES if site not in self.colluding]
        smallest = smallest_support(sets, honest) if sets else None
        assert smallest is None or smallest >= MINIMUM


LyingHub.TestCase.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)
TestALyingHub = LyingHub.TestCase
