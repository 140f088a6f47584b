"""Plans: no sum overflows, whatever the participants, bounds and weights; what cannot fit is refused beforehand."""

import re
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import Chosen, Ring, RingPlan
from hanse_fabric.tensors.layout import Entry, Rule
from hanse_privacy.noise.aggregate import Aggregate
from hanse_privacy.ring.codec import decode, encode
from hanse_privacy.ring.plan import (
    AVERAGE,
    LEAST_LEVELS,
    POOL_VARIANCE,
    capacity,
    check_plan,
    largest_sum,
    make_plan,
    metric_ring,
    packed_ring,
    ring_bits,
    ring_of,
    sign_bits,
    weighted,
    whole_numbers,
)
from hanse_schemas.secure_aggregation import LARGEST_WEIGHT, SecureAggregation
from ring_error import error_bound


def section(**values: object) -> SecureAggregation:
    return SecureAggregation.model_validate({"mode": "compensator"} | values)


def test_the_hub_plans_without_numpy() -> None:
    program = (
        "import sys; from hanse_privacy.ring import plan; import hanse_privacy.masks.seal;"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


@settings(max_examples=50, deadline=None)
@given(
    participants=st.integers(3, 2000),
    bound=st.floats(2.0**-20, 2.0**16),
    bits=st.sampled_from([8, 16, 32, 48, 64]),
    weighting=st.sampled_from(["examples", "uniform"]),
    negative=st.booleans(),
    rounding=st.sampled_from(["nearest", "stochastic"]),
)
def test_the_sum_of_everyone_at_the_bound_is_read_back_right(
    participants: int, bound: float, bits: int, weighting: str, negative: bool, rounding: str
) -> None:
    settings = section(bound=bound, bits=bits, rounding=rounding)
    try:
        plan = make_plan(settings, participants=participants, weighting=weighting)
    except HanseError:
        assert bits < 64
        # Twice, for a fraction is a whole number of bits.
        least = bound * 2**4 if bits == 32 else max(LEAST_LEVELS, bound)
        assert 2 * participants * (least + 1) > capacity(bits)
        return
    ring = plan.default
    extreme = np.array([-bound if negative else bound, 0.0])
    upward = (lambda count: np.zeros(count)) if plan.stochastic else None  # always rounds up where it can
    elements, clipped = encode(extreme, ring, stochastic=upward)
    total = np.zeros(2, dtype=elements.dtype)
    for _ in range(participants):
        total += elements
    assert clipped == 0
    assert abs(decode(total, ring)[0] - participants * extreme[0]) <= participants * 2.0**-ring.fraction * 1.001
    assert decode(total, ring)[1] == 0


@settings(max_examples=50)
@example(participants=1, bound=2.0**-23, tail=256.0)
@given(participants=st.integers(1, 1_000_000), bound=st.floats(2.0**-23, 2.0**30), tail=st.floats(0, 2.0**20))
def test_the_fraction_is_the_largest_that_cannot_overflow(participants: int, bound: float, tail: float) -> None:
    def fits(fraction: int) -> bool:
        return largest_sum(Ring(bits=32, fraction=fraction, bound=bound, tail=tail), participants) <= capacity(32)

    largest = next(filter(fits, range(24, 3, -1)), None)
    if largest is None or bound * 2.0**largest < 1:  # no room, or one in which every value would become nothing
        with pytest.raises(HanseError):
            make_plan(section(bound=bound, bits=32), participants=participants, weighting="uniform", tail=tail)
    else:
        made = make_plan(section(bound=bound, bits=32), participants=participants, weighting="uniform", tail=tail)
        assert made.default.fraction == largest


def test_numbers_that_do_not_fit_are_named_before_anything_is_sent() -> None:
    with pytest.raises(HanseError, match=r"sums of 2000 participants within \+-1e\+06 do not fit .* 32 bits") as caught:
        make_plan(section(bound=1e6, bits=32), participants=2000, weighting="uniform")
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert "bits: 64" in caught.value.hint


def test_four_bits_of_fraction_are_taken_and_what_leaves_fewer_is_refused_with_what_helps() -> None:
    widest = (capacity(32) // 3 - 1) // 16  # so that the sum of three just fits with four
    narrow = make_plan(section(bound=widest, bits=32), participants=3, weighting="uniform").default
    assert narrow.fraction == 4
    for bits, bound, tail, helps in (
        (32, widest + 1, 0.0, "bits: 64, or a smaller bound"),
        (64, 8.0, 2.0**60, "a smaller bound is needed"),
    ):
        noise = rf" with noise up to {re.escape(f'{tail:g}')} do not fit" if tail else r"\+-[\de+.]+ do not fit"
        with pytest.raises(HanseError, match=f"{noise}.* {bits} bits with 4 fraction bits") as caught:
            make_plan(section(bound=bound, bits=bits), participants=3, weighting="uniform", tail=tail)
        assert caught.value.hint == helps


@pytest.mark.parametrize(("bits", "bound", "fraction"), [(8, 0.01, 11), (8, 10.0, 1), (16, 1.0, 12), (16, 8.0, 9)])
def test_narrow_rings_have_as_many_steps_as_the_sum_of_all_leaves(bits: int, bound: float, fraction: int) -> None:
    ring = make_plan(section(bound=bound, bits=bits), participants=5, weighting="uniform").default
    assert (ring.bits, ring.fraction) == (bits, fraction)
    assert LEAST_LEVELS <= bound * 2**fraction <= capacity(bits) / 5


@pytest.mark.parametrize(("bits", "most"), [(8, 24), (16, 24), (32, 24), (48, 40), (64, 40)])
def test_a_ring_is_no_finer_than_numbers_of_that_size_are(bits: int, most: int) -> None:
    ring = make_plan(section(bound=2.0 ** (3 - most), bits=bits), participants=3, weighting="uniform").default
    assert (ring.bits, ring.fraction) == (bits, most)


def test_a_narrow_ring_that_the_sum_just_fills_is_taken_down_to_no_bit_of_fraction() -> None:
    for bits, bound, participants, fraction in ((16, 585.0, 7, 3), (8, 63.0, 1, 1), (8, 126.0, 1, 0), (8, 1.0, 25, 2)):
        ring = make_plan(section(bound=bound, bits=bits), participants=participants, weighting="uniform").default
        assert (ring.bits, ring.fraction) == (bits, fraction)
    for bound, participants in ((127.0, 1), (1.5, 31)):  # with no bit of fraction too large, and with one too few steps
        with pytest.raises(HanseError, match="do not fit a ring of 8 bits with 4 steps up to it"):
            make_plan(section(bound=bound, bits=8), participants=participants, weighting="uniform")


def test_signs_are_summed_beside_all_parameters_and_refused_beside_a_part_of_them() -> None:
    chosen = Chosen(fraction=0.5, seed="0" * 64)
    plan = make_plan(section(), participants=3, weighting="uniform").model_copy(update={"chosen": chosen})
    check_plan(plan)
    with pytest.raises(HanseError, match=r"ring\.signs: 8 is not none, where a part of the parameters is summed"):
        check_plan(plan.model_copy(update={"signs": 8}))


def test_a_ring_of_signs_is_refused_only_where_the_sum_of_all_does_not_fit_it() -> None:
    def signed(participants: int) -> RingPlan:
        plan = make_plan(section(), participants=participants, weighting="uniform")
        return plan.model_copy(update={"signs": 8})

    assert [sign_bits(capacity(bits) + more) for bits in (8, 16) for more in (0, 1)] == [8, 16, 16, 32]
    check_plan(signed(capacity(8)))
    with pytest.raises(HanseError, match=r"ring\.signs"):
        check_plan(signed(capacity(8) + 1))


def test_a_ring_with_fewer_than_four_steps_is_refused_with_the_next_wider_one() -> None:
    for bits, participants, wider in ((8, 26, 16), (16, 7000, 32)):
        with pytest.raises(HanseError, match=f"{bits} bits with 4 steps up to it") as caught:
            make_plan(section(bound=1.0, bits=bits), participants=participants, weighting="uniform")
        assert caught.value.hint == f"bits: {wider}"


def test_a_bound_of_less_than_one_step_is_refused_for_every_value_would_be_rounded_to_nothing() -> None:
    with pytest.raises(HanseError, match=r"bound: 1e-12 is not 5.96046e-08 or more, which is one step of the ring"):
        make_plan(section(bound=1e-12, bits=32), participants=3, weighting="uniform")


def test_a_plan_whose_sum_would_overflow_32_bits_is_refused() -> None:
    """5,000 participants at 8 with 16 fraction bits decode to -5.11 in Z_2^32."""
    ring = Ring(bits=32, fraction=16, bound=8.0)
    with pytest.raises(HanseError, match="overflow a ring of 32 bits"):
        check_plan(RingPlan(participants=5000, default=ring))
    assert make_plan(section(bits=32), participants=5000, weighting="uniform").default.fraction == 15


def test_a_sum_that_just_fills_the_ring_is_accepted_and_one_step_more_refused() -> None:
    def plan(tail: float) -> RingPlan:
        return RingPlan(participants=2, default=Ring(bits=32, fraction=1, bound=2.0**29 - 1, tail=tail))

    full = plan(0.5)
    assert largest_sum(full.default, 2) == capacity(32)
    check_plan(full)
    with pytest.raises(HanseError, match="overflow a ring of 32 bits"):
        check_plan(plan(1.0))


@pytest.mark.parametrize("bits", [32, 48])
def test_where_a_wide_ring_is_too_narrow_the_widest_or_a_smaller_bound_is_named(bits: int) -> None:
    with pytest.raises(HanseError, match=f"do not fit a ring of {bits} bits") as caught:
        make_plan(section(bound=2.0**30, bits=bits), participants=20_000, weighting="uniform")
    assert caught.value.hint == "bits: 64, or a smaller bound"


def test_a_ring_leaves_room_for_the_noise() -> None:
    plain = make_plan(section(bits=32), participants=100, weighting="uniform").default
    tail = Aggregate(50.0, 100).tail(1e-9)
    noisy = make_plan(section(bits=32), participants=100, weighting="uniform", tail=tail).default
    assert noisy.fraction < plain.fraction
    assert largest_sum(noisy, 100, tail=tail) <= capacity(32) < largest_sum(plain, 100, tail=tail)


def test_a_ring_has_more_than_32_bits_only_where_the_largest_weight_is_not_given() -> None:
    def width(weighting: str, participants: int = 10, **values: object) -> tuple[int, int]:
        plan = make_plan(section(**values), participants=participants, weighting=weighting)
        return plan.default.bits, plan.largest_weight

    assert width("uniform") == (32, 1)
    assert width("examples") == (48, LARGEST_WEIGHT)
    assert width("examples", participants=16) == (64, LARGEST_WEIGHT)
    assert width("examples", largest_weight=500) == (32, 500)
    assert width("examples", bits=32) == (32, LARGEST_WEIGHT)
    assert width("uniform", bits=64) == (64, 1)


@settings(max_examples=100, deadline=None)
@given(participants=st.integers(3, 200), bound=st.floats(2.0**-20, 2.0**16))
def test_48_bits_are_chosen_exactly_where_64_have_the_same_sums(participants: int, bound: float) -> None:
    def ring(**values: object) -> Ring:
        return make_plan(section(bound=bound, **values), participants=participants, weighting="examples").default

    wide, packed = ring(bits=64), ring(bits=48)
    chosen = packed if packed.fraction == wide.fraction else wide
    assert ring() == chosen
    first = make_plan(section(bound=bound), participants=participants, weighting="examples", packed=False)
    assert first.default == wide
    values = np.array([bound, -bound, bound / 3, -(2.0**-40), 0.0])
    (six, _), (eight, _) = encode(values, packed), encode(values, ring(bits=64))
    if chosen is packed:
        assert (
            decode(six * np.uint64(participants), packed).tobytes()
            == decode(eight * np.uint64(participants), wide).tobytes()
        )


@settings(max_examples=100, deadline=None)
@given(
    participants=st.integers(3, 200),
    bound=st.floats(2.0**-20, 2.0**16),
    weights=st.lists(st.integers(1, 200_000), min_size=3, max_size=3),
)
def test_once_all_weights_are_known_the_ring_is_as_narrow_as_their_sum_lets_it(
    participants: int, bound: float, weights: list[int]
) -> None:
    total = sum(weights)
    plan = make_plan(section(bound=bound), participants=participants, weighting="examples", total=total)
    wide = make_plan(section(bound=bound, bits=64), participants=participants, weighting="examples")
    first = make_plan(section(bound=bound), participants=participants, weighting="examples")
    if plan.total is None:
        assert plan == first
        return
    assert plan.default.bits < first.default.bits
    assert plan.total >= min(2 * total, participants * LARGEST_WEIGHT)  # there is room for data that grow
    assert (plan.largest_weight, plan.default.bound) == (wide.largest_weight, bound)  # what answers are cut to
    check_plan(plan)
    updates = [np.array([bound, -bound, bound / (at + 3), -(2.0**-30)]) for at in range(len(weights))]
    means = {}
    for made in (plan, wide):
        ring, total_of = made.default, np.zeros(4, np.uint64)
        for update, weight in zip(updates, weights, strict=True):
            total_of += encode(update, ring, factor=weight / LARGEST_WEIGHT, summed=made.total is not None)[0]
        means[ring.bits] = decode(total_of, ring) * LARGEST_WEIGHT / total
    narrow, others = means[plan.default.bits], means[64]
    finer = plan.default.fraction - wide.default.fraction
    if finer == 0:
        assert narrow.tobytes() == others.tobytes()
    elif finer < 0:
        assert np.abs(narrow - others).max() <= 1.01 * 2.0**-31
    else:  # the sum of known weights leaves room for a finer grid than 64 bits have
        pooled = sum(weight * update for update, weight in zip(updates, weights, strict=True)) / total
        half_steps = len(weights) * LARGEST_WEIGHT / total * 2.0 ** -(plan.default.fraction + 1)
        assert np.abs(narrow - pooled).max() <= 1.01 * half_steps + 1e-14 * bound


@pytest.mark.parametrize(
    ("participants", "total", "bits", "fraction"),
    [
        (10, 640, 40, 40), (10, 31_000, 40, 40), (10, 1_000_000, 40, 34), (100, 20_000, 40, 40),
        (100, 1_000_000, 48, 40), (10, 10_000_000, 40, 31), (100, 90_000_000, 48, 36),
        (20, 20_000_000, 40, 30), (20, 19_999_999, 48, 38),  # a mean is off by the finest error at most, or by more
    ],
)  # fmt: skip
def test_few_examples_have_40_bits_and_more_have_48(participants: int, total: int, bits: int, fraction: int) -> None:
    ring = make_plan(section(), participants=participants, weighting="examples", total=total).default
    assert (ring.bits, ring.fraction) == (bits, fraction)


def test_a_packed_ring_that_the_sum_of_known_weights_just_fills_is_taken() -> None:
    bound = (capacity(40) - 3) / 2.0**40
    for more, fraction in ((0, 40), (2.0**-20, 39)):
        ring = packed_ring(bound + more, 3, 2, 1, below=48)
        assert ring is not None
        assert (ring.bits, ring.fraction) == (40, fraction)


def test_48_bits_are_taken_for_weights_that_nobody_knows_where_the_sum_just_fills_them() -> None:
    bound = (capacity(48) - 1) / 2.0**40
    assert [ring_bits(section(bound=bound + more), "examples", 1) for more in (0, 2.0**-30)] == [48, 64]


def test_known_weights_narrow_no_ring_with_noise() -> None:
    """They bound what is summed, and not the noise."""
    plan = make_plan(section(), participants=10, weighting="examples", total=640, tail=1.0)
    assert (plan.default.bits, plan.total) == (48, None)


def test_known_weights_make_no_room_in_the_rings_of_buffers() -> None:
    """These are averaged, or counted, without the weights."""
    plan = make_plan(section(), participants=10, weighting="examples", total=640)
    full = Ring(bits=40, fraction=40, bound=2.0**-5)
    with pytest.raises(HanseError, match=r"ring\.b: 10 participants .* overflow a ring of 40 bits"):
        check_plan(plan.model_copy(update={"entries": {**plan.entries, "b": full.model_copy(update={"bound": 0.05})}}))
    check_plan(plan.model_copy(update={"entries": {**plan.entries, "b": full}}))


def test_known_weights_narrow_no_ring_that_a_job_has_chosen_or_that_sites_of_the_first_release_have() -> None:
    for values, packed, bits in (({"bits": 64}, True, 64), ({"largest_weight": 500}, True, 32), ({}, False, 64)):
        plan = make_plan(section(**values), participants=10, weighting="examples", total=640, packed=packed)
        assert (plan.default.bits, plan.total) == (bits, None)
    uniform = make_plan(section(), participants=10, weighting="uniform", total=10)
    assert (uniform.default.bits, uniform.total) == (32, None)


def test_a_total_that_a_ring_does_not_hold_is_refused() -> None:
    plan = make_plan(section(), participants=10, weighting="examples", total=640)
    assert plan.total is not None
    with pytest.raises(HanseError, match="overflow a ring of 40 bits"):
        check_plan(plan.model_copy(update={"total": plan.total + 1}))
    with pytest.raises(HanseError, match=r"ring\.fraction"):
        encode(np.array([1.0]), Ring(bits=40, fraction=60, bound=8.0), summed=True)


def test_buffers_and_counters_have_wide_rings_whatever_the_parameters_have() -> None:
    plan = make_plan(section(bits=32), participants=10, weighting="uniform")
    for rule, dtype, fraction in [
        (Rule.AVERAGE, "F32", 40),
        (Rule.POOL_VARIANCE, "F32", 40),
        (Rule.KEEP_NEWEST, "I64", 0),
        (Rule.KEEP_NEWEST, "F32", 40),
    ]:
        ring = ring_of(plan, Entry("b", dtype, (1,), rule, "m"))
        assert (ring.bits, ring.fraction) == (64, fraction)
    assert plan.entries[AVERAGE] == Ring(bits=64, fraction=40, bound=section().buffer_bound)
    assert ring_of(plan, Entry("w", "F32", (1,))) == plan.default
    assert ring_of(plan.model_copy(update={"entries": {"w": Ring(bits=64, fraction=9, bound=1)}}),
                   Entry("w", "F32", (1,))).fraction == 9  # fmt: skip
    assert weighted(Entry("w", "F32", (1,)))
    assert not weighted(Entry("b", "I64", (1,), Rule.KEEP_NEWEST))


def test_variances_have_a_ring_of_their_own_where_a_plan_gives_one() -> None:
    plan = make_plan(section(), participants=10, weighting="uniform")
    own = Ring(bits=64, fraction=20, bound=100.0)
    other = plan.model_copy(update={"entries": {**plan.entries, POOL_VARIANCE: own}})
    assert ring_of(other, Entry("b", "F32", (1,), Rule.POOL_VARIANCE, "m")) == own


def test_a_counter_may_be_so_large_that_the_sum_of_all_is_half_of_what_64_bits_hold() -> None:
    for participants in (1, 3, 10, 1000):
        ring = whole_numbers(participants)
        assert (ring.bits, ring.fraction, ring.tail) == (64, 0, 0)
        assert capacity(64) < 4 * participants * ring.bound <= 2 * capacity(64) + 2


def test_how_values_are_rounded_and_what_happens_beyond_the_bound_is_as_the_job_says() -> None:
    for rounding in ("nearest", "stochastic"):
        for beyond in ("clip", "refuse"):
            asked = section(rounding=rounding, out_of_range=beyond)
            plan = make_plan(asked, participants=3, weighting="uniform")
            assert (plan.stochastic, plan.refuse_out_of_range) == (rounding == "stochastic", beyond == "refuse")


def test_entries_with_a_known_rule_get_a_ring_by_that_rule() -> None:
    plan = make_plan(
        section(), participants=10, weighting="uniform", rules={"n": Rule.KEEP_NEWEST, "w": Rule.PARAMETER}
    )
    assert plan.entries["n"].fraction == 0
    assert "w" not in plan.entries


def test_a_plan_without_a_ring_for_a_buffer_is_refused() -> None:
    plan = RingPlan(participants=3, default=Ring(bits=32, fraction=8, bound=1))
    with pytest.raises(HanseError, match="a ring for entry b"):
        ring_of(plan, Entry("b", "F32", (1,), Rule.AVERAGE))


@given(participants=st.integers(1, 1_000_000), largest_weight=st.integers(1, 2**40))
def test_metrics_and_weights_never_overflow_their_tally(participants: int, largest_weight: int) -> None:
    plan = RingPlan(
        participants=participants, largest_weight=largest_weight, default=Ring(bits=64, fraction=4, bound=1)
    )
    ring = metric_ring(plan)
    largest = participants * (largest_weight * Fraction(ring.bound) * 2**ring.fraction + 1)
    assert largest <= capacity(64)
    assert participants * largest_weight <= capacity(64)


@pytest.mark.parametrize(
    ("participants", "largest_weight", "fraction", "bound"),
    [(10, 1, 30, 2.0**20), (10, 10**6, 17, 2.0**20), (2000, 2**40 - 1, 0, 2.0**10), (10**6, 2**40, 0, 1.0)],
)
def test_metrics_have_all_the_fraction_that_there_is_room_for_beside_20_bits(
    participants: int, largest_weight: int, fraction: int, bound: float
) -> None:
    default = Ring(bits=64, fraction=4, bound=1)
    ring = metric_ring(RingPlan(participants=participants, largest_weight=largest_weight, default=default))
    assert (ring.bits, ring.fraction, ring.bound) == (64, fraction, bound)


def test_weights_that_could_overflow_are_refused() -> None:
    ring = Ring(bits=64, fraction=4, bound=1)

    def check(participants: int, largest_weight: int) -> None:
        check_plan(
            RingPlan.model_construct(
                participants=participants, largest_weight=largest_weight, default=ring, entries={}, total=None,
            )
        )  # fmt: skip

    check(7, capacity(64) // 7)  # which fills it to the last
    for participants, largest_weight in ((2**30, 2**40), (2**23, 2**40)):
        with pytest.raises(HanseError, match="largest_weight"):
            check(participants, largest_weight)


def test_a_largest_weight_of_one_is_no_weighting_by_examples() -> None:
    with pytest.raises(HanseError, match="at least 2 where examples are weights"):
        make_plan(section(largest_weight=1), participants=3, weighting="examples")
    assert make_plan(section(largest_weight=1), participants=3, weighting="uniform").largest_weight == 1


def test_the_errors_that_the_documentation_states_are_the_bounds() -> None:
    for bits, participants, weight, stated in [
        (32, 10, 1.0, 3e-8), (32, 100, 1.0, 2.4e-7), (32, 2000, 1.0, 3.8e-6), (64, 2000, 1.0, 5e-13),
        (32, 10, 0.1, 3e-7),
    ]:  # fmt: skip
        plan = make_plan(section(bits=bits), participants=participants, weighting="uniform")
        mean = error_bound(plan, plan.default, participants) / (participants * weight)
        assert mean == pytest.approx(stated, rel=0.1)


@pytest.mark.parametrize("bound", [1e-300, 2.0**-21])
def test_a_ring_that_rounds_every_value_to_nothing_is_refused(bound: float) -> None:
    plan = make_plan(section(), participants=3, weighting="uniform")
    ring = Ring(bits=32, fraction=20, bound=bound)
    with pytest.raises(HanseError, match=r"ring\.default\.bound: .* one step of the ring"):
        check_plan(plan.model_copy(update={"default": ring}))
    check_plan(plan.model_copy(update={"default": ring.model_copy(update={"bound": 2.0**-20})}))
