"""KNConv and KernelNorm made of the kernels, with their gradients; a layer's plain form has the same arguments.

The convolutions themselves, forward and backward, are torch's (cuDNN's). Beside them a layer takes two kernels forward
and two backward, and one product of the output's size.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch import Tensor

from hanse_learning.site.layers import kernel_norm, kn_conv
from hanse_learning.site.layers.fused import kernels
from hanse_learning.site.layers.statistics import UnitStatistics
from hanse_learning.site.layers.windows import Sizes, Windows

_TILE = {"PLACES": kernels.PLACES, "CHANNELS": kernels.CHANNELS}


class FusedConvolution(torch.autograd.Function):
    """As `kn_conv.NormalizedConvolution`; mean and 1 / standard deviation are float32."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, keep: Tensor | None, weight: Tensor, bias: Tensor | None, units: UnitStatistics,
        groups: int,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        x, windows = x.contiguous(), units.windows
        none = (0,) * (x.dim() - 2)
        out = torch.convolution(
            x, weight, None, windows.stride, windows.padding, windows.dilation, False, none, groups
        ).contiguous()
        means, inverses = _statistics_like(x, windows)
        channels, filters = out.shape[1], _of_filters(weight, bias)
        kernels.normalize[_grid(means, channels)](
            out, *_of_places(x, keep), *filters, means, inverses, channels, units.scale,
            units.epsilon, **_sizes(x.shape[2:], windows),
        )  # fmt: skip
        ctx.mark_non_differentiable(means, inverses)
        ctx.set_materialize_grads(False)  # two kernels less: zeros for these, which nobody reads
        ctx.save_for_backward(x, keep, weight, bias, out, means, inverses)
        ctx.units, ctx.groups, ctx.filters = units, groups, filters
        return out, means, inverses

    @staticmethod
    def backward(ctx: Any, given: Tensor, *_unused: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # for a second derivative
            return kn_conv.NormalizedConvolution.backward(ctx, given)
        x, keep, weight, bias, out, means, inverses = ctx.saved_tensors
        units: UnitStatistics = ctx.units
        x, given, windows, channels = x.contiguous(), given.contiguous(), units.windows, out.shape[1]
        scaled, of_first, of_second = torch.empty_like(given), torch.empty_like(means), torch.empty_like(means)
        parts, examples, _ = _grid(means, 1)
        of_filters = means.new_empty(examples, parts, 2, channels)
        size = x.shape[1] * windows.positions
        kernels.back_through_normalize[(parts, examples)](
            given, out, *ctx.filters, means, inverses, scaled, of_first, of_second, of_filters, channels,
            prod(means.shape[2:]), units.scale, size, **_TILE,
        )  # fmt: skip
        needs_x, _, needs_weight, needs_bias, *_ = ctx.needs_input_grad
        of_x, of_weight, _ = torch.ops.aten.convolution_backward(
            scaled, x, weight, None, windows.stride, windows.padding, windows.dilation, False, (0,) * (x.dim() - 2),
            ctx.groups, [needs_x, needs_weight, False],
        )  # fmt: skip
        if needs_x:
            of_x = of_x.contiguous()
            _back_to_places(of_x, x, keep, given, inverses, of_first, of_second, windows, units=False)
        of_sums, of_bias = of_filters.sum((0, 1))
        if needs_weight:
            of_weight = (of_weight + of_sums.reshape(-1, *(1,) * (weight.dim() - 1))).to(weight.dtype)
        return of_x, None, of_weight, of_bias.to(bias.dtype) if needs_bias else None, None, None


class FusedUnits(torch.autograd.Function):
    """The normalized units of x side by side: as `KernelNorm` has them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, keep: Tensor | None, units: UnitStatistics) -> tuple[Tensor, Tensor, Tensor]:
        x, windows = x.contiguous(), units.windows
        means, inverses = _statistics_like(x, windows)
        sides = (count * kernel for count, kernel in zip(means.shape[2:], windows.kernel, strict=True))
        out = x.new_empty(*x.shape[:2], *sides)
        kernels.lay_units[_grid(means, x.shape[1])](
            x, *_of_places(x, keep), out, means, inverses, x.shape[1], units.scale, units.epsilon,
            **_sizes(x.shape[2:], windows),
        )  # fmt: skip
        ctx.mark_non_differentiable(means, inverses)
        ctx.set_materialize_grads(False)  # two kernels less: zeros for these, which nobody reads
        ctx.save_for_backward(x, keep, means, inverses)
        ctx.units = units
        return out, means, inverses

    @staticmethod
    def backward(ctx: Any, given: Tensor, *_unused: Tensor) -> tuple[Tensor | None, ...]:
        x, keep, means, inverses = ctx.saved_tensors
        units: UnitStatistics = ctx.units
        if torch.is_grad_enabled():  # for a second derivative
            laid = kernel_norm.units_side_by_side(x, keep, units)
            return torch.autograd.grad(laid, x, given, create_graph=True)[0], None, None
        x, given, windows = x.contiguous(), given.contiguous(), units.windows
        of_first, of_second, of_x = torch.empty_like(means), torch.empty_like(means), torch.empty_like(x)
        parts, examples, _ = _grid(means, 1)
        kernels.back_through_units[(parts, examples)](
            given, x, means, inverses, of_first, of_second, x.shape[1], units.scale, x.shape[1] * windows.positions,
            **_sizes(x.shape[2:], windows),
        )  # fmt: skip
        _back_to_places(of_x, x, keep, given, inverses, of_first, of_second, windows, units=True)
        return of_x, None, None


def _of_places(x: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and variance over channels at each place: (n, space) each."""
    space = prod(x.shape[2:])
    first, second = (x.new_empty(len(x), space, dtype=torch.float32) for _ in range(2))
    kernels.of_places[_grid(x, 1)[:2]](
        x, _mask(x, keep), first, second, x.shape[1], space, MASKED=keep is not None, **_TILE
    )
    return first, second


def _back_to_places(
    of_x: Tensor, x: Tensor, keep: Tensor | None, given: Tensor, inverses: Tensor, of_first: Tensor,
    of_second: Tensor, windows: Windows, *, units: bool,
) -> None:  # fmt: skip
    kernels.back_to_places[_grid(x, x.shape[1])](
        of_x, x, _mask(x, keep), given, inverses, of_first, of_second, x.shape[1], MASKED=keep is not None,
        UNITS=units, **_sizes(x.shape[2:], windows),
    )  # fmt: skip


def _grid(maps: Tensor, channels: int) -> tuple[int, int, int]:
    """Programs for maps (n, ?, *space): parts of the space, examples, parts of the channels."""
    return -(-prod(maps.shape[2:]) // kernels.PLACES), len(maps), -(-channels // kernels.CHANNELS)


def _statistics_like(x: Tensor, windows: Windows) -> tuple[Tensor, Tensor]:
    """Room for mean and 1 / standard deviation of each unit: (n, 1, *windows) each."""
    shape = (len(x), 1, *windows.counts(tuple(x.shape[2:])))
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.float32)


def _of_filters(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Each filter's sum, and its bias: (channels,) float32 each."""
    sums = weight.flatten(1).sum(1, dtype=torch.float32)
    return sums, torch.zeros_like(sums) if bias is None else bias.float()


def _mask(x: Tensor, keep: Tensor | None) -> Tensor:
    """The mask as bytes; without one, a tensor that is not read."""
    return x if keep is None else keep.contiguous().view(torch.uint8)


@lru_cache(maxsize=1024)
def _sizes(space: Sizes, windows: Windows) -> dict[str, int]:
    """A kernel's arguments for images of a size; made once, for a GPU is waited for less than Python is."""
    return {
        **_named("S", space, 1), **_named("W", windows.counts(space), 1), **_named("K", windows.kernel, 1),
        **_named("STEP", windows.stride, 1), **_named("PAD", windows.padding, 0),
        **_named("APART", windows.dilation, 1), **_TILE,
    }  # fmt: skip


def _named(name: str, sizes: Sizes, other: int) -> dict[str, int]:
    """Of three axes; those that the layer has not come first."""
    return {f"{name}{axis}": size for axis, size in enumerate((other,) * (3 - len(sizes)) + tuple(sizes))}
