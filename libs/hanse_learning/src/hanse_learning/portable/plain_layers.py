"""Layers of Hanse's own in plain tensor operations, for graphs that leave.

KNConv and KernelNorm are written for training: example after example, with a gradient of their own. Here the same
formulas (Nasirigerdeh et al., 2024, section 2) are over a whole batch, without dropout, in operations that ONNX has.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hanse_learning.site.layers.kernel_norm import KernelNorm1d, KernelNorm2d, KernelNorm3d
from hanse_learning.site.layers.kn_conv import KNConv1d, KNConv2d, KNConv3d
from hanse_learning.site.layers.windows import Windows

_Convolutions = KNConv1d | KNConv2d | KNConv3d
_Norms = KernelNorm1d | KernelNorm2d | KernelNorm3d


def plain(module: nn.Module) -> nn.Module:
    """The module in evaluation, with such layers replaced; it is changed, its parameters are not."""
    if isinstance(module, _Convolutions):
        return _PlainConvolution(module)
    if isinstance(module, _Norms):
        return _PlainNorm(module)
    for name, inner in module.named_children():
        setattr(module, name, plain(inner))
    return module.eval()


class _PlainConvolution(nn.Module):
    """(convolution - sum of the filter x mean) / standard deviation + bias."""

    def __init__(self, of: _Convolutions) -> None:
        super().__init__()
        self.of = of

    def forward(self, x: Tensor) -> Tensor:
        of, windows = self.of, self.of.windows
        if of.uneven is not None:
            x = pad(x, of.uneven)  # type: ignore[arg-type]
        mean, inverse = _statistics(x, windows, of.eps)
        none = (0,) * of.axes
        made = torch.convolution(
            x, of.weight, None, windows.stride, windows.padding, windows.dilation, False, none, of.groups
        )
        sides = (1, -1, *(1,) * of.axes)
        made = (made - of.weight.flatten(1).sum(1).view(sides) * mean) * inverse
        return made if of.bias is None else made + of.bias.view(sides)


class _PlainNorm(nn.Module):
    """Units side by side, each less its mean and over its standard deviation."""

    def __init__(self, of: _Norms) -> None:
        super().__init__()
        self.of = of

    def forward(self, x: Tensor) -> Tensor:
        windows = self.of.windows
        counts = windows.counts(tuple(int(side) for side in x.shape[2:]))
        mean, inverse = _statistics(x, windows, self.of.eps)
        units = pad(x, [side for size in reversed(windows.padding) for side in (size, size)])
        for axis, (count, kernel, stride) in enumerate(zip(counts, windows.kernel, windows.stride, strict=True), 2):
            window, place = torch.arange(count).repeat_interleave(kernel), torch.arange(kernel).repeat(count)
            units = units.index_select(axis, window * stride + place)
            mean, inverse = mean.index_select(axis, window), inverse.index_select(axis, window)
        return (units - mean) * inverse


def _statistics(x: Tensor, windows: Windows, eps: float) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation of each unit, (n, 1, *windows) in x's dtype; see `UnitStatistics`."""
    exact = x.double()
    size = x.shape[1] * windows.positions
    first = _sums(exact.sum(1, keepdim=True), windows) / size
    second = _sums((exact * exact).sum(1, keepdim=True), windows) / size
    variance = torch.clamp(second - first * first, min=0)
    return first.to(x.dtype), torch.rsqrt(variance + eps).to(x.dtype)


def _sums(maps: Tensor, windows: Windows) -> Tensor:
    """Of maps (n, 1, *space) within each window, axis after axis; runtimes have no convolution in double precision."""
    counts = windows.counts(tuple(int(side) for side in maps.shape[2:]))
    maps = pad(maps, [side for size in reversed(windows.padding) for side in (size, size)])
    sizes = zip(counts, windows.kernel, windows.stride, windows.dilation, strict=True)
    for axis, (count, kernel, stride, apart) in enumerate(sizes, 2):
        first = torch.arange(count) * stride
        parts = [maps.index_select(axis, first + place * apart) for place in range(kernel)]
        maps = sum(parts[1:], parts[0])
    return maps
