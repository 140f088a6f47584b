"""Numbers in Z_2^32 and Z_2^64: masked sums are the sums."""

import os

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.masking import Ring, RingPlan
from hanse_privacy.ring.codec import decode, encode, uniforms
from hanse_privacy.ring.plan import capacity, largest_sum
from ring_error import error_bound

each_ring = pytest.mark.parametrize("bits", [32, 64])


@each_ring
@settings(max_examples=30, deadline=None)
@given(
    participants=st.integers(3, 40),
    shape=st.lists(st.integers(0, 5), max_size=3),
    bound=st.floats(2.0**-10, 1000),
    fraction=st.integers(0, 24),
    seed=st.integers(0, 2**32),
)
def test_the_masked_sum_is_the_plain_sum(
    bits: int, participants: int, shape: list[int], bound: float, fraction: int, seed: int
) -> None:
    ring = Ring.model_validate({"bits": bits, "fraction": fraction, "bound": bound})
    assume(largest_sum(ring, participants) <= capacity(bits))
    numbers = np.random.default_rng(seed)
    values = numbers.uniform(-bound, bound, (participants, *shape))
    encoded = [encode(value, ring)[0] for value in values]
    dtype = np.dtype(f"<u{bits // 8}")
    masks = [numbers.integers(0, 2**bits, shape, dtype=dtype) for _ in encoded]
    total = np.sum([element + mask for element, mask in zip(encoded, masks, strict=True)], axis=0, dtype=dtype)
    unmasked = np.subtract(np.atleast_1d(total), np.sum(masks, axis=0, dtype=dtype)).reshape(shape)
    assert np.array_equal(unmasked, np.sum(encoded, axis=0, dtype=dtype))
    error = np.abs(decode(unmasked, ring) - values.sum(axis=0))
    assert (error <= participants * (2.0 ** -(fraction + 1) + bound * 2.0**-50)).all()


@each_ring
@settings(max_examples=20, deadline=None)
@given(counts=st.lists(st.integers(-(10**6), 10**6), min_size=3, max_size=200))
def test_counts_are_exact(bits: int, counts: list[int]) -> None:
    ring = Ring.model_validate({"bits": bits, "fraction": 0, "bound": 1e6})
    encoded = [encode(np.array([count]), ring)[0] for count in counts]
    assert decode(np.sum(encoded, axis=0, dtype=encoded[0].dtype), ring)[0] == sum(counts)


@each_ring
def test_two_thousand_participants_at_either_bound_are_summed_right(bits: int) -> None:
    ring = Ring.model_validate({"bits": bits, "fraction": 16, "bound": 8.0})
    assert largest_sum(ring, 2000) <= capacity(bits)
    for bound in (8.0, -8.0):
        element = encode(np.array([bound]), ring)[0]
        assert decode(np.sum([element] * 2000, axis=0, dtype=element.dtype), ring)[0] == 2000 * bound


@each_ring
def test_values_that_are_not_finite_are_refused_before_they_are_encoded(bits: int) -> None:
    ring = Ring.model_validate({"bits": bits, "fraction": 8, "bound": 8.0})
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(HanseError, match="not finite"):
            encode(np.array([0.0, bad], dtype=np.float32), ring)


def test_values_beyond_the_bound_are_clipped_and_counted_or_refused() -> None:
    ring = Ring(bits=32, fraction=8, bound=0.1)  # a bound that float32 cannot hold
    values = np.array([0.1, 0.5, -7.0, 0.05], dtype=np.float32)
    elements, clipped = encode(values, ring)
    assert clipped == 3
    assert np.abs(decode(elements, ring)).max() <= 0.1 + 2.0**-9
    with pytest.raises(HanseError, match=r"3 are beyond the bound of 0.1, the largest is 7"):
        encode(values, ring, refuse=True)


def test_integers_are_exact_beyond_what_floats_hold() -> None:
    ring = Ring(bits=64, fraction=0, bound=2.0**60)
    values = np.array([2**60 - 1, -(2**60) + 1, 2**53 + 1], dtype=np.int64)
    elements, _ = encode(values, ring)
    assert elements.view(np.int64).tolist() == values.tolist()
    wide, clipped = encode(np.array([2**64 - 1, 3], dtype=np.uint64), ring)
    assert (wide.tolist(), clipped) == ([2**60, 3], 1)
    assert encode(np.array([True, False]), ring)[0].tolist() == [1, 0]


@pytest.mark.parametrize("factor", [-0.1, float("inf"), float("nan")])
def test_a_weight_that_is_none_is_refused(factor: float) -> None:
    with pytest.raises(HanseError, match="factor"):
        encode(np.zeros(1), Ring(bits=32, fraction=8, bound=1), factor=factor)


@settings(max_examples=40, deadline=None)
@given(
    bits=st.sampled_from([32, 64]),
    dtype=st.sampled_from(["f2", "f4", "f8"]),
    weights=st.lists(st.integers(1, 1000), min_size=3, max_size=20),
    stochastic=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_weighted_sums_stay_within_the_stated_bound(
    bits: int, dtype: str, weights: list[int], stochastic: bool, seed: int
) -> None:
    ring = Ring.model_validate({"bits": bits, "fraction": 18, "bound": 4.0})
    plan = RingPlan(participants=len(weights), largest_weight=1000, default=ring, stochastic=stochastic)
    draw = uniforms() if stochastic else None
    values = np.random.default_rng(seed).uniform(-4, 4, (len(weights), 50)).astype(dtype)
    total = np.zeros(50, dtype=f"<u{bits // 8}")
    for weight, value in zip(weights, values, strict=True):
        total += encode(value, ring, factor=weight / 1000, stochastic=draw)[0]
    real = (np.array(weights) / 1000) @ values.astype(np.float64)
    assert np.abs(decode(total, ring) - real).max() <= error_bound(plan, ring, len(weights))


def test_stochastic_rounding_is_unbiased_and_to_a_neighbour() -> None:
    ring = Ring(bits=32, fraction=4, bound=8.0)
    draw = uniforms(bytes(range(32)))  # fixed, and so is the outcome
    for value in (0.3, -1.234, 1 / 64, -0.999):
        decoded = decode(encode(np.full(200_000, value), ring, stochastic=draw)[0], ring)
        assert set(decoded) <= {np.floor(value * 16) / 16, np.ceil(value * 16) / 16}
        # Standard deviation of the mean: at most 2^-4 / 2 / sqrt(200,000) = 7e-5.
        assert abs(decoded.mean() - value) < 3.5e-4
    exact = np.array([0.25, -3.0, 8.0])
    assert np.array_equal(decode(encode(exact, ring, stochastic=draw)[0], ring), exact)


def test_rounding_draws_differ_unless_their_seed_is_given() -> None:
    assert not np.array_equal(uniforms()(100), uniforms()(100))
    fixed = os.urandom(32)
    assert np.array_equal(uniforms(fixed)(100), uniforms(fixed)(100))
    assert uniforms()(1000).min() >= 0
    assert uniforms()(1000).max() < 1


@pytest.mark.parametrize("bits", [32, 64])
def test_values_that_wrap_are_their_residues_and_sums_are_those_of_whole_numbers(bits: int) -> None:
    ring = Ring(bits=bits, fraction=8, bound=2.0)
    values = np.array([0.0, -1.25, 2.0, 2.5, -1e6, 2.0**40 + 0.5, -(2.0**60), 2.0**70, 2.0**55, -(2.0**55)])
    with np.errstate(invalid="raise"):  # what int64 does not hold is another number on another processor
        elements, clipped = encode(values, ring, refuse=True, wrap=True)
    assert clipped == 0
    assert elements.tolist() == [int(value * 256) % 2**bits for value in values.tolist()]
    counts = np.array([0, 3, 2**31 + 5, 2**62], np.int64)
    elements, _ = encode(counts, Ring(bits=bits, fraction=0, bound=1), refuse=True, wrap=True)
    assert elements.tolist() == [count % 2**bits for count in counts.tolist()]


def test_within_the_bound_whatever_wraps_is_what_is_refused_beyond_it() -> None:
    ring, values = Ring(bits=64, fraction=40, bound=8), np.linspace(-8, 8, 1001)
    assert encode(values, ring, wrap=True)[0].tobytes() == encode(values, ring, refuse=True)[0].tobytes()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e308])
def test_what_is_not_finite_is_no_residue_of_anything(value: float) -> None:
    with pytest.raises(HanseError, match="not finite"):
        encode(np.array([1.0, value]), Ring(bits=64, fraction=8, bound=8), wrap=True)


def residues(values: list[float], bits: int) -> list[int]:
    """Of the nearest whole numbers, of two the even one."""
    return [round(value) % 2**bits for value in values]


def test_the_largest_numbers_that_wrap_lose_no_bit_and_none_is_taken_for_its_neighbour() -> None:
    ring = Ring(bits=64, fraction=0, bound=2.0)
    at_the_edges = [1.75 * 2**64, 1.5 * 2**64, 2.0**64 + 2**12, 2.0**63 + 2**11, 2.0**63, 2.0**53 - 1, 0.5, 1.5, 1.75]
    values = [sign * value for value in at_the_edges for sign in (1, -1)]
    with np.errstate(invalid="raise"):
        assert encode(np.array(values), ring, wrap=True)[0].tolist() == residues(values, 64)


def test_counts_that_wrap_are_exact_beyond_what_floats_hold_and_scaled_where_the_ring_has_a_fraction() -> None:
    counts = [2**53 + 1, -(2**53) - 1, 3]
    for fraction, expected in ((0, counts), (1, [2**54, -(2**54), 6]), (8, [2**61, -(2**61), 768])):
        made, _ = encode(np.array(counts), Ring(bits=64, fraction=fraction, bound=2.0), wrap=True)
        assert made.view(np.int64).tolist() == expected


def test_counts_are_scaled_by_the_fraction_and_by_a_weight() -> None:
    counts = np.array([3, -5, 4])
    made, clipped = encode(counts, Ring(bits=64, fraction=8, bound=5.0), refuse=True)
    assert (made.view(np.int64).tolist(), clipped) == ([768, -1280, 1024], 0)
    assert encode(counts, Ring(bits=64, fraction=0, bound=5.0), factor=0.5)[0].view(np.int64).tolist() == [2, -2, 2]


def test_real_numbers_in_a_ring_without_fraction_are_rounded_and_not_cut_to_whole_ones() -> None:
    values = np.array([1.75, -1.75, 0.5, 2.5, 7.0])
    made, clipped = encode(values, Ring(bits=64, fraction=0, bound=5.75))
    assert (made.view(np.int64).tolist(), clipped) == ([2, -2, 0, 2, 6], 1)


def test_weights_above_the_largest_have_elements_as_large_as_they_are() -> None:
    """Of a value that a lying site would weight more than it may: nobody sees it, so it wraps as every number does."""
    for bound, fraction, factor, value in (
        (8.0, 40, 2.0**26, 1 + 2.0**-20),
        (8.0, 40, 2.0**26, -7.75),
        ((2**51 - 2) / 2.0**40, 40, 1.5, (2**51 - 2) / 2.0**40),  # beyond 2^51, and odd
        (1.75 * 2**22, 40, 1.5, 1.75 * 2**22),  # beyond 2^63
        (1.75 * 2**22, 40, 2.0, -1.75 * 2**22),
    ):
        with np.errstate(invalid="raise"):
            made, clipped = encode(np.array([value]), Ring(bits=64, fraction=fraction, bound=bound), factor=factor)
        assert (made.tolist(), clipped) == (residues([value * factor * 2.0**fraction], 64), 0)


def test_numbers_too_large_for_the_quick_way_are_rounded_to_the_nearest_as_all_are() -> None:
    fine = Ring(bits=64, fraction=50, bound=8.0)
    values = np.array([0.75, -0.75, 0.5, 1.5, -1.25]) * 2.0**-50
    assert encode(values, fine)[0].view(np.int64).tolist() == [1, -1, 0, 2, -1]
    odd = 2.0**52 - 1
    assert encode(np.array([odd, -odd]), Ring(bits=64, fraction=0, bound=odd))[0].view(np.int64).tolist() == [odd, -odd]


def test_a_ring_that_holds_the_sum_takes_each_number_for_its_residue_of_64_bits() -> None:
    ring, values = Ring(bits=40, fraction=40, bound=8.0), [7.5, -0.25, 3.0 + 2.0**-40]
    made = encode(np.array(values), ring, summed=True)[0]
    assert decode(made, ring).tolist() == [-0.5, -0.25, 2.0**-40]
    for refused, summed in ((ring, False), (Ring(bits=40, fraction=60, bound=8.0), True)):
        with pytest.raises(HanseError, match=r"ring\.fraction: \d+ is not small enough for \+-8 in 40 bits"):
            encode(np.array(values), refused, summed=summed)


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_nothing_is_encoded_to_nothing_whatever_the_bound(dtype: type) -> None:
    for shape in ((0,), (3, 0)):
        made, clipped = encode(np.zeros(shape, dtype), Ring(bits=32, fraction=0, bound=0.5), refuse=True)
        assert (made.shape, clipped) == (shape, 0)


def test_whoever_gives_room_has_the_elements_there_and_no_memory_taken_for_them() -> None:
    ring, values, room = Ring(bits=64, fraction=8, bound=8.0), np.linspace(-8, 8, 12).reshape(3, 4), np.empty(100)
    made, _ = encode(values, ring, room=room)
    assert np.shares_memory(made, room)
    assert made.tolist() == encode(values, ring)[0].tolist()
