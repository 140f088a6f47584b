"""Noise for one vector of whole numbers: counts, or sums in steps of a fixed grid. What is drawn is what is charged.

`count_noise` finds, from what one unit can change the vector by, a site's noise and the event that its ledger is
charged with; `CountNoise.add` draws it. Where the placement is `local` the site's noise is whole; where it is
`distributed` it is the site's share, and the sum over sites has the whole. All is in whole numbers
(`hanse_privacy.noise.exact`), so nothing is rounded after the noise, and shares are sums of their law (Kairouz, Liu,
Steinke 2021; for Laplace kinds `hanse_privacy.noise.polya`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hanse_fabric.errors import invalid
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.accounting.accountant import AccountantName, accountant_of
from hanse_privacy.accounting.calibration import noise_for
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.noise import exact
from hanse_privacy.noise.aggregate import LAPLACE, OBLIVIOUS, check_distributed, parts_of
from hanse_privacy.noise.distributed import LEAST_GAUSSIAN_STEPS
from hanse_privacy.noise.exact import Integers
from hanse_privacy.noise.polya import polya_difference
from hanse_privacy.noise.source import NoiseSource


@dataclass(frozen=True, slots=True)
class Change:
    """What one unit (an example, a person, a site) can change a vector by, in the vector's own steps.

    Attributes:
        l1, l2: norms of the change, at most.
    """

    l1: float
    l2: float

    def __post_init__(self) -> None:
        for name, norm in (("l1", self.l1), ("l2", self.l2)):
            if not (math.isfinite(norm) and norm > 0):
                raise invalid(f"change.{name}", norm, "a finite norm above 0")


@dataclass(frozen=True, slots=True)
class CountNoise:
    """A site's noise for one vector.

    Attributes:
        gaussian: discrete Gaussian; else a part of a discrete Laplace.
        steps: sigma of this site's noise, or b of the whole noise, in steps of the vector.
        parts: how many sites' noise is the whole noise of a Laplace kind; 1 where the site's is whole.
        event: what the release costs: by one site's noise (`local`), or by that of the sum.
    """

    gaussian: bool
    steps: int
    parts: int
    event: ReleaseEvent

    def add(self, vector: Integers, source: NoiseSource | None = None) -> Integers:
        """The vector (k,) int64 with noise that is drawn anew by every call.

        Args:
            source: for tests; else of fresh randomness.
        """
        source = source or NoiseSource()
        if self.gaussian:
            return vector + exact.discrete_gaussian(self.steps, vector.size, source).reshape(vector.shape)
        return vector + polya_difference(self.steps, self.parts, vector.size, source).reshape(vector.shape)

    @property
    def variance(self) -> float:
        """What this site adds to the variance of one number of the sum, in squares of steps."""
        return float(self.steps) ** 2 * (1.0 if self.gaussian else 2.0 / self.parts)

    def to_json(self) -> dict[str, Any]:
        """As a worker is told it."""
        return {"gaussian": self.gaussian, "steps": self.steps, "parts": self.parts, "event": self.event.to_json()}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> CountNoise:
        """The inverse of `to_json`.

        Raises:
            HanseError: INVALID_INPUT.
        """
        try:
            gaussian, steps, parts = told["gaussian"], told["steps"], told["parts"]
            event = ReleaseEvent.from_json(told["event"])
        except (KeyError, TypeError):
            raise invalid("noise", told, "gaussian, steps, parts and event") from None
        if not isinstance(gaussian, bool) or not isinstance(steps, int) or not isinstance(parts, int) or parts < 1:
            raise invalid("noise", told, "whole numbers of steps and parts, from 1")
        exact.check_scale(steps)
        return cls(gaussian, steps, parts, event)


def count_noise(
    privacy: Privacy, change: Change, *, active: int, epsilon: float | None = None, delta: float = 0.0,
    multiplier: float | None = None, accountant: AccountantName = "pld",
) -> CountNoise:  # fmt: skip
    """The noise of one vector that is released once, by the kind of the job's mechanism: normal noise, or Laplace noise
    with mechanisms that are Laplace kinds or `staircase`.

    Args:
        privacy: the job's section, whose placement must not be `central`: there the sites add none.
        active: how many sites share the noise of placement `distributed`.
        epsilon, delta: what the release costs at most; delta is not used by Laplace kinds; or
        multiplier: noise per unit of change, standard deviation or scale.
        accountant: of the site's ledger; shares are made by one for all (`accountant_of`).

    Raises:
        HanseError: INVALID_INPUT for a placement or mode of noise that has no noise of this kind, for neither of
            epsilon and multiplier or both, and for noise below a step or above 2^50 of them.
    """
    if privacy.placement == "central":
        raise invalid("privacy.placement", "central", "local or distributed, where sites add the noise of counts")
    if privacy.noise in OBLIVIOUS:
        raise invalid("privacy.noise", privacy.noise, "a mode in which a site draws its noise alone")
    if (epsilon is None) == (multiplier is None):
        raise invalid("epsilon of counts", epsilon, "an epsilon, or a multiplier of noise, one of them")
    parts = 1
    if privacy.placement == "distributed":
        check_distributed(privacy, active)
        parts = parts_of(privacy, active)
    if privacy.mechanism in (*LAPLACE, "staircase"):
        return laplace_noise(change, 1 / epsilon if epsilon is not None else multiplier or 0.0, parts=parts)
    if multiplier is None:
        made_by = accountant_of(privacy.placement, accountant)
        multiplier = noise_for("gaussian", epsilon or 0.0, delta, 1, accountant=made_by)
    # The sum hides what continuous noise of a variance that is smaller by SMOOTH hides (`noise.exact`).
    sigma = math.ceil(math.sqrt(((multiplier * change.l2) ** 2 + float(exact.SMOOTH)) / parts))
    if sigma < LEAST_GAUSSIAN_STEPS:
        raise invalid("noise of counts", f"{sigma} steps", f"{LEAST_GAUSSIAN_STEPS} steps of the vector's grid or more")
    exact.check_scale(sigma)
    return CountNoise(True, sigma, 1, ReleaseEvent("gaussian", multiplier))


def laplace_noise(change: Change, multiplier: float, *, parts: int = 1) -> CountNoise:
    """Laplace noise of one vector that is released once, whatever the job's mechanism: whole at a site, or in parts.

    Args:
        multiplier: the scale per unit of change in L1: 1 / epsilon.

    Raises:
        HanseError: INVALID_INPUT for noise below a step or above 2^50 of them.
    """
    steps = math.ceil(change.l1 * multiplier)
    exact.check_scale(steps)
    return CountNoise(False, steps, parts, ReleaseEvent("pure", change.l1 / steps))
