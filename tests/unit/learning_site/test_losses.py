"""Losses beside torch's own: one step of uneven sites, averaged by their examples, is the pooled full batch's."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.config import TrainConfig
from hanse_learning.config.checks import check_train
from hanse_learning.site.dp_sgd import train_privately
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.losses import loss_function
from hanse_learning.site.site_privacy import DpSgd
from hanse_learning.site.training import train
from hanse_schemas.schema import ArraySchema, Column, TabularSchema

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


def pool(problem: Problem, *, weights: bool = False) -> Examples:
    draw = np.random.default_rng(5)
    x = draw.normal(size=(sum(SITES), 4)).astype(np.float32)
    y: Any = draw.integers(0, 3, len(x)) if problem is CLASSES else (x.sum(axis=1) + draw.normal(size=len(x)))
    given = draw.lognormal(size=len(x)) if weights else None
    return Examples(x, y if problem is CLASSES else y.astype(np.float32), weights=given)


def stepped(start: nn.Module, data: Examples, config: TrainConfig, problem: Problem) -> Tensor:
    """The parameters after a site's one step on all of its examples."""
    module = copy.deepcopy(start)
    train(module, data, config, problem, 3, lambda _done, _text: None)
    return nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_all_sites_is_torchs_own_on_the_pooled_batch(case: str) -> None:
    problem, loss, oracle = CASES[case]
    _is_torchs(pool(problem), problem, {"loss": loss}, oracle)


@pytest.mark.parametrize("case", CASES)
def test_so_it_is_where_each_row_has_a_weight(case: str) -> None:
    problem, loss, oracle = CASES[case]
    data = pool(problem, weights=True)
    weights = torch.from_numpy(data.weights)

    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        rows = zip(torch.split(outputs, 1), torch.split(targets, 1), weights, strict=True)
        return torch.stack([weight * oracle(one, target) for one, target, weight in rows]).mean()

    _is_torchs(data, problem, {"loss": loss, "sample_weights": True}, weighted)
    # The control: without the weights it is another step.
    with pytest.raises(AssertionError, match="not close"):
        _is_torchs(data, problem, {"loss": loss}, weighted)


def test_rows_that_count_nothing_are_not_there_and_whole_weights_are_so_many_rows() -> None:
    data, start = pool(CLASSES), nn.Linear(4, 3).double()
    times = np.arange(len(data)) % 3
    config = check_train({"algorithm": "fedfgd", "sample_weights": True})
    by_weight = stepped(start, replace(data, weights=times * len(data) / times.sum()), config, CLASSES)
    by_rows = stepped(
        start, data.take(np.repeat(np.arange(len(data)), times)), check_train({"algorithm": "fedfgd"}), CLASSES
    )
    torch.testing.assert_close(by_weight, by_rows, rtol=1e-12, atol=1e-13)


def test_weights_that_are_not_there_or_meet_clipped_examples_are_refused() -> None:
    data, module, config = pool(CLASSES), nn.Linear(4, 3), check_train({"sample_weights": True})
    with pytest.raises(HanseError, match=r"train.sample_weights: True.*these examples have no weights"):
        stepped(module, data, config, CLASSES)
    private = DpSgd(clip=1.0, scale=1.0, rate=0.5, batch=10, steps=1)
    with pytest.raises(HanseError, match=r"train.sample_weights: True.*false with dp_sgd"):
        train_privately(module, replace(data, weights=np.ones(50)), config, CLASSES, private, lambda _done, _text: None)
    table = TabularSchema(features=(Column(name="age"),), target="ill", classes=2)
    check_train({"sample_weights": True}, table.model_copy(update={"weight": "counts"}))
    for schema in (table, ArraySchema(shape=(4,), classes=3)):
        with pytest.raises(HanseError, match=r"train.sample_weights: True.*no column `weight`"):
            check_train({"sample_weights": True}, schema)


def _is_torchs(data: Examples, problem: Problem, said: dict[str, Any], oracle: Oracle) -> None:
    start = nn.Linear(4, problem.outputs).double()
    config = check_train({"algorithm": "fedfgd", "optimizer": {"name": "sgd", "lr": RATE}} | said)
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
