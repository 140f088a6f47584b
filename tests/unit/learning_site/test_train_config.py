"""The `train` section: presets say what they mean, and what contradicts them is refused."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.errors import HanseError
from hanse_learning.config import ALL_EXAMPLES, check_train


@pytest.mark.parametrize("name", ["fedsgd", "fedfgd"])
def test_full_gradient_presets_are_one_step_over_all_examples(name: str) -> None:
    train = check_train({"algorithm": name})
    assert (train.steps, train.epochs, train.batch_size) == (1, None, ALL_EXAMPLES)


def test_fedsmb_is_one_mini_batch_and_fedcmb_a_constant_number_of_them() -> None:
    assert check_train({"algorithm": {"name": "fedsmb"}, "batch_size": 10}).steps == 1
    assert check_train({"algorithm": {"name": "fedcmb"}, "batch_size": 10, "steps": 5}).steps == 5


def test_all_is_a_batch_size() -> None:
    assert check_train({"batch_size": "all", "epochs": 2}).batch_size == ALL_EXAMPLES


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"algorithm": "fedfgd", "epochs": 1}, "one step a round"),
        ({"algorithm": "fedfgd", "steps": 2}, "one step a round"),
        ({"algorithm": "fedfgd", "batch_size": 10}, "takes all examples"),
        ({"algorithm": "fedcmb"}, "two or more"),
        ({"algorithm": "fedcmb", "steps": 1}, "two or more"),
        ({"algorithm": {"name": "scaffold"}, "optimizer": {"name": "adam"}}, "needs optimizer sgd"),
        ({"algorithm": {"name": "fedprox", "mu": -1}}, "mu"),
        ({"algorithm": {"name": "federated"}}, "federated"),
        ({"schedule": {"factor": 0.5}}, "every_rounds"),
        ({"batch_size": "some"}, "batch_size"),
    ],
)
def test_what_contradicts_an_algorithm_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(HanseError) as caught:
        check_train(body)
    assert said in caught.value.message
