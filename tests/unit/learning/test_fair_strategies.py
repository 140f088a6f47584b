"""FedNova, q-FedAvg and FedDyn by hand, and where they equal federated averaging; how Flower's adaptive ones differ."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hanse_learning
from hanse_fabric.errors import HanseError


def _updates(count=4, columns=50, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(columns), list(rng.standard_normal((count, columns)))


def _reduce(section, model, updates, weights=None, state=None, **more):
    return hanse_learning.reduce(section, model, updates, weights, state, **more)


def test_fednova_divides_by_the_work_and_multiplies_by_the_mean_work():
    model, updates = _updates(3)
    weights, work = [1.0, 2.0, 5.0], [4.0, 1.0, 10.0]
    made, _ = _reduce({"reduction": {"name": "fednova"}}, model, updates, weights, info={"normalizer": work})
    shares = np.array(weights) / 8
    tau = float(shares @ work)
    expected = model + tau * sum(p * update / a for p, update, a in zip(shares, updates, work, strict=True))
    np.testing.assert_allclose(made, expected, 1e-13)


@settings(max_examples=25, deadline=None)
@given(work=st.floats(0.1, 1e4), seed=st.integers(0, 100))
def test_fednova_with_equal_work_is_federated_averaging(work, seed):
    model, updates = _updates(seed=seed)
    weights = [3.0, 1.0, 2.0, 2.0]
    plain, _ = _reduce({}, model, updates, weights)
    made, _ = _reduce({"reduction": {"name": "fednova"}}, model, updates, weights, info={"normalizer": [work] * 4})
    np.testing.assert_allclose(made, plain, 1e-12, 1e-12)
    other, _ = _reduce(
        {"reduction": {"name": "fednova"}}, model, updates, weights, info={"normalizer": [work, work, work, 2 * work]}
    )
    assert np.abs(other - plain).max() > 1e-3  # the control


def test_fednova_finds_the_optimum_that_unequal_work_hides_from_averaging():
    # Two sites with f_k = (x - c_k)^2 / 2, of 1 and 20 exact steps: averaging is drawn to the one with more steps.
    centers, steps, rate = [0.0, 1.0], [1, 20], 0.05

    def train(section, info):
        x, state = np.array([0.3]), None
        for _ in range(400):
            updates = [(1 - (1 - rate) ** s) * (c - x) for c, s in zip(centers, steps, strict=True)]
            x, state = _reduce(section, x, updates, state=state, info=info)
        return float(x[0])

    work = [(1 - (1 - rate) ** s) / rate for s in steps]  # |a|_1 of s steps on these quadratics
    assert train({"reduction": {"name": "fednova"}}, {"normalizer": work}) == pytest.approx(0.5, abs=1e-6)
    assert train({}, {}) > 0.85


def test_qfedavg_is_the_papers_second_algorithm():
    model, updates = _updates(3)
    losses, q, rate = [0.5, 2.0, 1.0], 1.5, 0.1
    made, _ = _reduce({"reduction": {"name": "qfedavg", "q": q, "lr": rate}}, model, updates,
                      info={"first_loss": losses})  # fmt: skip
    lipschitz = 1 / rate
    steps = [-lipschitz * update for update in updates]  # L (w^t - w_k)
    deltas = [loss**q * step for loss, step in zip(losses, steps, strict=True)]
    h = [q * loss ** (q - 1) * float(step @ step) + lipschitz * loss**q
         for loss, step in zip(losses, steps, strict=True)]  # fmt: skip
    np.testing.assert_allclose(made, model - sum(deltas) / sum(h), 1e-8)


@pytest.mark.parametrize("reduction", [{"name": "qfedavg", "q": 0, "lr": 0.1}])
def test_qfedavg_with_q_0_is_its_base_to_the_bit(reduction):
    model, updates = _updates()
    plain, _ = _reduce({}, model, updates, [1, 2, 3, 4])
    made, _ = _reduce({"reduction": reduction}, model, updates, [1, 2, 3, 4])
    assert made.tobytes() == plain.tobytes()
    info = {"first_loss": [1.0, 1.0, 1.0, 2.0]}
    other, _ = _reduce({"reduction": {**reduction, "q": 1}}, model, updates, [1, 2, 3, 4], info=info)
    assert np.abs(other - plain).max() > 1e-3  # the control


def test_qfedavg_bears_losses_of_0_and_of_enormous_size():
    model, updates = _updates(2)
    for losses in ([0.0, 1.0], [1e300, 1e299], [0.0, 0.0]):
        section = {"reduction": {"name": "qfedavg", "q": 2.0, "lr": 0.1}}
        made, _ = _reduce(section, model, updates, info={"first_loss": losses})
        assert np.isfinite(made).all()


def test_feddyn_follows_the_papers_server_for_three_rounds():
    alpha, participants, total = 0.1, 2, 5
    section = {"optimizer": {"name": "feddyn", "alpha": alpha, "share": participants / total}}
    rng = np.random.default_rng(5)
    theta, h = rng.standard_normal(20), np.zeros(20)
    model, state = theta.copy(), None
    for _ in range(3):
        trained = [theta + rng.standard_normal(20) for _ in range(participants)]
        model, state = _reduce(section, model, [local - theta for local in trained], state=state)
        h = h - alpha / total * sum(local - theta for local in trained)
        theta = np.mean(trained, axis=0) - h / alpha
        np.testing.assert_allclose(model, theta, 1e-12, 1e-12)
        # The next round's sites begin from what the server has made.
        theta = model


def _flower(kind, changes, lr, beta1, beta2, tau):
    """Adaptive strategies as Flower 1.41 computes them (flwr.serverapp.strategy), read in its source."""
    x, m, v = 1.0, 0.0, 0.0
    b1, b2 = 0.0 if kind == "adagrad" else beta1, beta2
    for number, d in enumerate(changes, start=1):
        m = b1 * m + (1 - b1) * d
        v = {
            "adagrad": v + d * d,
            "adam": b2 * v + (1 - b2) * d * d,
            "yogi": v - (1 - b2) * d * d * math.copysign(1, v - d * d),
        }[kind]
        norm = math.sqrt(1 - b2 ** (number + 1.0)) / (1 - b1 ** (number + 1.0)) if kind == "adam" else 1.0
        x += lr * norm * m / (math.sqrt(v) + tau)
    return x


@pytest.mark.parametrize("kind", ["adagrad", "adam", "yogi"])
def test_flower_compat_is_what_flower_computes(kind):
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "tau": 0.01}
    changes = [0.5, -0.25, 0.125]
    results = []
    for compat in (True, False):
        model, state = np.array([1.0]), None
        for change in changes:
            section = {"optimizer": {"name": kind, **numbers, "flower_compat": compat}}
            model, state = _reduce(section, model, [np.array([change])], state=state)
        results.append(float(model[0]))
    assert results[0] == pytest.approx(_flower(kind, changes, **numbers), rel=1e-12)
    assert results[0] != pytest.approx(results[1], rel=1e-6)


@pytest.mark.parametrize(
    ("section", "info"),
    [
        ({"name": "fednova"}, {}), ({"name": "fednova"}, {"normalizer": [1, 1, 0, 1]}),
        ({"name": "fednova"}, {"normalizer": [1, 1, float("nan"), 1]}),
        ({"name": "qfedavg", "q": 1, "lr": 0.1}, {"normalizer": [1, 1, 1, 1]}),
        ({"name": "qfedavg", "q": 1, "lr": 0.1}, {"first_loss": [1, -1, 1, 1]}),
    ],
)  # fmt: skip
def test_numbers_that_are_missing_or_senseless_are_refused(section, info):
    model, updates = _updates()
    with pytest.raises(HanseError, match=r"normalizer|first_loss"):
        _reduce({"reduction": section}, model, updates, info=info)
