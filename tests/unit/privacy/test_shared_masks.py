"""Masks that several compensators share: any k of n sum them, fewer lack a keystream of each."""

import itertools
import secrets

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_privacy.compensators.shares import Sharing, draw_seeds
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_privacy.pairwise.streams import Masks

ALL = [(needed, count) for count in range(2, 8) for needed in range(2, count + 1) if 2 * needed > count]


@pytest.mark.parametrize(("needed", "count"), ALL)
def test_any_k_have_every_seed_and_any_fewer_lack_one(needed, count):
    sharing = Sharing(needed, count)
    everything = set(range(len(sharing.holders)))
    for there in itertools.combinations(range(count), needed):
        assert {seed for place in there for seed in sharing.held_by(place)} == everything
    for there in itertools.combinations(range(count), needed - 1):
        assert {seed for place in there for seed in sharing.held_by(place)} < everything


@pytest.mark.parametrize(("needed", "count"), ALL)
def test_whoever_is_there_each_seed_is_summed_once_by_one_who_holds_it(needed, count):
    sharing = Sharing(needed, count)
    for size in range(needed, count + 1):
        for there in itertools.combinations(range(count), size):
            dealt = sharing.dealt(there)
            assert sorted(itertools.chain(*dealt.values())) == list(range(len(sharing.holders)))
            assert all(set(seeds) <= set(sharing.held_by(place)) for place, seeds in dealt.items())


def test_the_parts_that_k_compensators_sum_take_the_masks_of_all_sites_off():
    sharing, values = Sharing(3, 4), np.arange(5000, dtype="<u4")
    sites = [draw_seeds(sharing) for _ in range(5)]
    total = np.zeros_like(values)
    for seeds in sites:
        masked = values.copy()
        Masks(add=seeds, subtract=()).apply(masked, 0)
        assert not np.array_equal(masked, values)
        total += masked
    for held in sharing.dealt((0, 2, 3)).values():
        for seeds in sites:
            for index in held:
                MaskStream(seeds[index], Purpose.UPDATE).subtract_from(total, 0)
    assert np.array_equal(total, 5 * values)


def test_what_fewer_than_k_hold_leaves_an_update_uniform():
    sharing = Sharing(2, 3)
    zeros = np.zeros(1 << 16, dtype="<u1")
    seeds = draw_seeds(sharing)
    Masks(add=seeds, subtract=()).apply(zeros, 0)
    for place in range(3):
        left = zeros.copy()
        for index in sharing.held_by(place):
            MaskStream(seeds[index], Purpose.UPDATE).subtract_from(left, 0)
        counts = np.bincount(left, minlength=256)
        expected = left.size / 256
        # Chi-squared of 255 degrees: 400 is passed by a uniform stream less than once in 10^8.
        assert ((counts - expected) ** 2 / expected).sum() < 400


@pytest.mark.parametrize(
    ("needed", "count", "word"),
    [(4, 3, "needed"), (1, 2, "needed"), (2, 4, "more than half"), (3, 6, "more than half"), (2, 1, "compensators"),
     (5, 8, "compensators")],
)  # fmt: skip
def test_numbers_that_hide_nothing_or_cannot_agree_are_refused(needed, count, word):
    with pytest.raises(HanseError, match=word) as refused:
        Sharing(needed, count)
    assert refused.value.code is ErrorCode.INVALID_INPUT


def test_fewer_than_k_deal_nothing():
    with pytest.raises(HanseError, match="at least 3"):
        Sharing(3, 5).dealt((0, 1))


def test_seeds_are_new_each_time():
    drawn = {seed for _ in range(10) for seed in draw_seeds(Sharing(2, 3))}
    assert len(drawn) == 30
    assert secrets.token_bytes(32) not in drawn
