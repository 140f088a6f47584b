"""Server optimizers: two steps by hand for each, from the papers' formulas."""

import math

import numpy as np
import pytest

from hanse_learning.server.strategy import build_strategy

CHANGES = [0.5, -0.25]


def _trajectory(optimizer):
    """The model and the state after two rounds from x = 1 with the given changes (one participant)."""
    strategy = build_strategy({"optimizer": optimizer})
    model = np.array([1.0])
    state = {name: np.array([value]) for name, value in strategy.optimizer.state.items()}
    for round_, change in enumerate(CHANGES, start=1):
        strategy.apply(model, [np.array([change])], np.array([1.0]), state, round_)
    return model[0], {name: array[0] for name, array in state.items()}


def test_the_mean_change_is_added_where_there_is_no_server_optimizer():
    assert _trajectory({"name": "none"}) == (1.25, {})


def test_weight_decay_takes_a_share_of_the_model_off_the_change():
    made, kept = _trajectory({"name": "sgd", "lr": 1, "momentum": 0.5, "weight_decay": 0.1})
    first = 0.5 - 0.1
    second = 0.5 * first + (-0.25 - 0.1 * (1 + first))
    assert made == pytest.approx(1 + first + second)
    assert kept["momentum"] == pytest.approx(second)


def test_sgd_without_momentum_scales_the_change():
    assert _trajectory({"name": "sgd", "lr": 0.5, "momentum": 0}) == (1.125, {})


def test_sgd_with_momentum_is_fedavgm():
    # m: 0.5, then 0.9 * 0.5 - 0.25 = 0.2; x: 1 + 0.5 * 0.5 + 0.5 * 0.2
    model, state = _trajectory({"name": "sgd", "lr": 0.5, "momentum": 0.9})
    assert model == pytest.approx(1.35, rel=1e-15)
    assert state["momentum"] == pytest.approx(0.2, rel=1e-15)


@pytest.mark.parametrize("kind", ["adagrad", "adam", "yogi"])
def test_adaptive_optimizers_follow_reddi_et_al(kind):
    rate, b1, b2, tau = 0.1, 0.9, 0.99, 0.01
    second = {
        "adagrad": lambda v, d: v + d * d,
        "adam": lambda v, d: b2 * v + (1 - b2) * d * d,
        "yogi": lambda v, d: v - (1 - b2) * d * d * math.copysign(1, v - d * d),
    }[kind]
    x, m, v = 1.0, 0.0, tau * tau
    for d in CHANGES:
        m = b1 * m + (1 - b1) * d
        v = second(v, d)
        x += rate * m / (math.sqrt(v) + tau)
    model, state = _trajectory({"name": kind, "lr": rate, "beta1": b1, "beta2": b2, "tau": tau})
    assert model == pytest.approx(x, rel=1e-14)
    assert state == {"momentum": pytest.approx(m, rel=1e-14), "second_moment": pytest.approx(v, rel=1e-14)}


def test_adam_by_numbers_worked_out_on_paper():
    # tau = 1, beta1 = 0, beta2 = 0.5, rate = 1: v = 0.5 + 0.125 = 0.625; x = 1 + 0.5 / (sqrt(0.625) + 1) ...
    model, _ = _trajectory({"name": "adam", "lr": 1, "beta1": 0, "beta2": 0.5, "tau": 1})
    first = 1 + 0.5 / (math.sqrt(0.625) + 1)
    assert model == pytest.approx(first - 0.25 / (math.sqrt(0.5 * 0.625 + 0.5 * 0.0625) + 1), rel=1e-14)


def test_yogi_leaves_the_second_moment_where_it_equals_the_square():
    strategy = build_strategy({"optimizer": {"name": "yogi", "tau": 0.5}})
    state = {"momentum": np.zeros(1), "second_moment": np.array([0.25])}
    strategy.apply(np.zeros(1), [np.array([0.5])], np.array([1.0]), state, 1)
    assert state["second_moment"][0] == 0.25
