"""Gradients of single examples, layer by layer, are those of batches of one, for every kind of layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hanse_learning.config import check_model
from hanse_learning.site.example_gradients import by_layers, by_vmap, example_gradients
from hanse_learning.site.examples import Problem
from hanse_learning.site.layers import KNConv2d
from hanse_learning.site.models import build

NO_DROPOUT = {"dropout": 0, "final_dropout": 0}
MODELS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "mlp": ({"name": "mlp", "hidden": [6, 4], "normalization": "group", "groups": 2}, (5,)),
    "mlp of units": ({"name": "mlp", "hidden": [6], "normalization": "kernel", "kernel": NO_DROPOUT}, (5,)),
    "cnn": ({"name": "cnn", "channels": [4, 6], "normalization": "layer"}, (2, 8, 8)),
    "kernel": ({"name": "cnn", "channels": [4, 6], "normalization": "kernel", "kernel": NO_DROPOUT}, (2, 8, 8)),
    "strides": ({"name": "resnet20", "normalization": "kernel", "kernel": NO_DROPOUT}, (3, 8, 8)),
}


def loss_of(outputs: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, y)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_each_example_has_the_mean_gradient_of_its_copies(name: str, copies: int) -> None:
    config, shape = MODELS[name]
    module = build(check_model(config), Problem(shape, 3, "classification"), seed=1)
    torch.manual_seed(0)
    x, y = torch.randn(2 * copies, *shape), torch.tensor([0, 2]).repeat_interleave(copies)
    check_each(module, x, y, copies)


def test_padding_that_differs_between_sides_is_in_the_gradient() -> None:
    torch.manual_seed(0)
    layers = (KNConv2d(2, 4, 2, padding=(1, 0, 0, 1)), nn.Conv2d(4, 4, 2, groups=2, dilation=2), nn.Flatten())
    check_each(nn.Sequential(*layers), torch.randn(2, 2, 4, 4), torch.tensor([0, 2]), 1)


def check_each(module: nn.Module, x: Tensor, y: Tensor, copies: int) -> None:
    named = dict(module.named_parameters())
    made = by_layers(module, loss_of)(named, x, y, copies)
    assert all(parameter.requires_grad for parameter in named.values())
    for index in range(2):
        own = slice(index * copies, (index + 1) * copies)
        module.zero_grad()
        loss_of(module(x[own]), y[own]).backward()
        for key, value in named.items():
            expected = value.grad
            assert expected is not None
            largest = max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(made[key][index] / largest, expected / largest, rtol=1e-4, atol=1e-5)


def test_the_way_by_vmap_makes_the_same_and_is_taken_for_layers_that_are_not_known() -> None:
    config, shape = MODELS["kernel"]
    module = build(check_model(config), Problem(shape, 3, "classification"), seed=1)
    x, y, named = torch.randn(6, *shape), torch.tensor([0, 0, 1, 1, 2, 2]), dict(module.named_parameters())
    first, second = (way(module, loss_of)(named, x, y, 2) for way in (by_layers, by_vmap))
    for key, value in first.items():
        torch.testing.assert_close(value, second[key], rtol=1e-4, atol=1e-5)
    other = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    made = example_gradients(other, loss_of)(dict(other.named_parameters()), torch.randn(3, 4), torch.tensor([0, 1, 2]))
    assert made["1.weight"].shape == (3, 4)
    assert made["1.weight"].abs().sum() > 0


def test_dropped_values_are_the_same_in_the_gradient_as_in_the_forward_pass() -> None:
    layer = KNConv2d(2, 3, 3, padding=1, dropout=0.4)
    module = nn.Sequential(layer, nn.Flatten())
    mask = torch.rand(2, 2, 5, 5) >= 0.4
    layer.keep.forward = lambda x: mask[: len(x)]  # type: ignore[method-assign]
    x, y = torch.randn(2, 2, 5, 5), torch.tensor([3, 5])
    made = by_layers(module, loss_of)(dict(module.named_parameters()), x, y)
    assert layer.watched is None
    loss_of(module(x), y).backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(made["0.weight"].mean(0), layer.weight.grad, rtol=1e-4, atol=1e-6)


def test_frozen_parameters_have_no_gradient_and_stay_frozen() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    module[0].weight.requires_grad_(False)
    named = {name: value for name, value in module.named_parameters() if value.requires_grad}
    made = by_layers(module, loss_of)(named, torch.randn(2, 4), torch.tensor([0, 1]))
    assert made.keys() == {"0.bias", "2.weight", "2.bias"}
    assert not module[0].weight.requires_grad


def test_opacus_makes_the_same_gradients_with_the_masks_of_the_forward_pass() -> None:
    pytest.importorskip("opacus", reason="Opacus is not among the development tools: make bench-models installs it")
    from opacus import GradSampleModule

    from hanse_learning.site.for_opacus import prepare

    layer = KNConv2d(2, 3, 3, padding=1, dropout=0.4)
    mask = torch.rand(2, 2, 5, 5) >= 0.4
    layer.keep.forward = lambda x: mask[: len(x)]  # type: ignore[method-assign]
    module = nn.Sequential(layer, nn.Flatten())
    x, y = torch.randn(2, 2, 5, 5), torch.tensor([3, 5])
    ours = by_layers(module, loss_of)(dict(module.named_parameters()), x, y)
    wrapped = GradSampleModule(prepare(module))

    loss_of(wrapped(x), y).backward()
    parameters: dict[str, Any] = dict(module.named_parameters())
    for name, value in parameters.items():
        torch.testing.assert_close(value.grad_sample, ours[name], rtol=1e-4, atol=1e-6)
