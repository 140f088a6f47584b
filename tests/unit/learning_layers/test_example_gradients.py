"""Single examples' gradients of kernel-normalized layers are those of batches of one."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from hanse_learning.site.layers import KernelNorm2d, KNConv2d

LAYERS = {
    "plain": lambda: nn.Sequential(KNConv2d(2, 4, 3, padding=1), nn.ReLU(), KNConv2d(4, 3, 2, stride=2)),
    "groups": lambda: nn.Sequential(KNConv2d(2, 4, 2, groups=2, bias=False), KernelNorm2d(1), KNConv2d(4, 3, 1)),
    "uneven": lambda: nn.Sequential(KNConv2d(2, 4, 2, padding=(1, 0, 1, 0)), nn.Mish(), KernelNorm2d(2, 2)),
}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_gradients_by_vmap_are_those_of_each_example_alone(name: str) -> None:
    torch.manual_seed(1)
    module = LAYERS[name]()
    x, named = torch.randn(3, 2, 6, 6), dict(module.named_parameters())

    def loss(parameters: dict, one: torch.Tensor) -> torch.Tensor:
        return functional_call(module, parameters, (one[None],)).square().mean()

    together = vmap(grad(loss), in_dims=(None, 0), randomness="different")(
        {key: value.detach() for key, value in named.items()}, x
    )
    for index in range(3):
        module.zero_grad()
        module(x[index : index + 1]).square().mean().backward()
        for key, value in named.items():
            torch.testing.assert_close(together[key][index], value.grad, rtol=1e-4, atol=1e-5)


def test_under_vmap_each_example_has_a_mask_of_its_own() -> None:
    module = KNConv2d(2, 4, 3, dropout=0.5)
    one = torch.randn(2, 6, 6).expand(5, 2, 6, 6)
    made = vmap(lambda x: module(x[None])[0], randomness="different")(one)
    assert all(not torch.equal(made[0], other) for other in made[1:])
    same = vmap(lambda x: module.eval()(x[None])[0], randomness="different")(one)
    torch.testing.assert_close(same[0], same[4])
