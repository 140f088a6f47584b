"""A site's share of distributed noise, added while its masked update is written."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import RingPlan
from hanse_fabric.messages.privacy import PrivacyTerms
from hanse_privacy.accounting.terms import round_noise
from hanse_privacy.noise.aggregate import aggregate
from hanse_privacy.noise.distributed import NoiseShare, make_share
from hanse_privacy.noise.source import NoiseSource
from hanse_privacy.ring.files import Adjust
from hanse_privacy.ring.plan import capacity, largest_sum


def site_noise(terms: PrivacyTerms, participant: str, plan: RingPlan, *, source: NoiseSource | None = None) -> Adjust:
    """What `write_masked(adjust=...)` adds to the parameters: this site's share, drawn anew for every call.

    It also turns the ring's rounding to the nearest into one toward zero, so that the clipped norm holds on the grid.

    Args:
        terms: of a task with placement `distributed`; its update is clipped to `terms.privacy.clip` already.
        source: for tests; else of fresh randomness.

    Raises:
        HanseError: INVALID_INPUT for a plan that weighs or rounds at random, for a ring without room for the noise, and
            as `make_share`.
    """
    if plan.largest_weight != 1:
        raise invalid("ring.largest_weight", plan.largest_weight, "1: sums with distributed noise weigh sites equally")
    if plan.stochastic:
        raise invalid("secure_aggregation.rounding", "stochastic", "nearest, where noise is added in the ring")
    ring = plan.default
    scale = round_noise(terms, participant).scale
    share = make_share(terms, scale, ring.fraction)
    tail = aggregate(terms.privacy, terms.active, share.steps * share.step if not share.gaussian else scale).tail()
    if largest_sum(ring, plan.participants, tail=tail) > capacity(ring.bits):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"ring: {plan.participants} participants within +-{ring.bound:g} and noise up to {tail:g} at "
            f"{ring.fraction} fraction bits overflow {ring.bits} bits",
            hint="bits: 64, a smaller bound, or a larger epsilon",
        )
    return adjust_by(share, source or NoiseSource())


def adjust_by(share: NoiseShare, source: NoiseSource) -> Adjust:
    """Adds independent shares to blocks of values, and a step where rounding to the nearest went away from zero."""
    grid = 1 / share.step

    def adjust(values: NDArray[np.float64], _first: int) -> NDArray[np.int64]:
        scaled = values.reshape(-1) * grid
        toward_zero = (np.trunc(scaled) - np.rint(scaled)).astype(np.int64)
        return (share.sample_steps(scaled.size, source) + toward_zero).reshape(values.shape)

    return adjust
