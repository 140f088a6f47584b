"""Privacy loss distributions that are computed for all points together: dp-accounting's own, to the bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

from hanse_privacy.accounting import losses

KINDS = [(1.1, 0.02, 1e-3), (0.6, 0.5, 1e-2), (20.0, 1.0, 1e-3), (0.4, 1e-4, 1e-2), (3.0, 0.3, 1e-4)]


def parts(one: Any) -> list[Any]:
    return [one._pmf_remove, one._pmf_add]


def numbers(part: Any) -> tuple[Any, ...]:
    dense = part.to_dense_pmf()
    return dense._discretization, dense._lower_loss, dense._infinity_mass, dense._probs.tobytes()


@pytest.mark.parametrize(("amount", "rate", "width"), KINDS)
def test_distributions_of_normal_noise_and_their_sums_have_dp_accountings_bits(
    amount: float, rate: float, width: float
) -> None:
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        amount, sampling_prob=rate, value_discretization_interval=width
    )
    ours = losses.of_normal(amount, rate, width)
    assert ours._symmetric is theirs._symmetric is (rate == 1)
    assert [numbers(each) for each in parts(ours)] == [numbers(each) for each in parts(theirs)]
    for count in (2, 11, 300):
        sums = losses.added(ours, count), theirs.self_compose(count)
        assert len({tuple(map(numbers, parts(one))) for one in sums}) == 1, count


@pytest.mark.parametrize("adjacency", [AdjacencyType.REMOVE, AdjacencyType.ADD])
@pytest.mark.parametrize("rate", [1e-6, 0.3, 0.999, 1.0])
def test_masses_at_the_edge_of_what_a_sample_can_tell_are_dp_accountings(rate: float, adjacency: Any) -> None:
    """There the loss without sampling is infinite; and at 0 rounding would leave something."""
    edge = math.log1p(-rate) if rate < 1 else -5.0
    near = edge * (1 + np.array([-1e-8, -1e-10, 0.0, 1e-10, 1e-8]))
    at = np.concatenate((near, -near, [-40.0, -1.0, -1e-12, 0.0, 1e-12, 1.0, 40.0]))
    given = {"standard_deviation": 0.7, "sampling_prob": rate, "adjacency_type": adjacency}
    ours, theirs = (of(**given).get_delta_for_epsilon(at) for of in (losses._normal_loss(), GaussianPrivacyLoss))
    np.testing.assert_array_equal(ours, theirs)
