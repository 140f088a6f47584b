"""What a site says of its steps: accumulated with weights, their normalizer, the loss that it was given."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from hanse_learning.config import ALL_EXAMPLES, check_train
from hanse_learning.site.algorithms import train_round
from hanse_learning.site.algorithms.accumulation import step_weight
from hanse_learning.site.session import Session
from unit.learning_site.federation import LOCAL, PROBLEM, Federation, apart, clouds


def test_accumulated_steps_have_the_weights_of_the_paper() -> None:
    assert [step_weight(step, 5) for step in range(1, 6)] == [5, 2.5, 2, 1.5, 1]
    assert [step_weight(step, 3) for step in range(1, 4)] == [3, 1.5, 1]
    assert [step_weight(step, 2) for step in range(1, 3)] == [2, 1]
    assert step_weight(1, 1) == 1
    assert sum(step_weight(step, 100) for step in range(1, 101)) == pytest.approx(2624.5)


def test_weighted_accumulation_of_one_step_is_fedsmb_and_of_three_the_weighted_sum() -> None:
    parts = [clouds(24)]
    one = {"steps": 1, "batch_size": 8}
    plain = Federation(parts, one).run(2)
    assert apart(Federation(parts, one | {"algorithm": "weighted_accumulation"}).run(2), plain) < 1e-15
    positions = [Federation(parts, {"steps": steps, "batch_size": 8}).run(1) for steps in (1, 2, 3)]
    begun = {name: value.numpy() for name, value in Federation(parts, one).first.state_dict().items()}
    w1, w2, w3 = positions
    expected = {
        name: begun[name] + 3 * (w1[name] - begun[name]) + 1.5 * (w2[name] - w1[name]) + (w3[name] - w2[name])
        for name in begun
    }
    train = {"steps": 3, "batch_size": 8, "algorithm": "weighted_accumulation"}
    assert apart(Federation(parts, train).run(1), expected) < 1e-14


@pytest.mark.parametrize(
    ("optimizer", "algorithm", "expected"),
    [
        ({"lr": 0.1}, "fedavg", 4.0),
        ({"lr": 0.1, "momentum": 0.5}, "fedavg", 1 + 1.5 + 1.75 + 1.875),
        ({"lr": 0.1}, {"name": "fedprox", "mu": 2.0}, 1 + 0.8 + 0.8**2 + 0.8**3),
        ({"lr": 0.1, "momentum": 0.5}, {"name": "fedprox", "mu": 2.0}, 1 + 1.3 + 1.19 + 0.897),
    ],
)
def test_the_normalizer_is_the_total_weight_of_the_steps_gradients(
    optimizer: dict[str, Any], algorithm: Any, expected: float
) -> None:
    sites = Federation([clouds()], {"steps": 4, "optimizer": optimizer, "algorithm": algorithm})
    sites.step()
    assert sites.made[0].info == {"steps": 4.0, "normalizer": pytest.approx(expected)}


def test_with_pull_and_momentum_the_normalizer_is_how_far_a_constant_gradient_has_moved_a_parameter() -> None:
    train = {"steps": 9, "optimizer": {"lr": 0.3, "momentum": 0.7}, "algorithm": {"name": "fedprox", "mu": 0.8}}
    for schedule, expected in ((None, 4.326365), ({"factor": 0.5, "every_steps": 3}, None)):
        sites = Federation([clouds()], train | {"schedule": schedule})
        sites.step()
        velocity, moved = 0.0, 0.0
        for step in range(9):
            velocity = 0.7 * velocity + 1.0 + 0.8 * moved
            moved -= 0.3 * (1.0 if schedule is None else 0.5 ** (step // 3)) * velocity
        assert sites.made[0].info["normalizer"] == pytest.approx(-moved / 0.3, rel=1e-12)
        assert expected is None or -moved / 0.3 == pytest.approx(expected, abs=1e-6)


def test_adam_has_no_normalizer_for_its_steps_are_no_sum_of_gradients() -> None:
    sites = Federation([clouds()], {"steps": 4, "optimizer": {"name": "adam", "lr": 0.01}})
    sites.step()
    assert sites.made[0].info == {"steps": 4.0}


def test_a_site_sends_the_received_models_loss_where_the_strategy_needs_it() -> None:
    sites = Federation([clouds()], LOCAL)
    module = copy.deepcopy(sites.first)
    session = sites.session(0, module)
    x, y = torch.from_numpy(session.data.x).double(), torch.from_numpy(session.data.y)
    expected = float(torch.nn.functional.cross_entropy(module(x), y).detach())
    wanting = Session(
        module=module, data=session.data, config=session.config, problem=PROBLEM, seed=1,
        wanted=frozenset({"first_loss"}),
    )  # fmt: skip
    assert train_round(wanting).info["first_loss"] == pytest.approx(expected, abs=1e-14)
    assert check_train({"batch_size": "all"}).batch_size == ALL_EXAMPLES
