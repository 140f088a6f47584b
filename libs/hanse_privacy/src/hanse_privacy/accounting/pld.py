"""Tight accounting of releases that are alike or planned, and a proven filter for those that are neither.

A scope of a ledger is charged with whatever is asked, and what is asked may follow from earlier answers. Which of two
sums of the charges is told may follow from them, too, so each has its own share of delta (`accountant.ADAPTIVE`):

- Releases of a plan (`accounting.plan`) that was said before the scope's first release: an amount of the plan's row,
  whose privacy loss distributions, one of each kind, are convolved.
- Without a plan, releases that are all of the kind of the first, which nothing came before. Normal noise: the squares
  of sensitivity over noise add up, whoever chooses them (Smith and Thakurta 2022; Koskela, Tobaben, Honkela 2023), to
  the exact curve of one release. Concentrated ones: rho adds up (Whitehouse, Ramdas, Rogers, Wu 2023). Any other kind:
  equal events alone, whose number is then fixed by the budget; their privacy loss distribution is convolved (Koskela et
  al. 2020; Doroshenko et al. 2022), by dp-accounting, discretized from above.
- Any releases: a Renyi filter (Feldman and Zrnic 2021; filters are of Rogers, Roth, Ullman, Vadhan 2016) at a few
  orders, which have an equal share of delta each, for the best one may follow from answers.

The least of what is proved is told: an answer that keeps within epsilon by one of them does so by that one's share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from hanse_fabric.errors import invalid
from hanse_privacy.accounting import grid
from hanse_privacy.accounting.accountant import ADAPTIVE, FILTER_ORDERS, SAMPLING, check_delta, delta_of_alike
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.accounting.plan import ReleasePlan, is_normal, rho_of
from hanse_privacy.accounting.rdp import RdpAccountant, curve_of, epsilon_of
from hanse_privacy.accounting.several import normal_and_pure
from hanse_privacy.noise.gaussian import concentrated_epsilon, gaussian_epsilon

_LARGEST = 40.0
"""Of epsilons that distributions are convolved for: above, Renyi divergences are near enough."""
_TRANSFORMED, _COMPOSED = 1e-13, 2.0**-50
"""Of delta, for how the transforms of a convolution are rounded: once, and for each release, whose share of the sum's
transform is wrong by some 2^-53 (measured: 4e-14 for 1,000 releases, 2e-13 for 10,000)."""
_PROBABLE = 1 + 1e-9
"""Of probabilities, for how those of many responses are rounded."""
_MANY = 10_000
"""Releases, from which dp-accounting is not asked whether few points stay few: it takes their number to this power."""
_SUMMED = 1 + 1e-9
"""What is added to sums of rho, which are rounded."""


class PldAccountant:
    """See `Accountant`.

    For `laplace`, many coordinates are taken for one that bears all of the L1 sensitivity; for `pure`, the release is
    taken for randomized response, which dominates it.
    """

    def __init__(self, plan: ReleasePlan | None = None) -> None:
        """Args:
        plan: of which the first release was a part; None: there is none.
        """
        self._plan = plan
        self._events: Counter[ReleaseEvent] = Counter()
        self._chances: Counter[ReleaseEvent] = Counter()

    def compose(self, event: ReleaseEvent, count: int = 1) -> None:
        """See `Accountant.compose`."""
        if count < 1:
            raise invalid("count", count, "at least 1")
        counts = self._chances if event.kind == "chance" else self._events
        counts[event] += count

    def epsilon(self, delta: float) -> float:
        """See `Accountant.epsilon`."""
        check_delta(delta)
        chance, whole = _total(self._chances), delta
        if delta < chance:
            return math.inf
        delta -= chance
        basic = math.fsum(event.epsilon * count for event, count in self._events.items())
        if not self._events or delta <= SAMPLING:
            return basic
        tight = self._alike(delta_of_alike(delta)) if self._plan is None else self._planned(self._plan, whole)
        if tight is not None and self._plan is None:
            return min(basic, tight)
        filtered = self._filtered((delta - SAMPLING) * ADAPTIVE)
        return min(basic, filtered if tight is None else tight, filtered)

    def _planned(self, plan: ReleasePlan, delta: float) -> float | None:
        """Epsilon of releases within a plan; None where they are not.

        Args:
            delta: with all chances in it, of which an amount of the plan has its own.
        """
        reached = plan.reached(self._events + self._chances)
        if reached is None:
            return None
        chances = Counter({event: count for event, count in reached if event.kind == "chance"})
        left = delta_of_alike(max(0.0, delta - _total(chances)))
        return together(tuple(one for one in reached if one[0].kind != "chance"), left) if left > 0 else None

    def _alike(self, delta: float) -> float | None:
        """Epsilon of releases that are all of one kind; None where they are not."""
        rhos = [None if event.rho is None else event.rho * count for event, count in self._events.items()]
        if None not in rhos:
            rho = math.fsum(each for each in rhos if each is not None)
            if all(event.kind == "gaussian" for event in self._events):
                return gaussian_epsilon(1 / math.sqrt(2 * rho), delta)
            return concentrated_epsilon(rho, delta)
        return convolved(*next(iter(self._events.items())), delta) if len(self._events) == 1 else None

    def _filtered(self, delta: float) -> float:
        curves = [curve_of(event, FILTER_ORDERS) * count for event, count in self._events.items()]
        return epsilon_of(np.sum(curves, axis=0), delta / len(FILTER_ORDERS), FILTER_ORDERS)


def _total(chances: Counter[ReleaseEvent]) -> float:
    return math.fsum(event.amount * count for event, count in chances.items())


@lru_cache(maxsize=1024)
def together(releases: tuple[tuple[ReleaseEvent, int], ...], delta: float) -> float:
    """Epsilon of releases of several kinds that are fixed beforehand, by convolving their loss distributions."""
    rough = RdpAccountant()
    for event, count in releases:
        rough.compose(event, count)
    known = rough.epsilon(delta)
    if not 0 < known < _LARGEST:
        return known
    rho = math.fsum(rho_of(event) * count for event, count in releases) * _SUMMED
    pure = Counter[float]()
    for event, count in releases:
        if event.kind == "pure":
            pure[event.amount] += count
    others = [(event, count) for event, count in releases if not is_normal(event) and event.kind != "pure"]
    if not others:
        return min(known, normal_and_pure(rho, pure, delta))
    normal = [(ReleaseEvent("gaussian", 1 / math.sqrt(2 * rho)), 1)] if rho else []
    return min(known, _on_one_grid([*others, *normal], pure, delta, known))


def _on_one_grid(smooth: list[tuple[ReleaseEvent, int]], pure: Counter[float], delta: float, rough: float) -> float:
    """The same, of distributions that have a density and of randomized responses, which have two losses each."""
    counts = [count for _, count in smooth] + list(pure.values())
    rounded = 2 * (len(counts) - 1) * _TRANSFORMED
    rounded += sum(_TRANSFORMED + count * _COMPOSED for count in counts if count > 1)
    if delta <= rounded:
        return rough
    width = grid.width_for(smooth, pure, rough)
    if width is None:
        return rough
    found = _added(smooth, pure, width, delta - rounded)
    apart = math.fsum(epsilon * count for epsilon, count in pure.items())
    # What is added to the epsilon of the others bounds it, too, and is less for one release or two.
    return min(found, apart + convolved(*smooth[0], delta)) if len(smooth) == 1 else found


def _added(smooth: list[tuple[ReleaseEvent, int]], pure: Mapping[float, int], width: float, delta: float) -> float:
    """What all of them cost together, on a grid."""
    several = [_distribution(event, count, width) for event, count in smooth]
    several += [_responses(epsilon, count, width) for epsilon, count in pure.items()]
    made, *more = several
    for one in more:
        made = made.compose(one)
    return float(made.get_epsilon_for_delta(delta / _PROBABLE))


def _responses(epsilon: float, count: int, width: float) -> Any:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    return PrivacyLossDistribution.create_from_rounded_probability(*grid.responses(epsilon, count, width), width)


@lru_cache(maxsize=1024)
def convolved(event: ReleaseEvent, count: int, delta: float) -> float:
    """Epsilon of equal releases by their privacy loss distribution, at most 0.5 % above the true one; where little more
    of delta is there than rounding takes, as far as Renyi accounting is."""
    rough = RdpAccountant()
    rough.compose(event, count)
    known = rough.epsilon(delta)
    if not 0 < known < _LARGEST:
        return known
    left = delta - _TRANSFORMED - count * _COMPOSED if count > 1 else delta
    if left <= 0:
        return known
    pure = {event.amount: count} if event.kind == "pure" else {}
    smooth = [] if pure else [(event, count)]
    width = grid.width_for(smooth, pure, known)
    return known if width is None else min(known, _added(smooth, pure, width, left))


def _distribution(event: ReleaseEvent, count: int, width: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as made

    match event.kind:
        case "gaussian":
            one = made.from_gaussian_mechanism(
                event.amount, sampling_prob=event.rate, value_discretization_interval=width
            )
        case "laplace":
            one = made.from_laplace_mechanism(event.amount, value_discretization_interval=width)
        case _:
            raise invalid("event.kind", event.kind, "a distribution that is known")
    if count > _MANY:
        kept = [pmf.to_dense_pmf().self_compose(count) for pmf in (one._pmf_remove, one._pmf_add)]
        return made.PrivacyLossDistribution(*kept)
    return one.self_compose(count) if count > 1 else one
