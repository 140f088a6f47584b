"""Shares of noise: what one site adds to its update, within the masked sum, on the ring's own grid.

Nothing is rounded after the noise: values are rounded toward zero to multiples of 2^-fraction, by which no norm grows,
and the shares are whole numbers of that step from exact samplers. The sum of the sites' shares is thus exactly the law
that is stated: a discrete Laplace from any n - t shares of `distributed-gamma`, of which more shares make a discrete
variance-gamma law; a sum of n discrete Laplace variables for whole ones; a sum of discrete Gaussians, which is within
`gaussian_gap` of a discrete Gaussian (Kairouz, Liu, Steinke 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hanse_fabric.errors import invalid
from hanse_fabric.messages.privacy import PrivacyTerms
from hanse_privacy.noise import exact
from hanse_privacy.noise.aggregate import GAUSSIAN, check_distributed, parts_of
from hanse_privacy.noise.discrete import whole_steps
from hanse_privacy.noise.exact import Integers
from hanse_privacy.noise.source import NoiseSource

LEAST_GAUSSIAN_STEPS = 4
"""Sigma of a share, from which on `gaussian_gap` is below 1e-60 for each share and can be left out."""


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
        return exact.polya_difference(self.steps, self.parts, count, source)


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
        sigma = whole_steps(scale / math.sqrt(parts), step)
        if sigma < LEAST_GAUSSIAN_STEPS:
            raise invalid(
                "privacy", f"a share's noise of {sigma} steps", f"{LEAST_GAUSSIAN_STEPS} steps of 2^-{fraction}"
            )
        return NoiseShare(True, sigma, parts, step)
    return NoiseShare(False, whole_steps(scale, step), parts, step)


def gaussian_gap(steps: float, shares: int) -> float:
    """tau of Kairouz, Liu, Steinke 2021, theorem 1: how far a sum of discrete Gaussians is from one.

    10 times the sum over k < n of exp(-2 pi^2 sigma^2 k/(k+1)): with sigma of 4 steps, less than 1e-60 for each share.

    Args:
        steps: sigma of one share, in steps of the grid.
    """
    return 10 * sum(math.exp(-2 * math.pi**2 * steps**2 * k / (k + 1)) for k in range(1, shares))


def gaussian_rho(sensitivity: float, steps: float, shares: int, dimensions: int) -> float:
    """rho of zero-concentrated privacy of the sum of so many shares (Kairouz, Liu, Steinke 2021, theorem 1).

    epsilon = min(sqrt(D^2/(n s^2) + 2 tau d), D/(sqrt(n) s) + tau sqrt(d)), rho = epsilon^2/2: at least theirs.

    Args:
        sensitivity: D, L2, in steps of the grid.
        steps: s, sigma of one share, in steps.
        dimensions: d.
    """
    if shares < 1 or steps <= 0:
        raise invalid("shares", (shares, steps), "one or more shares with noise")
    tau, ratio = gaussian_gap(steps, shares), sensitivity / (math.sqrt(shares) * steps)
    return min(math.sqrt(ratio**2 + 2 * tau * dimensions), ratio + tau * math.sqrt(dimensions)) ** 2 / 2
