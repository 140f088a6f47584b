"""Shares of noise: what one site adds to its update, within the masked sum, on the ring's own grid.

Nothing is rounded after the noise: values are rounded at random to multiples of 2^-fraction (`noise.rounding`), and the
shares are whole numbers of that step from exact samplers. The sum of the sites' shares is thus exactly the law that is
stated: a discrete Laplace from any n - t shares of `distributed-gamma`, of which more shares make a discrete
variance-gamma law; a sum of n discrete Laplace variables for whole ones; a sum of discrete Gaussians, which is within
the tau of theorem 1 of Kairouz, Liu, Steinke (2021) of a discrete Gaussian, and hides no less than normal noise of the
scale that was asked for (`noise.exact`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.privacy import PrivacyTerms
from hanse_privacy.noise import exact
from hanse_privacy.noise.aggregate import GAUSSIAN, check_distributed, parts_of
from hanse_privacy.noise.exact import Integers
from hanse_privacy.noise.polya import polya_difference
from hanse_privacy.noise.source import NoiseSource

LEAST_GAUSSIAN_STEPS = 4
"""Sigma of a share, from which on that tau is below 1e-60 for each share and can be left out."""


@dataclass(frozen=True, slots=True)
class NoiseShare:
    """What one site draws for each coordinate.

    Attributes:
        gaussian: discrete Gaussian; else a part of a discrete Laplace.
        steps: sigma of this share, or b of the whole noise, in steps of the grid.
        parts: how many shares are the whole noise.
        step: of the grid.
    """

    gaussian: bool
    steps: int
    parts: int
    step: float

    def sample_steps(self, count: int, source: NoiseSource) -> Integers:
        """Independent shares: (count,) steps of the grid."""
        if self.gaussian:
            return exact.discrete_gaussian(self.steps, count, source)
        return polya_difference(self.steps, self.parts, count, source)


def make_share(terms: PrivacyTerms, scale: float, fraction: int) -> NoiseShare:
    """The share of one of `terms.active` sites.

    Args:
        scale: of the noise that any active - colluding sites guarantee, in the update's units.
        fraction: of the ring: the grid's step is 2^-fraction.

    Raises:
        HanseError: INVALID_INPUT for a section that has no shares, and for noise below a step of the grid.
    """
    privacy = terms.privacy
    check_distributed(privacy, terms.active)
    parts, step = parts_of(privacy, terms.active), 2.0**-fraction
    if privacy.mechanism in GAUSSIAN:
        variance = (scale**2 + float(exact.SMOOTH) * step**2) / parts  # of which the sum hides what `scale` hides
        sigma = whole_steps(math.sqrt(variance), step)
        if sigma < LEAST_GAUSSIAN_STEPS:
            raise invalid(
                "privacy", f"a share's noise of {sigma} steps", f"{LEAST_GAUSSIAN_STEPS} steps of 2^-{fraction}"
            )
        return NoiseShare(True, sigma, parts, step)
    return NoiseShare(False, whole_steps(scale, step), parts, step)


def whole_steps(scale: float, step: float) -> int:
    """A scale in steps of a grid, rounded up: never less noise than was asked for.

    Raises:
        HanseError: INVALID_INPUT below one step, of which most noise would be zero, or above 2^50 steps.
    """
    if not step <= scale <= exact.LARGEST_SCALE * step:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"noise of scale {scale:g} on a grid of {step:g}: expected 1 to 2^50 steps of it",
            hint="a smaller bound, fewer participants or bits: 64 make the grid finer",
        )
    return math.ceil(scale / step)
