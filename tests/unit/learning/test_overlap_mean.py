"""The mean over updates that change a coordinate, the choice of a jump-start, and FedLTN's server momentum."""

from __future__ import annotations

import numpy as np
import pytest

import hanse_learning
from hanse_fabric.errors import HanseError

OVERLAP = {"reduction": {"name": "overlap_mean"}}
JUMP = {
    "reduction": {"name": "overlap_mean", "jump_start": True},
    "optimizer": {"name": "look_ahead", "tau": 0.25, "momentum": 0.5, "jump_start": True},
}


def test_each_coordinate_is_the_mean_of_those_who_change_it() -> None:
    updates = [np.array([1.0, 0.0, 2.0, 0.0, -0.0]), np.array([3.0, 5.0, 0.0, 0.0, 0.0])]
    made, _ = hanse_learning.reduce(OVERLAP, np.full(5, 10.0), updates, [1.0, 3.0])
    np.testing.assert_allclose(made, [12.5, 15.0, 12.0, 10.0, 10.0], 1e-15)
    plain, _ = hanse_learning.reduce({}, np.full(5, 10.0), updates, [1.0, 3.0])
    np.testing.assert_allclose(plain, [12.5, 13.75, 10.5, 10.0, 10.0], 1e-15)  # the control


def test_where_all_change_everything_it_is_the_weighted_mean() -> None:
    draw = np.random.default_rng(1)
    updates = [draw.standard_normal(1000) for _ in range(5)]
    made, _ = hanse_learning.reduce(OVERLAP, np.zeros(1000), updates, [1, 2, 3, 4, 5])
    plain, _ = hanse_learning.reduce({}, np.zeros(1000), updates, [1, 2, 3, 4, 5])
    np.testing.assert_allclose(made, plain, 1e-13, 1e-15)


def test_of_masked_updates_it_is_the_sum_of_tickets_over_the_sum_of_masks() -> None:
    draw = np.random.default_rng(2)
    model, masks = draw.standard_normal(500), draw.random((4, 500)) < 0.3
    tickets = [np.where(mask, model + draw.standard_normal(500), 0.0) for mask in masks]
    updates = [np.where(mask, ticket - model, 0.0) for mask, ticket in zip(masks, tickets, strict=True)]
    made, _ = hanse_learning.reduce(OVERLAP, model, updates)
    keepers = masks.sum(axis=0)
    assert (keepers == 0).any()
    np.testing.assert_allclose(made, np.where(keepers, sum(tickets) / np.maximum(keepers, 1), model), 1e-12, 1e-12)


def test_a_jump_starts_winner_is_the_model_and_later_rounds_are_of_all() -> None:
    updates = [np.array([1.0, 2.0]), np.array([5.0, 0.0]), np.array([7.0, 7.0])]
    model, state = hanse_learning.reduce(JUMP, np.zeros(2), updates, info={"jump_score": [1.2, 1.9, 1.9]})
    assert model.tolist() == [5.0, 0.0]  # of equal ones the first, and neither tau nor the others' share
    after, _ = hanse_learning.reduce(JUMP, model, updates, state=state, info={"jump_score": [0, 0, 0]})
    np.testing.assert_allclose(after, [5 + 0.25 * 13 / 3, 0.25 * 4.5], 1e-15)


def test_a_site_that_claims_a_jump_start_in_a_later_round_counts_as_any_other() -> None:
    updates, first = (
        [np.array([1.0, 2.0]), np.array([5.0, 0.0]), np.array([900.0, 900.0])],
        {"jump_score": [1.2, 1.9, 1.4]},
    )
    model, state = hanse_learning.reduce(JUMP, np.zeros(2), updates, info=first)
    after, plain = (
        hanse_learning.reduce(JUMP, model, updates, state=state, info={"jump_score": scores})[0]
        for scores in ([0, 0, 1e9], [0, 0, 0])
    )
    assert after.tolist() == plain.tolist()


@pytest.mark.parametrize("scores", [None, [1.0, -1.0], [1.0, np.nan], [np.inf, 1.0]], ids=str)
def test_a_jump_start_without_sound_scores_is_refused(scores: list[float] | None) -> None:
    info = {} if scores is None else {"jump_score": scores}
    with pytest.raises(HanseError, match="jump_score"):
        hanse_learning.reduce(JUMP, np.zeros(2), [np.ones(2), np.ones(2)], info=info)


def test_the_servers_momentum_is_fedltns_recursion_and_sgds_bits() -> None:
    tau, lam = 0.5, 0.8
    look = {"optimizer": {"name": "look_ahead", "tau": tau, "momentum": lam}}
    sgd = {"optimizer": {"name": "sgd", "lr": tau, "momentum": (1 - tau) * lam}}
    draw = np.random.default_rng(4)
    before = now = draw.standard_normal(50)
    found, state, other, kept = now, None, now, None
    for _ in range(6):
        mean = now + draw.standard_normal(50)  # of the sites' models
        found, state = hanse_learning.reduce(look, found, [mean - now], state=state)
        other, kept = hanse_learning.reduce(sgd, other, [mean - now], state=kept)
        before, now = now, tau * mean + (1 - tau) * (now + lam * (now - before))
        np.testing.assert_allclose(found, now, 1e-12, 1e-12)
        assert np.array_equal(found, other)


def test_a_server_that_takes_the_mean_alone_is_averaging() -> None:
    updates = [np.array([0.5, -1.0]), np.array([1.5, 3.0])]
    made, state = hanse_learning.reduce({"optimizer": {"name": "look_ahead", "tau": 1.0}}, np.zeros(2), updates)
    assert np.array_equal(made, hanse_learning.reduce({}, np.zeros(2), updates)[0])
    assert not state.arrays
