"""The rings that a study's sums are taken in: as exact as 32 or 64 bits allow. No numpy here, because the hub chooses
them.

Counts are integers and exact. Real statistics are sums over standardised columns, whose magnitude Cauchy-Schwarz
bounds by the number of samples, so that the range that must be announced tells nobody anything of the data. Sums of
which nothing is known beforehand, those of the raw columns, go as integers in limbs (`hanse_genomics.wide`).
"""

from __future__ import annotations

from typing import Literal

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import Ring
from hanse_privacy.ring import limbs as whole
from hanse_privacy.ring.plan import capacity, largest_sum

LIMBS = 6
"""Of a wide number."""

MOST_FRACTION = 52
"""Fraction bits beyond which a float64 near 1 has nothing to say."""


def counts(samples: int, cohorts: int) -> Ring:
    """Of counts that no cohort can have above `samples`: 32 bits where they hold the sum."""
    bits: Literal[32, 64] = 64
    if cohorts * (samples + 1) <= capacity(32):
        bits = 32
    return Ring(bits=bits, fraction=0, bound=float(max(samples, 1)))


def people(cohorts: int) -> Ring:
    """Of numbers of samples, before anything is known: up to 2^40 in a cohort."""
    return whole.ring(cohorts)


def limbs(cohorts: int) -> Ring:
    """Of the limbs of wide numbers."""
    return whole.ring(cohorts)


def reals(bound: float, cohorts: int) -> Ring:
    """Of real numbers within +-bound: as many fraction bits as 64 bits have room for.

    Raises:
        HanseError: INVALID_INPUT when not even whole numbers fit.
    """
    ring = _reals(64, bound, cohorts)
    if ring is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"sums of {cohorts} cohorts within +-{bound:g} do not fit a ring of 64 bits"
        )
    return ring


def coarse(bound: float, cohorts: int) -> Ring:
    """Of real numbers within +-bound of which the first digits decide: 32 bits, where they have room."""
    return _reals(32, bound, cohorts) or reals(bound, cohorts)


def _reals(bits: Literal[32, 64], bound: float, cohorts: int) -> Ring | None:
    for fraction in range(min(MOST_FRACTION, bits - 1), 0, -1):
        ring = Ring(bits=bits, fraction=fraction, bound=bound)
        if largest_sum(ring, cohorts) <= capacity(bits):
            return ring
    return None
