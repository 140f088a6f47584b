"""Tallies: only sums of weights and metrics are seen, and they are right or refused."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.masking import Ring, RingPlan
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.tensors.words import pack_words, unpack_words
from hanse_privacy.masks.total import tally_mask_total
from hanse_privacy.ring.plan import metric_ring
from hanse_privacy.ring.tally import encode_tally, read_tally, sum_tallies, tally_count

DEFAULT = Ring(bits=32, fraction=8, bound=8)


def plan_of(participants: int = 10, largest_weight: int = 1_000_000, **values: object) -> RingPlan:
    body = {"participants": participants, "largest_weight": largest_weight, "default": DEFAULT}
    return RingPlan.model_validate(body | {"metrics": ("loss", "accuracy")} | values)


@settings(max_examples=50, deadline=None)
@given(
    sites=st.lists(
        st.tuples(st.integers(1, 1_000_000), st.floats(-100, 100), st.one_of(st.none(), st.floats(0, 1))),
        min_size=3,
        max_size=10,
    )
)
def test_the_masked_tallies_say_the_weighted_means(sites: list[tuple[int, float, float | None]]) -> None:
    plan = plan_of()
    seeds = [os.urandom(32) for _ in sites]
    given_metrics = [
        {"loss": loss, "private": 7.0} | ({} if accuracy is None else {"accuracy": accuracy})
        for _, loss, accuracy in sites
    ]
    weights = [weight for weight, _, _ in sites]
    tallies = [
        encode_tally(weight, metrics, plan, seed=seed)
        for weight, metrics, seed in zip(weights, given_metrics, seeds, strict=True)
    ]
    tally = sum_tallies(tallies, plan, [tally_mask_total(seeds, tally_count(plan))])
    plain = [encode_tally(weight, m, plan, seed=None) for weight, m in zip(weights, given_metrics, strict=True)]
    assert sum_tallies(plain, plan) == tally
    assert tally.weight == sum(weights)
    unit = 2.0 ** -metric_ring(plan).fraction
    for name in ("loss", "accuracy"):
        known = [(w, m[name]) for w, m in zip(weights, given_metrics, strict=True) if name in m]
        if len(known) < len(sites):  # a mean of some is not told
            assert name not in tally.metrics
            continue
        total = sum(w for w, _ in known)
        error = len(known) * unit / total + 1e-9
        assert tally.metrics[name] == pytest.approx(sum(w * v for w, v in known) / total, abs=error)


def test_a_masked_tally_shows_nothing_of_its_numbers() -> None:
    plan = plan_of()
    plain = read_tally(encode_tally(100, {"loss": 1.5}, plan, seed=None), plan)
    hidden = read_tally(encode_tally(100, {"loss": 1.5}, plan, seed=os.urandom(32)), plan)
    assert plain[0] == 100
    assert plain[2] == 100
    assert not np.any(plain == hidden)
    assert b"loss" not in encode_tally(100, {"loss": 1.5}, plan, seed=None)


def test_a_site_without_metrics_counts_with_its_weight_alone() -> None:
    plan = plan_of()
    tally = sum_tallies([encode_tally(5, {}, plan, seed=None)], plan)
    assert (tally.weight, tally.metrics) == (5.0, {})


def test_what_a_site_keeps_back_hides_what_others_give() -> None:
    plan, metrics = plan_of(largest_weight=1, counts=4), {"loss": 1.5, "accuracy": 0.5}
    counted = pack_words(np.array([1, 7, 3, 4], np.uint64))
    whole = encode_tally(1, metrics, plan, seed=None, counted=counted, withheld=bytes(32))
    assert whole == encode_tally(1, metrics, plan, seed=None, counted=counted)
    part = encode_tally(1, {"loss": 1.5}, plan, seed=None, withheld=bytes(32))
    assert part == encode_tally(1, {"loss": 1.5}, plan, seed=None, withheld=bytes(32))  # and so is the same sum again
    tally = sum_tallies([whole, part], plan)
    assert (tally.weight, tally.metrics) == (2.0, {"loss": 1.5})
    words = unpack_words(tally.counted or "", 4, field="counted")
    assert words[0] == 1
    assert (words[1:] > 2**32).all()
    other = read_tally(encode_tally(1, {}, plan, seed=None, withheld=b"\1" + bytes(31)), plan)
    assert not (other == read_tally(part, plan))[3:5].any()


@pytest.mark.parametrize("value", [float("nan"), -float("inf"), 2.0**21])
def test_a_metric_beyond_its_bound_is_kept_back_where_it_is_hidden(value: float) -> None:
    plan = plan_of()
    tallies = [encode_tally(3, {"loss": loss}, plan, seed=None, withheld=os.urandom(32)) for loss in (1.0, value)]
    assert sum_tallies(tallies, plan).metrics == {}


def test_weights_beyond_the_largest_are_summed_as_long_as_all_together_are_not() -> None:
    plan = plan_of(largest_weight=10)
    heavy = encode_tally(25, {"loss": 2.0, "accuracy": 0.5}, plan, seed=None, withheld=bytes(32))
    light = encode_tally(2, {"loss": 29.0, "accuracy": 0.5}, plan, seed=None, withheld=bytes(32))
    assert sum_tallies([heavy, light, light], plan).metrics["loss"] == pytest.approx((50 + 2 * 58) / 29)
    with pytest.raises(HanseError, match=r"secure_aggregation.largest_weight: 10"):
        sum_tallies([heavy, heavy, light], plan)


@pytest.mark.parametrize("refuse", [False, True])
def test_a_metric_beyond_its_bound_is_refused_and_never_clipped_in_silence(refuse: bool) -> None:
    """An mse of 250 was told as 64, where weights were large."""
    plan = plan_of(participants=2000, largest_weight=2**40, refuse_out_of_range=refuse)
    assert metric_ring(plan).bound < 1000
    with pytest.raises(HanseError, match=r"metrics.loss: 1000.0 is not a number within"):
        encode_tally(3, {"loss": 1000.0}, plan, seed=None)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_metric_that_is_not_finite_is_refused(bad: float) -> None:
    with pytest.raises(HanseError, match=r"metrics.loss"):
        encode_tally(3, {"loss": bad}, plan_of(), seed=None)


@pytest.mark.parametrize("weight", [-1, 1_000_001])
def test_a_tally_of_a_weight_above_the_announced_is_refused(weight: int) -> None:
    with pytest.raises(HanseError, match="weight"):
        encode_tally(weight, {}, plan_of(), seed=None)


def test_the_extremes_are_summed_right() -> None:
    plan = plan_of(participants=2000, largest_weight=2**40)
    bound = metric_ring(plan).bound
    for value in (bound, -bound):
        tally = sum_tallies([encode_tally(2**40, {"loss": value}, plan, seed=None)] * 2000, plan)
        assert tally.weight == 2000 * 2**40
        assert tally.metrics["loss"] == value


def test_a_sum_with_a_wrong_mask_is_found_out() -> None:
    plan = plan_of()
    seeds = [os.urandom(32) for _ in range(3)]
    tallies = [encode_tally(10, {"loss": 1.0}, plan, seed=seed) for seed in seeds]
    wrong = tally_mask_total([*seeds[:2], os.urandom(32)], tally_count(plan))
    with pytest.raises(HanseError, match="a mask or a share was wrong") as caught:
        sum_tallies(tallies, plan, [wrong])
    assert caught.value.code is ErrorCode.TAMPERED
    with pytest.raises(HanseError, match="a mask or a share was wrong"):
        sum_tallies(tallies[:2], plan, [tally_mask_total(seeds, tally_count(plan))])


def test_tallies_of_another_plan_are_refused() -> None:
    other = encode_tally(1, {}, plan_of(metrics=("loss",)), seed=None)
    with pytest.raises(HanseError, match=r"tally: entry tally has shape \[3\], \[5\] was expected"):
        sum_tallies([other], plan_of())
    with pytest.raises(HanseError, match="entry tally is missing"):
        sum_tallies([tally_mask_total([bytes(32)], 5)], plan_of())


def test_more_tallies_than_were_announced_are_refused() -> None:
    plan = plan_of(participants=3)
    tally = encode_tally(1, {}, plan, seed=None)
    with pytest.raises(HanseError, match="1 to 3"):
        sum_tallies([tally] * 4, plan)
    with pytest.raises(HanseError, match="1 to 3"):
        sum_tallies([], plan)


def test_a_tally_is_a_few_hundred_bytes() -> None:
    plan = plan_of(metrics=("loss", "accuracy", "mse", "r2"))
    data = encode_tally(1, {}, plan, seed=os.urandom(32))
    assert len(data) < 512
    assert decode_tensors(data)[0].entries[0].dtype == "U64"
