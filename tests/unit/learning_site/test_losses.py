"""Losses beside torch's own: one step of uneven sites, averaged by their examples, is the pooled full batch's."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.config import TrainConfig
from hanse_learning.config.checks import check_train
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.losses import loss_function
from hanse_learning.site.training import train
from hanse_schemas.schema import ArraySchema

SITES, RATE = (31, 7, 12), 0.1
WEIGHTS = (0.5, 3.0, 1.25)
CLASSES, VALUES = Problem((4,), 3, "classification"), Problem((4,), 1, "regression")
Oracle = Callable[[Tensor, Tensor], Tensor]


def _weighted(outputs: Tensor, labels: Tensor) -> Tensor:
    given = torch.tensor(WEIGHTS, dtype=torch.float64)
    return nn.CrossEntropyLoss(weight=given, reduction="none")(outputs, labels).mean()


def _focal(outputs: Tensor, labels: Tensor) -> Tensor:
    p = torch.softmax(outputs, 1)[torch.arange(len(labels)), labels]
    return (torch.tensor(WEIGHTS, dtype=torch.float64)[labels] * -((1 - p) ** 1.5) * p.log()).mean()


CASES: dict[str, tuple[Problem, Any, Oracle]] = {
    "cross-entropy": (CLASSES, "cross_entropy", nn.CrossEntropyLoss()),
    "weighted": (CLASSES, {"name": "cross_entropy", "class_weights": WEIGHTS}, _weighted),
    "focal, weighted": (CLASSES, {"name": "focal", "gamma": 1.5, "class_weights": WEIGHTS}, _focal),
    "squared": (VALUES, "mse", nn.MSELoss()),
    "huber": (VALUES, {"name": "huber", "delta": 0.4}, nn.HuberLoss(delta=0.4)),
}


def pool(problem: Problem) -> Examples:
    draw = np.random.default_rng(5)
    x = draw.normal(size=(sum(SITES), 4)).astype(np.float32)
    y: Any = draw.integers(0, 3, len(x)) if problem is CLASSES else (x.sum(axis=1) + draw.normal(size=len(x)))
    return Examples(x, y if problem is CLASSES else y.astype(np.float32))


def stepped(start: nn.Module, data: Examples, config: TrainConfig, problem: Problem) -> Tensor:
    """The parameters after a site's one step on all of its examples."""
    module = copy.deepcopy(start)
    train(module, data, config, problem, 3, lambda _done, _text: None)
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_all_sites_is_torchs_own_on_the_pooled_batch(case: str) -> None:
    problem, loss, oracle = CASES[case]
    data, start = pool(problem), nn.Linear(4, problem.outputs).double()
    config = check_train({"algorithm": "fedfgd", "loss": loss, "optimizer": {"name": "sgd", "lr": RATE}})
    ends = np.cumsum((0, *SITES))
    shares = [data.take(np.arange(a, b)) for a, b in itertools.pairwise(ends)]
    parts = [len(share) / len(data) * stepped(start, share, config, problem) for share in shares]
    pooled = copy.deepcopy(start)
    targets = torch.from_numpy(data.y) if problem is CLASSES else torch.from_numpy(data.y).double()[:, None]
    measured = oracle(pooled(torch.from_numpy(data.x).double()), targets)
    measured.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(pooled.parameters(), lr=RATE).step()
    expected = nn.utils.parameters_to_vector(pooled.parameters()).detach()
    torch.testing.assert_close(torch.stack(parts).sum(0), expected, rtol=1e-12, atol=1e-13)
    assert not torch.equal(expected, nn.utils.parameters_to_vector(start.parameters()).detach())


def test_balanced_weights_are_torchs_weighted_mean() -> None:
    """Of weights whose mean over all examples is one, torch's mean over weights is the mean over examples."""
    logits, labels = torch.randn(60, 3, dtype=torch.float64), torch.arange(60) % 5 % 3
    balanced = 60 / (3 * torch.bincount(labels).double())
    config = check_train({"loss": {"name": "cross_entropy", "class_weights": balanced.tolist()}})
    own = nn.CrossEntropyLoss(weight=balanced)(logits, labels)
    torch.testing.assert_close(loss_function(CLASSES, config)(logits, labels), own, rtol=1e-12, atol=0)


def test_weights_of_two_classes_are_of_one_output_too() -> None:
    logits, labels = torch.randn(20, 1, dtype=torch.float64), torch.arange(20) % 2
    config = check_train({"loss": {"name": "binary", "class_weights": [1.0, 4.0]}})
    by_weight = nn.functional.binary_cross_entropy_with_logits(
        logits[:, 0], labels.double(), weight=1.0 + 3.0 * labels.double()
    )
    measured = loss_function(Problem((4,), 1, "classification"), config)(logits, labels)
    torch.testing.assert_close(measured, by_weight, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("loss", "schema", "said"),
    [
        ("hinge", None, "hinge"),
        ({"name": "tversky"}, None, "tversky"),
        ({"name": "huber", "delta": 0}, None, "delta"),
        ({"name": "cross_entropy", "class_weights": [1.0, -1.0]}, None, "class_weights"),
        ({"name": "cross_entropy", "weights": [1.0, 1.0]}, None, "weights"),
        ({"name": "huber"}, ArraySchema(shape=(4,), classes=3), "cross_entropy, binary or focal"),
        ({"name": "focal"}, ArraySchema(shape=(4,), task="regression"), "mse or huber"),
        ({"name": "focal", "class_weights": [1.0, 2.0]}, ArraySchema(shape=(4,), classes=3), "3 numbers"),
    ],
)
def test_a_loss_that_is_none_or_not_for_the_data_is_refused_at_submission(loss: Any, schema: Any, said: str) -> None:
    with pytest.raises(HanseError, match=said) as refused:
        check_train({"loss": loss}, schema)
    assert refused.value.code is ErrorCode.INVALID_INPUT


def test_weights_of_other_classes_than_the_sites_are_refused_there() -> None:
    config = check_train({"loss": {"name": "cross_entropy", "class_weights": [1.0, 2.0]}})
    with pytest.raises(HanseError, match="3 numbers, one for each class"):
        loss_function(CLASSES, config)
