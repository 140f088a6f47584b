"""Gradients of single examples that stay factors: the same sums, and norms that are never told too small."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hanse_learning.config import check_model, check_train
from hanse_learning.site import factors
from hanse_learning.site.clipping import clipped_sum, norms_of
from hanse_learning.site.example_gradients import by_vmap, mixed_by_layers, numbers_of_example
from hanse_learning.site.examples import Problem
from hanse_learning.site.factors import Factors
from hanse_learning.site.layers import KNConv1d, KNConv2d, KNConv3d
from hanse_learning.site.models import build

NO_DROPOUT = {"dropout": 0, "final_dropout": 0}
NETWORKS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "mlp": ({"name": "mlp", "hidden": [64, 32], "normalization": "group", "groups": 2}, (5,)),
    "cnn": ({"name": "cnn", "channels": [4, 64], "normalization": "layer"}, (2, 8, 8)),
    "kernel": ({"name": "cnn", "channels": [4, 64], "normalization": "kernel", "kernel": NO_DROPOUT}, (2, 8, 8)),
    "strides": ({"name": "resnet20", "normalization": "kernel", "kernel": NO_DROPOUT}, (3, 4, 4)),
}


def loss_of(outputs: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, y)


def compared(module: nn.Module, x: Tensor, y: Tensor, copies: int = 1) -> int:
    """How many gradients stay factors; all are those by vmap, multiplied out, in norm, and in the clipped sum."""
    named = dict(module.named_parameters())
    mixed, plain = (way(module, loss_of)(named, x, y, copies) for way in (mixed_by_layers, by_vmap))
    kept = {name: made for name, made in mixed.items() if isinstance(made, Factors)}
    for name, made in kept.items():
        largest = max(1.0, float(plain[name].abs().max()))
        torch.testing.assert_close(made.multiplied() / largest, plain[name] / largest, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(made.norms(), norms_of(plain[name]), rtol=2e-4, atol=1e-7)
    for rule in ("flat", "automatic"):
        how = check_train({"clipping": {"per": "layer", "rule": rule}}).clipping
        np.testing.assert_allclose(clipped_sum(mixed, 0.5, how), clipped_sum(plain, 0.5, how), rtol=1e-3, atol=1e-5)
    return len(kept)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_sums_of_factors_are_those_of_gradients_that_are_multiplied_out(name: str, copies: int) -> None:
    config, shape = NETWORKS[name]
    module = build(check_model(config), Problem(shape, 3, "classification"), seed=1)
    torch.manual_seed(0)
    y = torch.tensor([0, 1, 2]).repeat_interleave(copies)
    assert compared(module, torch.randn(3 * copies, *shape), y, copies)


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ((KNConv2d(6, 20, 2, padding=(1, 0, 0, 1)), nn.Conv2d(20, 20, 2, dilation=2, stride=2, padding=1)), (6, 3, 3)),
        ((nn.Conv1d(6, 20, 3, stride=2, padding=2), KNConv1d(20, 30, 1)), (6, 5)),
        ((KNConv3d(4, 20, 2), nn.Conv3d(20, 30, 1)), (4, 2, 3, 2)),
    ],
)
def test_paddings_strides_and_dilations_of_any_number_of_axes_are_under_the_kernel(
    layers: tuple[nn.Module, ...], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    assert compared(nn.Sequential(*layers, nn.Flatten()), torch.randn(2, *shape), torch.tensor([0, 2])) == 2


def test_a_layer_that_is_used_twice_has_the_sum_of_both_uses() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 4)
    assert compared(nn.Sequential(layer, nn.ReLU(), layer), torch.randn(3, 4), torch.tensor([0, 1, 2])) == 0


def cancelling(seed: int, large: float) -> Factors:
    """One example, of which almost all cancels: the same large inputs at 64 positions, and outputs that sum to zero."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(1, 1, 300, generator=generator).repeat(1, 64, 1) * large
    inputs = inputs + torch.randn(1, 64, 300, generator=generator) * 1e-3
    outputs = torch.randn(1, 64, 16, generator=generator)
    return Factors(inputs, outputs - outputs.mean(1, keepdim=True), torch.Size([16, 300]))


def longest_over_clip(large: float) -> float:
    """Of the clipped sums of ten such examples, at clips just below their true norms."""
    found = []
    for seed in range(10):
        made = cancelling(seed, large)
        clip = 0.999 * float(torch.linalg.norm(made.outputs[0].double().T @ made.inputs[0].double()))
        found.append(float(np.linalg.norm(clipped_sum({"weight": made}, clip))) / clip)
    return max(found)


@pytest.mark.parametrize("large", [1.0, 1e2, 1e4, 1e8])
def test_no_example_moves_the_sum_by_more_than_the_clip_whatever_cancels_in_its_gradient(large: float) -> None:
    assert longest_over_clip(large) <= 1


def test_control_without_room_for_rounding_an_example_moves_the_sum_by_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "_CANCELS", 0.0)
    monkeypatch.setattr(factors, "_DOUBLE", 0.0)
    assert longest_over_clip(1e6) > 1.0005  # its clip is 0.999 of its norm, which is taken for zero


def test_who_is_beside_an_example_does_not_change_what_it_adds() -> None:
    """In single precision, an example of which much cancels takes the last digits off what is summed with it."""
    torch.manual_seed(0)
    loud, quiet = (
        cancelling(0, 1e4),
        Factors(torch.randn(7, 64, 300), torch.randn(7, 64, 16) / 100, torch.Size([16, 300])),
    )
    inputs, outputs = torch.cat([quiet.inputs, loud.inputs]), torch.cat([quiet.outputs, loud.outputs])
    both = Factors(inputs, outputs, loud.shape)
    alone, together = (clipped_sum({"weight": each}, 1.0) for each in (quiet, both))
    moved = together - alone - clipped_sum({"weight": loud}, 1.0)
    assert np.linalg.norm(moved) < 1e-9
    rows = (torch.cat([quiet.outputs, loud.outputs * 100]), torch.cat([quiet.inputs, loud.inputs]))
    single = rows[0].flatten(0, 1).T @ rows[1].flatten(0, 1) - loud.outputs[0].T @ loud.inputs[0] * 100
    exact = quiet.outputs.double().flatten(0, 1).T @ quiet.inputs.double().flatten(0, 1)
    assert float(torch.linalg.norm(single.double() - exact)) > 1  # the control


def test_the_last_rows_of_gradients_that_are_multiplied_out_count_alike() -> None:
    torch.manual_seed(0)
    rows = torch.randn(5, 300_001)
    rows[3, 7] = math.nan
    expected = rows[[0, 1, 2, 4]].double()
    expected = (expected * (0.5 / torch.linalg.norm(expected, dim=1, keepdim=True))).sum(0)
    np.testing.assert_allclose(clipped_sum({"weight": rows}, 0.5), expected, rtol=2e-4, atol=1e-9)


@pytest.mark.parametrize("spoilt", [math.nan, math.inf, 2.0**62])
@pytest.mark.parametrize("which", ["inputs", "outputs"])
def test_an_example_with_a_factor_that_is_no_number_or_too_long_counts_as_zero(spoilt: float, which: str) -> None:
    torch.manual_seed(0)
    made = Factors(torch.randn(3, 2, 4), torch.randn(3, 2, 5), torch.Size([5, 4]))
    getattr(made, which)[1, 0, 0] = spoilt
    others = Factors(made.inputs[[0, 2]], made.outputs[[0, 2]], made.shape)
    np.testing.assert_array_equal(clipped_sum({"w": made}, 0.5), clipped_sum({"w": others}, 0.5))
    assert not clipped_sum({"w": Factors(made.inputs[1:2], made.outputs[1:2], made.shape)}, 0.5).any()


def test_a_large_weight_takes_the_memory_of_its_factors_where_all_layers_are_known() -> None:
    known = nn.Sequential(nn.Linear(300, 200), nn.Linear(200, 3))
    x = torch.zeros(1, 300)
    assert numbers_of_example(known, x) == (300 + 200) + 200 + (200 + 3) + 3 + 3 * (200 + 3)
    assert numbers_of_example(known, x, alone=False) == 300 * 200 + 200 + 200 * 3 + 3 + 3 * (200 + 3)
    other = nn.Sequential(*known, nn.LayerNorm(3))
    assert numbers_of_example(other, x) == 300 * 200 + 200 + 200 * 3 + 3 + 6 + 3 * (200 + 3 + 3)
