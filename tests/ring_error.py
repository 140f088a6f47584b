"""What the sums of rings promise of their exactness."""

from __future__ import annotations

from hanse_fabric.messages.masking import Ring, RingPlan


def error_bound(plan: RingPlan, ring: Ring, participants: int) -> float:
    """How far a decoded sum can be from the real sum of factor * clip(x): half a unit for each (a whole one where
    rounding is stochastic), and float64's own rounding of factor, product and result.

    The weighted mean is off by at most this times largest_weight / total weight.
    """
    unit = 2.0**-ring.fraction * (1.0 if plan.stochastic else 0.5)
    return participants * (unit + ring.bound * 2.0**-51)
