"""What an algorithm must be equal to: centralized training, or federated averaging without its own term."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hanse_learning.config import check_model
from hanse_learning.site.models import build
from unit.learning_site.federation import LOCAL, MODEL, PROBLEM, SEED, Federation, apart, clouds, descended, split

SGD = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.001, "across_rounds": True}


@pytest.mark.parametrize(("by_class", "iterations"), [(False, 20), (True, 100)])
def test_fedfgd_equals_centralized_full_batch_training_over_100_iterations(by_class: bool, iterations: int) -> None:
    data = clouds()
    sites = Federation(split(data, by_class=by_class), {"algorithm": "fedfgd", "optimizer": SGD})
    pooled = descended(data, iterations, 0.1, momentum=0.9, decay=0.001)
    assert apart(sites.run(iterations), pooled) < 1e-9


@pytest.mark.parametrize(
    ("train", "options"),
    [
        ({"algorithm": "fedfgd", "optimizer": SGD | {"across_rounds": False}}, {}),
        ({"epochs": 2, "batch_size": "all", "optimizer": SGD}, {}),
        ({"algorithm": "fedfgd", "optimizer": SGD}, {"weights": [3.0, 1.0, 1.0, 1.0]}),
    ],
)
def test_fedfgd_with_momentum_anew_or_two_steps_or_other_weights_does_not(
    train: dict[str, Any], options: dict[str, Any]
) -> None:
    data = clouds()
    sites = Federation(split(data, by_class=True), train)
    assert apart(sites.run(20, **options), descended(data, 20, 0.1, momentum=0.9, decay=0.001)) > 1e-4


def test_fedfgd_with_uneven_sites_and_a_falling_rate_equals_centralized_training() -> None:
    data = clouds()
    parts = [data.take(part) for part in np.split(np.arange(len(data)), [3, 20, 21])]
    schedule = {"factor": 0.5, "every_rounds": 4}
    sites = Federation(parts, {"algorithm": "fedfgd", "optimizer": SGD, "schedule": schedule})
    module = build(check_model(MODEL), PROBLEM, seed=1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=0.001)
    falling = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    x, y = torch.from_numpy(data.x).double(), torch.from_numpy(data.y)
    for _ in range(12):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
        falling.step()
    pooled = {name: value.numpy() for name, value in module.state_dict().items()}
    assert apart(sites.run(12), pooled) < 1e-11


@pytest.mark.parametrize(("cuts", "equal"), [([24, 48, 72], True), ([40, 60, 70], False)])
def test_fedsmb_equals_mini_batch_training_where_the_batch_divides_equal_sites(cuts: list[int], equal: bool) -> None:
    data = clouds()
    parts = np.split(np.arange(len(data)), cuts)
    sites = Federation(
        [data.take(part) for part in parts], {"algorithm": "fedsmb", "batch_size": 8, "optimizer": {"lr": 0.1}}
    )
    batches = []
    for number in range(1, 16):
        drawn = []
        for part in parts:
            order = torch.randperm(len(part), generator=torch.Generator().manual_seed(SEED + number))
            drawn.append(part[order[:8].numpy()])
        batches.append(np.concatenate(drawn))
    pooled = descended(data, 15, 0.1, batches=batches)
    distance = apart(sites.run(15), pooled)
    assert (distance < 1e-11) == equal


def test_fedavg_of_one_epoch_over_all_examples_is_fedsgd() -> None:
    parts = split(clouds(), by_class=True)
    one = Federation(parts, {"epochs": 1, "batch_size": "all"}).run(5)
    assert apart(one, Federation(parts, {"algorithm": "fedsgd"}).run(5)) == 0
    assert apart(one, Federation(parts, {"epochs": 1, "batch_size": 8}).run(5)) > 1e-4


@pytest.mark.parametrize(
    ("same", "other"),
    [
        ({"name": "fedprox", "mu": 0.0}, {"name": "fedprox", "mu": 0.5}),
        ({"name": "per_fedavg", "alpha": 0.0, "variant": "fo"}, {"name": "per_fedavg", "alpha": 0.1}),
        (
            {"name": "per_fedavg", "alpha": 0.0, "variant": "hf"},
            {"name": "per_fedavg", "alpha": 0.1, "variant": "hf"},
        ),
        ({"name": "moon", "mu": 0.0}, {"name": "moon", "mu": 1.0}),
        ({"name": "ditto", "pull": 0.7}, None),
    ],
)
def test_without_its_term_an_algorithm_is_fedavg_to_the_bit_and_with_it_is_not(
    same: dict[str, Any], other: dict[str, Any] | None
) -> None:
    parts = split(clouds(), by_class=True)
    plain = Federation(parts, LOCAL).run(3)
    assert apart(Federation(parts, LOCAL | {"algorithm": same}).run(3), plain) == 0
    if other is not None:
        assert apart(Federation(parts, LOCAL | {"algorithm": other}).run(3), plain) > 1e-5
