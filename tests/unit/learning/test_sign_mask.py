"""Gradient-masked averaging: by its definition, as a wrapper of anything, and in the right direction."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hanse_learning
from hanse_learning.server.sign_mask import SignMask, votes

BASES = {
    "mean": {},
    "median": {"reduction": {"name": "median"}},
    "krum": {"reduction": {"name": "krum", "byzantine": 1}},
    "bulyan": {"reduction": {"name": "bulyan", "byzantine": 1}},
    "adam": {"optimizer": {"name": "adam", "lr": 0.1}},
    "yogi": {"optimizer": {"name": "yogi", "lr": 0.1}},
    "adagrad": {"optimizer": {"name": "adagrad", "lr": 0.1}},
    "avgm": {"optimizer": {"name": "sgd", "lr": 0.7, "momentum": 0.9}},
    "feddyn": {"optimizer": {"name": "feddyn", "share": 0.5}},
}


def _rounds(section, rounds=3, columns=400, dtype=np.float32, flip=1):
    rng = np.random.default_rng(2)
    model, state = rng.standard_normal(columns).astype(dtype) * flip, None
    for _ in range(rounds):
        updates = list(rng.standard_normal((7, columns)).astype(dtype) * flip)
        model, state = hanse_learning.reduce(section, model, updates, [1, 2, 3, 4, 5, 6, 7], state)
    return model, state


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tau_0_is_the_base_to_the_bit(name, dtype):
    base, state = _rounds(BASES[name], dtype=dtype)
    masked, masked_state = _rounds({**BASES[name], "sign_mask": {"tau": 0}}, dtype=dtype)
    assert masked.tobytes() == base.tobytes()
    for array in state.arrays:
        assert state.arrays[array]["0"].tobytes() == masked_state.arrays[array]["0"].tobytes()
    other, _ = _rounds({**BASES[name], "sign_mask": {"tau": 0.5}}, dtype=dtype)
    assert name == "krum" or np.abs(other - base).max() > 1e-3  # the control; one update alone agrees with itself


@pytest.mark.parametrize("name", BASES)
def test_turning_all_signs_turns_the_result(name):
    section = {**BASES[name], "sign_mask": {"tau": 0.4}}
    there, _ = _rounds(section)
    back, _ = _rounds(section, flip=-1)
    np.testing.assert_array_equal(there, -back)


@settings(max_examples=30, deadline=None)
@given(count=st.integers(1, 12), tau=st.floats(0, 1), seed=st.integers(0, 1000))
def test_a_coordinate_moves_by_its_agreement(count, tau, seed):
    rng = np.random.default_rng(seed)
    updates = rng.integers(-1, 2, (count, 60)) * rng.random((count, 60))
    weights = rng.random(count) + 0.1
    made, _ = hanse_learning.reduce({"sign_mask": {"tau": tau}}, np.ones(60), list(updates), weights)
    agreement = np.abs(np.sign(updates).sum(axis=0)) / count
    mask = np.where(agreement >= tau, 1.0, agreement)
    np.testing.assert_allclose(made, 1 + mask * (weights / weights.sum() @ updates), 1e-12, 1e-13)


def test_the_optimizer_sees_the_change_without_the_mask():
    section = BASES["adam"]
    _, plain = _rounds(section, rounds=1)
    _, masked = _rounds({**section, "sign_mask": {"tau": 0.9}}, rounds=1)
    for name in ("momentum", "second_moment"):
        assert plain.arrays[name]["0"].tobytes() == masked.arrays[name]["0"].tobytes()


def test_seven_of_ten_that_agree_are_enough_for_tau_04_and_six_are_not():
    ones = np.array([[1.0] * 7 + [-1.0] * 3, [1.0] * 6 + [-1.0] * 4]).T
    assert SignMask(0.4).of(list(ones), np.dtype(np.float64)).tolist() == [1.0, 0.2]


def test_hundreds_of_votes_are_counted():
    updates = np.ones((500, 3), np.float32)
    updates[:100, 1], updates[:, 2] = -1, 0
    assert votes(list(updates)).tolist() == [500, 300, 0]


def test_sites_that_krum_rejects_have_no_vote_in_the_mask():
    rng = np.random.default_rng(0)
    updates = [*(1 + 0.1 * rng.random((6, 30))), np.full(30, -50.0)]
    section = {"reduction": {"name": "multi_krum", "byzantine": 1}}
    masked, _ = hanse_learning.reduce({**section, "sign_mask": {"tau": 1}}, np.zeros(30), updates)
    plain, _ = hanse_learning.reduce(section, np.zeros(30), updates)
    np.testing.assert_array_equal(masked, plain)


def test_buffers_and_integers_are_not_masked():
    model = {"w": np.zeros(2), "mean": np.zeros(2), "n": np.array([0, 0])}
    updates = [
        {"w": np.array([1.0, 1.0]), "mean": np.array([1.0, 1.0]), "n": np.array([3, -1])},
        {"w": np.array([1.0, -0.5]), "mean": np.array([1.0, -0.5]), "n": np.array([2, -2])},
    ]
    made, _ = hanse_learning.reduce({"sign_mask": {"tau": 1}}, model, updates, buffers={"mean": "average"})
    assert made["w"].tolist() == [1.0, 0.0]
    assert made["mean"].tolist() == [1.0, 0.25]
    assert made["n"].tolist() == [3, -1]


@pytest.mark.parametrize("name", [name for name in BASES if name != "feddyn"])
def test_masked_rounds_on_a_quadratic_go_downhill(name):
    # Mugunthan (2022, Algorithm 1) prints the step with the other sign, which climbs.
    rng = np.random.default_rng(1)
    centers = 1 + 0.5 * rng.standard_normal((7, 20))
    x, state = np.zeros(20), None
    losses = []
    for _ in range(4):
        losses.append(float(((x - centers) ** 2).sum()))
        x, state = hanse_learning.reduce(
            {**BASES[name], "sign_mask": {"tau": 0.4}}, x, [0.1 * (c - x) for c in centers], state=state
        )
    assert all(after < before for before, after in itertools.pairwise(losses))
