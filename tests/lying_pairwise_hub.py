"""A hub that lies to sites whose masks cancel, as a state machine: what it unmasks speaks of no few members."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hanse_fabric.errors import HanseError
from hanse_privacy.works.chain import Members
from hanse_privacy.works.pairwise import Past, UnmaskingSession
from spans import members, smallest_support

SITES, MINIMUM = range(1, 9), 2
EITHER = st.booleans()


@dataclass(frozen=True, slots=True)
class Opened(UnmaskingSession):
    """A session of a run, and whether its secrets are shared before it is known of which work it is."""

    ahead: bool = False
    run: int = 0


def session(numbers, threshold, *, gap=3, colluding=0, ahead=False, run=0):
    return Opened(members(*numbers), threshold, gap, colluding, ahead, run)


def one_of(numbers: Iterable[int]) -> st.SearchStrategy[int]:
    return _strategies(frozenset(numbers), 0)[0]


def some_of(numbers: Iterable[int], least: int = 0) -> st.SearchStrategy[frozenset[int]]:
    return _strategies(frozenset(numbers), least)[1]


@cache
def _strategies(
    numbers: frozenset[int], least: int
) -> tuple[st.SearchStrategy[int], st.SearchStrategy[frozenset[int]]]:
    """Made once: Hypothesis checks each strategy that is made anew, which took longer than what is tried."""
    one = st.sampled_from(sorted(numbers))
    return one, st.frozensets(one, min_size=least)


def allowed(act: Callable[..., bool | None], *arguments: Any) -> bool:
    """Whether a site does it: it does not say no, and raises nothing."""
    try:
        return act(*arguments) is not False
    except HanseError:
        return False


class Remembering:
    """A site that does what its memory of one work allows. What it answered in is ended when it shares or answers in
    another session, and where it shares ahead, before it knows of which work, when it answers alone. Of each run it
    knows the last session that it shared in."""

    def __init__(self) -> None:
        self.past, self.live, self.answered = Past(), None, set()
        self.shared, self.waits = {}, {}  # by run

    def share(self, number: int, opened: Opened) -> None:
        if opened.ahead:
            self.waits[opened.run] = number
            return
        self.past.check(opened)
        self.live, self.shared[opened.run] = None, number
        self.waits.pop(opened.run, None)

    def begin(self, number: int, order: Opened) -> bool:
        """Whether it takes part in sums in the middle of the work, which need no unmasking."""
        if self.shared.get(order.run) != number or order.ahead:
            return False
        self.past.check(order)
        self.past = self.past.after_answer(order).after_reveal(order, order.members)
        return True

    def answer(self, number: int, order: Opened) -> bool:
        """Whether its answer has left."""
        if number not in (self.shared.get(order.run), self.waits.get(order.run)):
            return False
        self.past.check(order)
        if self.waits.get(order.run) == number:
            self.shared[order.run] = self.waits.pop(order.run)
        self.live = number
        self.past = self.past.after_answer(order)
        self.answered.add(number)
        return True

    def reveal(self, number: int, order: Opened, survivors: Members) -> bool:
        """Whether it has helped to unmask the survivors' sum."""
        if self.live != number or number not in self.answered:
            return False
        self.past.check_survivors(order, survivors)
        self.past, self.live = self.past.after_reveal(order, survivors), None
        return True


class LyingHub(RuleBasedStateMachine):
    """Opens sessions of one work among any sites, in two runs, names other survivors to each, and has what colluding
    sites know."""

    shares_ahead = EITHER
    """Whether a session is shared ahead."""

    def site(self, number: int) -> Any:
        return Remembering()

    @initialize(colluding=st.integers(0, 1))
    def begin(self, colluding):
        self.k = colluding
        self.colluding = set(list(SITES)[:colluding])
        self.sites = {number: self.site(number) for number in SITES}
        self.sessions = []  # (session, numbers)
        self.answered, self.revealed, self.begun = {}, {}, {}
        self.orders = {}

    @rule(data=st.data())
    def opens(self, data):
        self.open(data)

    @precondition(lambda self: self.orders)
    @rule(data=st.data(), all_of_them=st.booleans())
    def has_sums_in_the_middle(self, data, all_of_them):
        number = data.draw(one_of(self.orders))
        sites = self.orders[number]
        self.sum_within(number, sites if all_of_them else data.draw(some_of(sites)))

    @precondition(lambda self: self.orders)
    @rule(data=st.data())
    def has_some_answer(self, data):
        number = data.draw(one_of(self.orders))
        self.answer(number, data.draw(some_of(self.orders[number])))

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def has_some_reveal(self, data):
        number = data.draw(one_of(self.answered))
        survivors = self.drawn_survivors(data, number)
        self.reveal(number, survivors, data.draw(some_of(self.orders[number])))

    @rule(data=st.data())
    def makes_a_sum(self, data):
        """All at once, as an honest hub would: with survivors of its choice, whom each hears of alike."""
        number = self.open(data)
        if number is not None:
            self.answer(number, self.orders[number])
        if number in self.answered:
            self.reveal(number, self.drawn_survivors(data, number), self.orders[number])

    def drawn_session(self, data):
        """Any, or one with the members and the threshold of an earlier one."""
        earlier = [(sorted(numbers), opened.threshold) for opened, numbers in self.sessions]
        if earlier and data.draw(EITHER):
            return data.draw(st.sampled_from(earlier))
        least = max(3, MINIMUM + self.k + 1)
        numbers = sorted(data.draw(some_of(SITES, least)))
        return numbers, data.draw(one_of(range(len(numbers) // 2 + 1, len(numbers) + 1)))

    def drawn_survivors(self, data, number):
        can = self.answered[number] | (self.colluding & self.orders[number])
        threshold = self.sessions[number][0].threshold
        return data.draw(some_of(can, threshold)) if len(can) >= threshold else set()

    def open(self, data):
        """The number of a session in which enough have shared secrets, of whom the hub names some as those who are to
        mask with each other; None: there are too few."""
        found = self.shared(
            *self.drawn_session(data), ahead=data.draw(self.shares_ahead), run=data.draw(one_of((0, 1)))
        )
        if found is None:
            return None
        number, shared, threshold = found
        everyone = frozenset(shared)
        self.orders[number] = everyone if data.draw(EITHER) else data.draw(some_of(shared, threshold))
        return number

    def shared(self, numbers, threshold, asked=None, *, ahead=False, run=0):
        """A session's number, who has shared secrets in it, and its threshold; None: too few have.

        Args:
            asked: of the members; None: all.
            ahead: whether they share before they know of which work.
        """
        opened = session(numbers, threshold, gap=MINIMUM + self.k, colluding=self.k, ahead=ahead, run=run)
        if threshold <= self.k or opened.smallest < MINIMUM + self.k:
            return None  # sites refuse such a threshold
        number = len(self.sessions)
        self.sessions.append((opened, frozenset(numbers)))
        asked = numbers if asked is None else asked
        shared = {site for site in asked if allowed(self.sites[site].share, number, opened) or site in self.colluding}
        return None if len(shared) < threshold else (number, shared, threshold)

    def order(self, number: int) -> Opened:
        """Among whom a session's masks are."""
        return replace(self.sessions[number][0], members=members(*self.orders[number]))

    def answer(self, number, sites):
        for site in sites:
            if site in self.colluding or allowed(self.sites[site].answer, number, self.order(number)):
                self.answered.setdefault(number, set()).add(site)

    def sum_within(self, number, sites):
        for site in sites:
            if site in self.colluding or allowed(self.sites[site].begin, number, self.order(number)):
                self.begun.setdefault(number, set()).add(site)

    def reveal(self, number, survivors, sites):
        for site in (set(sites) & self.answered[number]) - self.colluding if survivors else ():
            if allowed(self.sites[site].reveal, number, self.order(number), members(*survivors)):
                self.revealed.setdefault(number, {})[site] = frozenset(survivors)

    def sums(self):
        """Every set whose sum is known: all members of a session, where all have begun sums in the middle; and those
        whose sum can be unmasked: for each member t - k honest shares of one kind, and colluders' both."""
        for number, begun in self.begun.items():
            if begun | self.colluding >= self.orders[number]:
                yield set(self.orders[number])
        for number, by_site in self.revealed.items():
            told = by_site.values()
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

    def has_three_of_seven_go_on(self, *, within: bool) -> None:
        """Three share in a session that a fourth was to be in. Then seven answer in another run, any four of whom
        unmask. The three go on in theirs, and the others unmask the sum of the three and one more.

        Args:
            within: they go on with sums in the middle of the work; else with answers that are unmasked.
        """
        seven, three, rest = list(range(1, 8)), {1, 2, 3}, {4, 5, 6, 7}
        self.shared(seven, 4)
        self.orders[0] = frozenset(seven)
        self.shared([*three, 4], 3, asked=three, run=1)
        self.orders[1] = frozenset(three)
        self.answer(0, seven)
        if within:
            self.sum_within(1, three)
        else:
            self.answer(1, three)
            if 1 in self.answered:
                self.reveal(1, three, three)
        self.reveal(0, three | {4}, rest)

    def has_three_answer_where_four_shared(self, *, ahead: bool = False) -> None:
        """Seven answer, any four of whom unmask. Four share secrets for a near work, or ahead for any, three of whom
        answer it and are summed; the fourth and the others unmask the sum of the three and the fourth."""
        seven, three, rest = list(range(1, 8)), {1, 2, 3}, {4, 5, 6, 7}
        self.shared(seven, 4)
        self.orders[0] = frozenset(seven)
        self.answer(0, seven)
        self.shared([*three, 4], 3, ahead=ahead)
        self.orders[1] = frozenset([*three, 4])
        self.answer(1, three)
        if 1 in self.answered:
            self.reveal(1, three, three)
        self.reveal(0, three | {4}, rest)

    def has_three_answer_where_four_shared_before(self) -> None:
        """Seven, any four of whom unmask, and four in another run share secrets for the same work. Then all answer the
        first, three the other, who are summed; the fourth and the others unmask the sum of the three and the fourth."""
        seven, three, rest = list(range(1, 8)), {1, 2, 3}, {4, 5, 6, 7}
        self.shared(seven, 4)
        self.orders[0] = frozenset(seven)
        self.shared([*three, 4], 3, run=1)
        self.orders[1] = frozenset([*three, 4])
        self.answer(0, seven)
        self.answer(1, three)
        if 1 in self.answered:
            self.reveal(1, three, three)
        self.reveal(0, three | {4}, rest)

    def has_three_answer_for_show(self) -> None:
        """Seven answer, any four of whom unmask. All share ahead for a session that takes all to unmask, which three
        answer for show. These go on by themselves; the others unmask the sum of the three and one more."""
        seven, three, rest = list(range(1, 8)), {1, 2, 3}, {4, 5, 6, 7}
        self.shared(seven, 4)
        self.orders[0] = frozenset(seven)
        self.answer(0, seven)
        self.shared(seven, 7, ahead=True)
        self.orders[1] = frozenset(seven)
        self.answer(1, three)
        self.shared(sorted(three), 3)
        self.orders[2] = frozenset(three)
        self.answer(2, three)
        if 2 in self.answered:
            self.reveal(2, three, three)
        self.reveal(0, three | {4}, rest)

    @invariant()
    def what_is_unmasked_speaks_of_no_few(self):
        if not hasattr(self, "revealed"):
            return
        sets = list(self.sums())
        honest = [site for site in SITES if site not in self.colluding]
        smallest = smallest_support(sets, honest) if sets else None
        assert smallest is None or smallest >= MINIMUM
