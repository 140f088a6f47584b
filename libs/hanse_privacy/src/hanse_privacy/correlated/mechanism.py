"""Correlated noise as a `Mechanism`, for whoever draws all of it: the hub, in the sums of plain updates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hanse_fabric.messages.privacy import Correlation
from hanse_privacy.correlated.matrix import LARGEST_SIGMA
from hanse_privacy.correlated.stream import Sources, correlated_steps, slack
from hanse_privacy.noise.exact import Integers
from hanse_privacy.noise.mechanisms import check_positive
from hanse_privacy.noise.source import NoiseSource


@dataclass(frozen=True, slots=True)
class CorrelatedNoise:
    """The noise of one round.

    Attributes:
        sigma: standard deviation of the independent noise.
        number: of the round, from 1.
        sources: of every round up to this one; its own is not what values are rounded with.
        drawn, first: how many numbers are drawn at once, and from which on they are wanted.
    """

    sigma: float
    matrix: Correlation
    number: int
    sources: Sources
    drawn: int
    first: int = 0

    def __post_init__(self) -> None:
        check_positive(sigma=self.sigma)

    @property
    def step(self) -> float:
        """See `Mechanism`: a little less of the deviation than is drawn, which hides what normal noise hides."""
        return self.sigma / (LARGEST_SIGMA - 1)

    def widened(self, count: int) -> float:
        """See `Mechanism`: what this round adds to the length of a difference of two runs, of rounding."""
        return (math.sqrt(count) + slack(self.matrix, count, 1)) * self.step

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:  # noqa: ARG002 - it has its own
        """See `Mechanism`."""
        made = correlated_steps(self.matrix, LARGEST_SIGMA, self.drawn, self.number, self.sources)
        return made[self.first : self.first + count]
