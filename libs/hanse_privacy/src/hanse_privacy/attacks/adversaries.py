"""The adversaries: the five of Mugunthan (2022, section 2.5.4), and one that pools what all of a coalition saw: ours.

Each estimates the victim's update from the sum. They differ in the noise that they take off.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hanse_privacy.attacks.coalition import Coalition, SiteView, signed
from hanse_privacy.noise.source import NoiseSource

Floats = NDArray[np.float64]
Adversary = Callable[[Coalition, NoiseSource], Floats]


def naive(coalition: Coalition, _source: NoiseSource) -> Floats:
    """Takes off nothing, not even the members' own parts."""
    return coalition.remainder(own_noise=False)


def own_noise(coalition: Coalition, _source: NoiseSource) -> Floats:
    """Takes off the members' own noise: where noise is not oblivious, that is all but the victim's."""
    return coalition.remainder(own_noise=True)


def random(coalition: Coalition, source: NoiseSource) -> Floats:
    """Takes off one of the two parts that a member sent, at random."""

    def one_of(site: SiteView) -> Floats:
        coins = source.bits(site.noise[0].size).reshape(site.noise[0].shape)
        return signed(np.where(coins, site.noise[1], site.noise[0]).sum(axis=0, dtype=np.uint64))

    return _without(coalition, one_of)


def difference(coalition: Coalition, _source: NoiseSource) -> Floats:
    """Takes off the difference of the two parts."""
    return _without(coalition, lambda site: signed((site.noise[0] - site.noise[1]).sum(axis=0, dtype=np.uint64)))


def mean(coalition: Coalition, _source: NoiseSource) -> Floats:
    """Takes off the mean of the two parts: the best guess of a sender alone."""
    return _without(coalition, lambda site: signed(site.noise.sum(axis=(0, 1), dtype=np.uint64)) / 2)


def pooled(coalition: Coalition, _source: NoiseSource) -> Floats:
    """Senders and receivers of the coalition, and the shuffler if it is one of it, put together what they have.

    What one member sent to another is known: the receiver has chosen s + d, the sender knows s; likewise where the
    shuffler tells its coin. What a member sent to the victim is one of two: take off their mean. What the victim sent
    to a member hides d0 and d1 behind s, but not D = chosen - other, and the mean of the chosen one given D is D/2.
    """
    rest = coalition.remainder(own_noise=True)
    members = {site.name: site for site in coalition.sites}
    for site in coalition.sites:
        for row, receiver in enumerate(site.receivers):
            coins = _coins(coalition, members, site, row, receiver)
            if coins is None:
                rest -= (signed(site.noise[0, row]) + signed(site.noise[1, row])) / 2
            else:
                rest -= signed(np.where(coins, site.noise[1, row], site.noise[0, row]))
        for sender, received in site.received.items():
            if sender not in members:
                rest -= signed(received.chosen - received.other) / 2
    if coalition.shuffler is not None:
        for sender, tuples in coalition.shuffler.tuples.items():
            if sender not in members:
                coins = coalition.shuffler.coins[sender]
                chosen = np.where(coins, tuples.second, tuples.first)
                other = np.where(coins, tuples.first, tuples.second)
                rest -= signed((chosen - other).sum(axis=0, dtype=np.uint64)) / 2
    return rest


def _coins(
    coalition: Coalition, members: dict[str, SiteView], site: SiteView, row: int, receiver: str
) -> NDArray[np.bool_] | None:
    """Which of a member's two parts was added, if the coalition knows it."""
    if coalition.shuffler is not None:
        coins: NDArray[np.bool_] = coalition.shuffler.coins[site.name][row]
        return coins
    if receiver not in members or site.name not in members[receiver].received:
        return None
    chosen = members[receiver].received[site.name].chosen - site.masks[row]  # whatever was permuted on the way
    return np.asarray(chosen != site.noise[0, row])


def _without(coalition: Coalition, guess: Callable[[SiteView], Floats]) -> Floats:
    rest = coalition.remainder(own_noise=True)
    for site in coalition.sites:
        rest -= guess(site)
    return rest
