"""What the members of a coalition have seen of one sum with noise, and nothing else.

An attack gets a `Coalition`: it cannot look at the victim's secrets, because they are not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hanse_privacy.noise.oblivious import Elements, Tuples

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Received:
    """A tuple as its receiver has it: both values, masked by the sender, and its own coins: (count,) each."""

    first: Elements
    second: Elements
    coins: Bools

    @property
    def chosen(self) -> Elements:
        return np.where(self.coins, self.second, self.first)

    @property
    def other(self) -> Elements:
        return np.where(self.coins, self.first, self.second)


@dataclass(frozen=True, slots=True)
class SiteView:
    """A participant's own view of one attempt.

    Attributes:
        encoded: its update in the ring, (count,).
        own: the noise that it added and knows: its self term, or its whole local noise, (count,).
        receivers, noise, masks: what it sent: (2, receivers, count) d0 and d1, (receivers, count) s.
        received: by sender; empty where a shuffler chose.
    """

    name: str
    encoded: Elements
    own: Elements
    receivers: tuple[str, ...] = ()
    noise: Elements = field(default_factory=lambda: np.zeros((2, 0, 1), dtype=np.uint64))
    masks: Elements = field(default_factory=lambda: np.zeros((0, 1), dtype=np.uint64))
    received: Mapping[str, Received] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShufflerView:
    """The shuffler's: all tuples, and its coins by sender, (receivers, count)."""

    tuples: Mapping[str, Tuples]
    coins: Mapping[str, Bools]


@dataclass(frozen=True, slots=True)
class Coalition:
    """Those who pool their views.

    Attributes:
        sites: all but the victim.
        total: the published sum, (count,).
        shuffler: if it is one of them.
    """

    sites: tuple[SiteView, ...]
    total: Elements
    shuffler: ShufflerView | None = None

    def remainder(self, *, own_noise: bool) -> NDArray[np.float64]:
        """The sum less the members' own updates, and their own noise: (count,), in steps.

        It is the victim's update, and noise.
        """
        rest = self.total.copy()
        for site in self.sites:
            rest -= site.encoded
            if own_noise:
                rest -= site.own
        return signed(rest)


def signed(elements: Elements) -> NDArray[np.float64]:
    """Ring elements as numbers, in steps."""
    return elements.view(np.int64).astype(np.float64)
