"""How fine the grid is on which privacy losses are added, and how many points that takes, before anything is made.

What is added up is named by whoever asks: a plan's numbers are a hub's. So each distribution's points follow from its
events alone, by bounds that hold for what dp-accounting makes of them, and a grid that would have too many is coarser:
every discretization is from above (connect the dots; Doroshenko et al. 2022), so more is told then, never less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from hanse_privacy.accounting.events import ReleaseEvent

MOST_POINTS = 1 << 19
"""Of all distributions on a grid together: some seconds, and some hundred MiB."""
_WIDEST, _NARROWEST = 1e-3, 2e-6
_NEGLIGIBLE = 1e-3
"""Of the sum's variance: what a kind's discretization may add to it."""
_DEVIATIONS = 6.0
"""Square roots of their number, by which the ups of equal responses may differ from their mean."""
_OUTSIDE = 2 * math.exp(-2 * _DEVIATIONS**2)
"""The probability that they differ by more (Hoeffding 1963)."""
_CUT, _ORDERS = math.log(2e15), range(1, 21)
"""What dp-accounting cuts off a sum of equal losses, and the orders of its Chernoff bound, by the number of points."""
Counts = Sequence[tuple[ReleaseEvent, int]]


def width_for(smooth: Counts, pure: Mapping[float, int], rough: float) -> float | None:
    """Of a grid on which all are added up in at most `MOST_POINTS`; None: there is none that tells less than `rough`.

    A discretization lengthens every release's loss by at most about its square, and its variance by at most the product
    of the two: both shall be small beside epsilon; the latter beside the loss, or beside the variance of the sum.

    Args:
        smooth: what has a density.
        pure: numbers of randomized responses, by their epsilon.
        rough: an epsilon of all together.
    """
    if sum(len(_ups(epsilon, count)) for epsilon, count in pure.items()) > MOST_POINTS:
        return None
    losses = [_loss(event) for event, _ in smooth]
    variance = math.fsum(count * loss**2 for (_, count), loss in zip(smooth, losses, strict=True))
    variance += math.fsum(count * epsilon**2 for epsilon, count in pure.items())
    width = min(_WIDEST, math.sqrt(4 * _NEGLIGIBLE * variance)) if pure else _WIDEST
    for (_, count), loss in zip(smooth, losses, strict=True):
        beside = max(loss / 8, _NEGLIGIBLE * variance / (count * loss))
        width = min(width, beside, math.sqrt(2e-3 * rough / count))
    width = max(width, _NARROWEST)
    while points(smooth, pure, width) > MOST_POINTS:
        width *= 2
        if width >= rough:
            return None
    return width


def points(smooth: Counts, pure: Mapping[float, int], width: float) -> float:
    """How many points the distributions have together, at most."""
    found = math.fsum(_points(event, count, width) for event, count in smooth)
    return found + math.fsum(
        2 * epsilon * (len(_ups(epsilon, count)) - 1) / width + 3 for epsilon, count in pure.items()
    )


def responses(epsilon: float, count: int, width: float) -> tuple[dict[int, float], float]:
    """The losses of so many randomized responses together, by their number on the grid, and what is taken for infinite.

    Each sum of losses is parted between the grid's points on either side such that its probability stays in both
    worlds. Of exp(-loss), in which each hockey-stick divergence is convex, that is a mean over two values in the place
    of their mean: no divergence becomes less, whatever is added to it.
    """
    from scipy import stats

    ups = np.asarray(_ups(epsilon, count), dtype=np.float64)
    chances = np.asarray(stats.binom.pmf(ups, count, 1 / (1 + math.exp(-epsilon))), dtype=np.float64)
    losses = (2 * ups - count) * epsilon
    below = np.floor(losses / width)
    above = chances * np.clip(np.expm1(below * width - losses) / math.expm1(-width), 0.0, 1.0)
    lowest = int(below[0])
    at = below.astype(np.int64) - lowest
    masses = np.zeros(int(at[-1]) + 2)
    np.add.at(masses, at, chances - above)
    np.add.at(masses, at + 1, above)
    kept = np.flatnonzero(masses)
    whole = dict(zip((kept + lowest).tolist(), masses[kept].tolist(), strict=True))
    return whole, 0.0 if len(ups) > count else _OUTSIDE


def _ups(epsilon: float, count: int) -> range:
    """How many of equal responses may be +epsilon; all but `_OUTSIDE` of the probability."""
    reach = _DEVIATIONS * math.sqrt(count)
    mean = count / (1 + math.exp(-epsilon))
    return range(max(0, math.floor(mean - reach)), min(count, math.ceil(mean + reach)) + 1)


def _loss(event: ReleaseEvent) -> float:
    """How large the losses of one release are, about."""
    return event.rate * math.sqrt(math.expm1(min(event.amount**-2, 1.0)))


def _points(event: ReleaseEvent, count: int, width: float) -> float:
    """Of `count` equal releases: by Bennett's bound on the moments that dp-accounting's Chernoff bound is made of."""
    span, square = _moments(event)
    least, most = max(span + width, 3 * width), span + 3 * width  # of one, which has points on both sides of 0
    if count == 1:
        return most / width
    square += min(width**2 / 4, width * math.sqrt(square))
    reach = min(count * square / least * (math.expm1(order) - order) / order + _CUT * most / order for order in _ORDERS)
    return max(most, min(count * most, 2 * reach)) / width + 3


@lru_cache(maxsize=4096)
def _moments(event: ReleaseEvent) -> tuple[float, float]:
    """How far apart the losses of a release are, and their mean square, of the worse direction."""
    if event.kind == "laplace":
        return 2 / event.amount, event.amount**-2
    from dp_accounting.pld import privacy_loss_mechanism as mechanism

    both = [
        mechanism.GaussianPrivacyLoss(event.amount, sampling_prob=event.rate, adjacency_type=direction)
        for direction in (mechanism.AdjacencyType.REMOVE, mechanism.AdjacencyType.ADD)
    ]
    bounds = [one.connect_dots_bounds() for one in both]
    span = max(float(bound.epsilon_upper - bound.epsilon_lower) for bound in bounds)
    without = math.log1p(-event.rate) if event.rate < 1 else -math.inf
    x = np.linspace(-12 * event.amount, 1 + 12 * event.amount, 20_001)
    losses = np.logaddexp(without, math.log(event.rate) + (2 * x - 1) / (2 * event.amount**2))
    plain = np.exp(-((x / event.amount) ** 2) / 2) / (event.amount * math.sqrt(2 * math.pi)) * (x[1] - x[0])
    squares = losses**2 * plain
    return span, max(float(np.sum(squares)), float(np.sum(squares * np.exp(losses))))
