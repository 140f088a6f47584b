"""Integers and reals of a study in Z_2^32 and Z_2^64: exact beyond what a float64 holds, refused out of range."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.masking import Ring, RingPlan
from hanse_privacy.ring.codec import decode, encode
from hanse_privacy.ring.plan import check_plan

WIDE = 2**60
BYTES = st.integers(0, 2**64 - 1)


def summed(parts: list[Any], ring: Ring, masks: list[int]) -> Any:
    """Masked, added and unmasked again, as cohorts, compensator and aggregator do."""
    dtype = np.uint32 if ring.bits == 32 else np.uint64
    total = np.zeros(parts[0].shape, dtype)
    for part, mask in zip(parts, masks, strict=True):
        total += encode(part, ring, refuse=True)[0] + np.array(mask % 2**ring.bits, dtype)
    return total - np.array(sum(masks) % 2**ring.bits, dtype)


def test_values_on_the_bound_are_within_it() -> None:
    ring = Ring(bits=32, fraction=4, bound=8.0)
    for value in (8.0, -8.0):
        made, clipped = encode(np.array([value, 0.5]), ring, refuse=True)
        assert (decode(made, ring).tolist(), clipped) == ([value, 0.5], 0)


def test_a_value_on_the_grid_is_rounded_to_itself_whatever_is_drawn() -> None:
    ring, exact = Ring(bits=32, fraction=4, bound=8.0), np.array([0.25, -3.0, 8.0])
    for drawn in (0.0, 1 - 2.0**-53):
        made, _ = encode(exact, ring, stochastic=lambda count, drawn=drawn: np.full(count, drawn))  # type: ignore[misc]
        assert decode(made, ring).tolist() == exact.tolist()


@settings(max_examples=50)
@given(
    parts=st.lists(arrays(np.int64, 4, elements=st.integers(-WIDE, WIDE)), min_size=3, max_size=3),
    masks=st.lists(BYTES, min_size=3, max_size=3),
)
def test_integers_are_summed_exactly_beyond_the_53_bits_of_a_float(parts: list[Any], masks: list[int]) -> None:
    ring = Ring(bits=64, fraction=0, bound=float(WIDE))
    check_plan(RingPlan(participants=3, default=ring))
    exact = [sum(int(part[at]) for part in parts) for at in range(4)]
    assert summed(parts, ring, masks).view(np.int64).tolist() == exact


@settings(max_examples=50)
@given(
    parts=st.lists(arrays(np.int64, 4, elements=st.integers(-(2**20), 2**20)), min_size=3, max_size=3),
    masks=st.lists(BYTES, min_size=3, max_size=3),
)
def test_counts_fit_a_ring_of_32_bits(parts: list[Any], masks: list[int]) -> None:
    ring = Ring(bits=32, fraction=0, bound=2.0**20)
    assert summed(parts, ring, masks).view(np.int32).tolist() == np.sum(parts, axis=0).tolist()


@settings(max_examples=50)
@given(
    parts=st.lists(arrays(np.float64, 4, elements=st.floats(-16, 16)), min_size=3, max_size=3),
    masks=st.lists(BYTES, min_size=3, max_size=3),
    fraction=st.sampled_from((40, 52, 56)),
)
def test_real_numbers_are_off_by_half_a_unit_each(parts: list[Any], masks: list[int], fraction: int) -> None:
    ring = Ring(bits=64, fraction=fraction, bound=16.0)
    check_plan(RingPlan(participants=3, default=ring))
    total = summed(parts, ring, masks)
    for at in range(4):
        units = int(total.view(np.int64)[at])
        exact = sum(Fraction(float(part[at])) for part in parts)
        assert abs(Fraction(units, 2**fraction) - exact) <= Fraction(3, 2 ** (fraction + 1))
        # Read as float64, the sum is the nearest to what the units say.
        assert decode(total, ring)[at] == float(Fraction(units, 2**fraction))


@settings(max_examples=50)
@given(values=arrays(np.float64, 5, elements=st.integers(-(2**53), 2**53).map(float)))
def test_whole_floats_are_exact_in_a_ring_without_fraction(values: Any) -> None:
    ring = Ring(bits=64, fraction=0, bound=2.0**53)
    assert encode(values, ring)[0].view(np.int64).tolist() == [int(value) for value in values]


@pytest.mark.parametrize("value", [np.array([2**40 + 1]), np.array([-(2**40) - 1]), np.array([2.0**40 + 1])])
def test_values_beyond_the_announced_range_are_refused_and_not_clipped(value: Any) -> None:
    with pytest.raises(HanseError, match="beyond the bound"):
        encode(value, Ring(bits=64, fraction=0, bound=2.0**40), refuse=True)


def test_the_smallest_integer_of_all_is_not_taken_for_a_small_one() -> None:
    with pytest.raises(HanseError, match="beyond the bound"):
        encode(np.array([np.iinfo(np.int64).min]), Ring(bits=64, fraction=0, bound=float(WIDE)), refuse=True)


@pytest.mark.parametrize(
    ("values", "clipped", "kept"),
    [
        (np.array([1.0, 3.0]), 1, [1, 2]),
        (np.array([-3.0, 1.0]), 1, [-2, 1]),
        (np.array([-3, 2, 3]), 2, [-2, 2, 2]),
        (np.array([2**64 - 1, 1], np.uint64), 1, [2, 1]),
        (np.array([-2.0, 2.0]), 0, [-2, 2]),
        (np.array([-2.0, 2.0, 3.0]), 1, [-2, 2, 2]),
        (np.array([-2, 2, 3]), 1, [-2, 2, 2]),
    ],
)
def test_what_is_beyond_the_bound_is_clipped_and_counted_where_it_is_not_refused(
    values: Any, clipped: int, kept: list[int]
) -> None:
    elements, counted = encode(values, Ring(bits=64, fraction=0, bound=2.0))
    assert (elements.view(np.int64).tolist(), counted) == (kept, clipped)


@pytest.mark.parametrize("value", [5.0, -5.0, 5, -5])
def test_a_refusal_says_how_many_values_and_the_largest(value: float) -> None:
    with pytest.raises(HanseError, match="1 are beyond the bound of 2, the largest is 5"):
        encode(np.array([value, 1]), Ring(bits=64, fraction=0, bound=2.0), refuse=True)


def test_a_ring_that_cannot_hold_its_bound_is_refused_at_the_first_number_too_large() -> None:
    largest = np.array([2**31 - 2])
    assert encode(largest, Ring(bits=32, fraction=0, bound=2.0**31 - 2))[0].tolist() == [2**31 - 2]
    for bits, fraction, bound in ((32, 0, 2.0**31 - 1), (32, 4, 2.0**27), (64, 0, 2.0**63)):
        with pytest.raises(HanseError, match=f"in {bits} bits"):
            encode(largest, Ring(bits=bits, fraction=fraction, bound=bound))


@pytest.mark.parametrize(
    ("values", "within", "outside"),
    [
        (np.array([2**64 - 1, 3], np.uint64), [2**40, 3], 1),
        (np.array([255, 3], np.uint8), [255, 3], 0),
        (np.array([-(2**63), 2**62], np.int64), [-(2**40), 2**40], 2),
        (np.array([-128, 127], np.int8), [-128, 127], 0),
    ],
)
def test_integers_of_any_kind_are_cut_to_the_bound_and_counted(values: Any, within: list[int], outside: int) -> None:
    ring = Ring(bits=64, fraction=0, bound=float(2**40))
    made, clipped = encode(values, ring)
    assert (made.view(np.int64).tolist(), clipped) == (within, outside)


@pytest.mark.parametrize("factor", [-0.5, math.inf, math.nan])
def test_a_weight_that_is_no_share_of_the_largest_is_refused_by_name(factor: float) -> None:
    with pytest.raises(HanseError, match="factor"):
        encode(np.array([1.0]), Ring(bits=32, fraction=4, bound=8.0), factor=factor)
