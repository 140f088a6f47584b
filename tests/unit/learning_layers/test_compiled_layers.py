"""Kernel-normalized layers under `torch.compile`, as site code may use it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hanse_learning.site.layers import KernelNorm2d, KNConv2d


def test_layers_compile_into_one_graph_and_make_the_same_bits_with_the_same_masks() -> None:
    """`fullgraph` raises at the first line that would break the graph. This backend needs no compiler of C."""
    torch.manual_seed(0)
    module = nn.Sequential(KNConv2d(2, 3, 2, dropout=0.2), nn.ReLU(), KernelNorm2d(1, dropout=0.2), nn.Flatten())
    x = torch.randn(2, 2, 3, 3)

    def made(form: nn.Module) -> list[Tensor]:
        torch.manual_seed(1)
        out = form(x)
        return [out, *torch.autograd.grad(out.square().sum(), list(module.parameters()))]

    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for ours, plain in zip(made(compiled), made(module), strict=True):
        assert torch.equal(ours, plain)
    module.eval()
    assert torch.equal(compiled(x), module(x))
