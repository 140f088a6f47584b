"""The noise in a sum over sites: what it is, how far it reaches, and how many shares it needs. No numpy: the hub asks.

Each site's share, by the job's `noise` (docs/privacy.md), with n active sites and t that may collude:

- `local-laplace`: a whole Laplace(b). The sum is an n-fold Laplace: nobody's collusion shortens the others' shares.
- `distributed-gamma`: one of n - t parts of a Laplace(b). Any n - t sites already sum to Laplace(b).
- `oblivious`, `oblivious-shuffled`: parts for every peer, which together are a whole Laplace(b) of each site.
- Gaussian mechanisms: a discrete Gaussian of variance sigma^2/(n - t).
- `dp_ftrl`: the same, correlated from round to round (`correlated.shares`): all n are in every sum, or there is none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.accounting.parts import of_rounds, require_one_epsilon
from hanse_privacy.correlated.matrix import LARGEST_SIGMA, inverse_column
from hanse_privacy.correlated.sensitivity import sensitivity
from hanse_privacy.noise.gaussian import concentrated_rho

SURELY = 2.0**-64
"""Probability with which one coordinate's noise may reach beyond what the ring has room for."""

OBLIVIOUS = ("oblivious", "oblivious-shuffled")
"""Modes in which others choose what of a site's noise is added."""

WHOLE = ("local-laplace", *OBLIVIOUS)
"""Modes in which each site contributes a whole Laplace(b)."""

GAUSSIAN = ("gaussian", "discrete_gaussian", "dp_ftrl")
LAPLACE = ("laplace", "discrete_laplace")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The noise of one coordinate of a sum.

    Attributes:
        scale: b of each Laplace variable, or the standard deviation of Gaussian noise.
        count: of how many Laplace variables it is the sum (a fraction is a variance-gamma law of this shape); 0: it is
            Gaussian.
    """

    scale: float
    count: float

    @property
    def variance(self) -> float:
        """In the square of the scale's unit."""
        return 2 * self.count * self.scale**2 if self.count else self.scale**2

    def tail(self, probability: float = SURELY) -> float:
        """A magnitude that is exceeded with at most this probability: the tail bound of a sub-gamma variable."""
        x = math.log(2 / probability)
        return self.scale * (2 * math.sqrt(self.count * x) + x) if self.count else self.scale * math.sqrt(2 * x)


def check_distributed(privacy: Privacy, active: int) -> None:
    """Check that shares of this privacy section's noise can be made among so many sites.

    Raises:
        HanseError: INVALID_INPUT naming the field.
    """
    if privacy.placement != "distributed":
        raise invalid("privacy.placement", privacy.placement, "distributed")
    require_one_epsilon(privacy)
    if privacy.mechanism in LAPLACE and privacy.noise is None:
        raise invalid("privacy.noise", None, "the way the shares are made: local-laplace, distributed-gamma, ...")
    if privacy.mechanism in GAUSSIAN and privacy.noise is not None:
        raise invalid("privacy.noise", privacy.noise, f"none: shares of {privacy.mechanism} noise are Gaussian")
    if privacy.mechanism not in LAPLACE + GAUSSIAN:
        raise invalid("privacy.mechanism", privacy.mechanism, "a Laplace or Gaussian kind, whose noise has shares")
    if active < 3:
        raise invalid("participants", active, "at least 3: of two, each could work out the other's")
    if privacy.colluding >= active:
        raise invalid("privacy.colluding", privacy.colluding, f"below the number of active sites, {active}")


def parts_of(privacy: Privacy, active: int) -> int:
    """How many sites' shares are together the whole noise that was asked for."""
    return 1 if privacy.noise in WHOLE else active - privacy.colluding


def least_answers(privacy: Privacy, active: int) -> int:
    """How many of `active` sites must answer, so that the sum has the noise that was asked for.

    Those who drop out are as bad as those who collude: their shares are missing. Where each site's noise is whole,
    each counts for itself. Of correlated noise all must be in every sum: who is missing now may be another than who was
    missing before, and of those who were in all of them too few would be left.
    """
    if privacy.placement == "distributed" and privacy.mechanism == "dp_ftrl":
        return active
    return parts_of(privacy, active) if privacy.placement == "distributed" else 1


def aggregate(privacy: Privacy, active: int, scale: float) -> Aggregate:
    """The noise in the sum over `active` sites.

    Args:
        scale: b, or sigma, that any n - t of them guarantee.
    """
    check_distributed(privacy, active)
    if privacy.mechanism in GAUSSIAN:
        return Aggregate(scale * math.sqrt(active / (active - privacy.colluding)), 0.0)
    return Aggregate(scale, active / parts_of(privacy, active))


def largest_scale(terms: PrivacyTerms) -> float:
    """At least the scale that `accounting.terms.round_noise` finds, without its libraries: for the hub's headroom.

    By basic composition for Laplace kinds, by zero-concentrated privacy for Gaussian ones, for the smallest epsilon of
    any site.
    """
    privacy = of_rounds(terms.privacy)
    if privacy.noise_multiplier is not None and not privacy.site_epsilon:
        return privacy.noise_multiplier * privacy.clip
    epsilon = min([*privacy.site_epsilon.values(), *([privacy.epsilon] if privacy.epsilon else [])])
    if privacy.mechanism in LAPLACE:
        scale = 2 * privacy.clip * terms.rounds / epsilon
    else:
        rho = concentrated_rho(epsilon, privacy.delta)  # of the whole run
        if not rho:
            raise HanseError(ErrorCode.INVALID_INPUT, f"privacy.epsilon: {epsilon} is too small for any noise")
        scale = 2 * privacy.clip * _change(terms) / math.sqrt(2 * rho)
    return (
        1.25 * scale if privacy.noise_multiplier is None else max(1.25 * scale, privacy.noise_multiplier * privacy.clip)
    )


def noise_tail(terms: PrivacyTerms) -> float:
    """Magnitude that the noise in a coordinate of the sum does not exceed but with 2^-64: for `make_plan(tail=...)`."""
    return spread(terms) * aggregate(terms.privacy, terms.active, largest_scale(terms)).tail()


def finest_fraction(terms: PrivacyTerms) -> int | None:
    """Bits after the point of the finest grid on which shares of correlated noise can be drawn; None: of any."""
    if terms.correlation is None:
        return None
    return math.floor(math.log2(LARGEST_SIGMA / largest_scale(terms))) - 1


def spread(terms: PrivacyTerms) -> float:
    """Deviation of the last round's noise, which is the widest, per unit of that of the independent noise that it is
    made of: 1 where it is not correlated."""
    if terms.correlation is None:
        return 1.0
    return math.sqrt(math.fsum(value * value for value in inverse_column(terms.correlation, terms.rounds)))


def _change(terms: PrivacyTerms) -> float:
    """How far all rounds together move, per unit of what moves one (L2)."""
    separation = terms.privacy.min_separation
    if terms.correlation is None or separation is None:
        return math.sqrt(terms.rounds)
    return sensitivity(terms.correlation, rounds=terms.rounds, separation=separation)
