"""What all other sites know together of one sum with noise, and what they make of it: the last site's update.

The attacks get a `Coalition`: they cannot look at the victim's secrets, because they are not in it. `naive`, `random`
and `mean` are adversaries of Mugunthan (2022, section 2.5.4), which use what each member drew. `pooled` is ours: it
puts together what all of them have seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_privacy.noise.source import NoiseSource

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Coalition:
    """All sites but the victim, and what they know; in steps of the ring's grid.

    Attributes:
        total: the published sum, (count,).
        updates, added: of the members, (members, count): their own, and the noise that each added by itself.
        differences: D = d1 - d0 of all pairs that the members drew, (pairs, count); the first d0 is in `added`.
        chosen: the sum of those D of which they know that they are in the total, (count,).
        uncertain: those of their own D that may be in it or not, (k, count).
        received: the D of the victim that they have seen, (l, count).
    """

    total: Integers
    updates: Integers
    added: Integers
    differences: Integers
    chosen: Integers
    uncertain: Integers
    received: Integers


Adversary = Callable[[Coalition, NoiseSource], Floats]


def naive(coalition: Coalition, _source: NoiseSource) -> Floats:
    """Takes off the members' updates, and none of their noise."""
    rest: Floats = np.subtract(coalition.total, coalition.updates.sum(axis=0), dtype=np.float64)
    return rest


def random(coalition: Coalition, source: NoiseSource) -> Floats:
    """Takes off one of the two parts of every pair, at random."""
    drawn = coalition.differences
    coins = source.bits(drawn.size).reshape(drawn.shape)
    rest: Floats = _without_own(coalition) - np.where(coins, drawn, 0).sum(axis=0)
    return rest


def mean(coalition: Coalition, _source: NoiseSource) -> Floats:
    """Takes off the mean of the two parts of every pair: the best guess of each member alone."""
    rest: Floats = _without_own(coalition) - coalition.differences.sum(axis=0) / 2
    return rest


def pooled(coalition: Coalition, _source: NoiseSource) -> Floats:
    """Takes off what is known, and the mean of what is not: D/2 of an own pair whose coin is not known, -D/2 (the mean
    of d0 where D is known) of a pair of the victim's."""
    guessed = coalition.received.sum(axis=0) - coalition.uncertain.sum(axis=0)
    rest: Floats = _without_own(coalition) - coalition.chosen + guessed / 2
    return rest


def _without_own(coalition: Coalition) -> Floats:
    own = (coalition.updates + coalition.added).sum(axis=0)
    rest: Floats = np.subtract(coalition.total, own, dtype=np.float64)
    return rest
