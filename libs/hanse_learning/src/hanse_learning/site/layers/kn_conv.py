"""KNConv (Nasirigerdeh et al., 2024, equations 4 and 5): a convolution of kernel-normalized units.

A unit U is convolved by a filter Z after it was normalized, which is the same as

    (U * Z - mean(U) sum(Z)) / sqrt(var(U) + eps) + b,

so the input is convolved as it is, and the outcome normalized at each position. In the backward pass, beside what a
convolution keeps, there are the output, the mask of dropout (a byte for each value) and two numbers for each window.
With groups, the statistics are over all channels, and sum(Z) is over the filter's own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hanse_fabric.errors import invalid
from hanse_learning.site.layers.fused import fused_form
from hanse_learning.site.layers.statistics import UnitStatistics, as_numbers, check_epsilon
from hanse_learning.site.layers.unit_dropout import UnitDropout
from hanse_learning.site.layers.windows import Windows

Size = int | tuple[int, ...]
PRODUCT_BYTES = 16 << 20
"""The largest product of the output's size that a backward pass makes at once."""


class NormalizedConvolution(torch.autograd.Function):
    """(output (n, channels, *windows), mean and 1 / standard deviation of the units (n, 1, *windows)).

    The last two are for those who need single examples' gradients; no gradient flows through them.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, keep: Tensor | None, weight: Tensor, bias: Tensor | None, units: UnitStatistics, groups: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        mean, inverse = units.of(x, keep)
        made = _convolve(x, weight, units.windows, groups)
        left, right = _of_filters(weight, bias), _of_windows(mean, inverse)
        for index, one in enumerate(made.flatten(2)):  # one example at a time stays in the processor's cache
            # (x * Z) / s - sum(Z) m / s + b: the sum is a product of rank two
            one.mul_(inverse[index].flatten(1)).add_(left @ right[index])
        return made, mean, inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, keep, weight, bias, units, groups = inputs
        out, mean, inverse = output
        ctx.mark_non_differentiable(mean, inverse)
        ctx.save_for_backward(x, keep, weight, bias, out, mean, inverse)
        ctx.units, ctx.groups = units, groups

    @staticmethod
    def backward(ctx: Any, given: Tensor, *_unused: Tensor) -> tuple[Tensor | None, ...]:
        x, keep, weight, bias, out, mean, inverse = ctx.saved_tensors
        units: UnitStatistics = ctx.units
        if torch.is_grad_enabled():  # a second derivative goes through the statistics, too
            mean, inverse = units.of(x, keep)
        flat = given.flatten(2)  # (n, channels, windows)
        left = _of_filters(weight, bias)
        constant = factor = None
        if ctx.needs_input_grad[0]:
            down = left.T @ flat  # (n, 2, windows)
            weighted = torch.stack([(a * b).sum(0) for a, b in zip(flat, out.flatten(2), strict=True)])  # (n, windows)
            of_mean = down[:, :1].reshape(mean.shape) * inverse
            of_inverse = (weighted - down[:, 1]).reshape(mean.shape) / inverse
            constant, factor = units.gradient(x, mean, inverse, of_mean, of_inverse)
        of_x, of_weight = _of_convolution(ctx, x, weight, given, inverse)
        if constant is not None and factor is not None and of_x is not None:
            for index, (one, a, b) in enumerate(zip(x, constant, factor, strict=True)):
                through = a + one * b
                of_x[index].add_(through if keep is None else through * as_numbers(keep[index], x.dtype))
        of_bias = None
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            onto = flat @ _of_windows(mean, inverse).transpose(1, 2)  # (n, channels, 2): of -sum(Z), of b
            of_bias = None if bias is None else onto[..., 1].sum(0)
            if of_weight is not None:
                of_weight = of_weight - onto[..., 0].sum(0).reshape(-1, *(1,) * (weight.dim() - 1))
        return of_x, None, of_weight, of_bias, None, None


class _KNConv(nn.modules.conv._ConvNd):
    """A convolution's arguments and parameters, with `dropout` and `eps`.

    Args:
        padding: a number, one for each axis, or two (before and after) for each axis, the last axis first.
        dropout: of the values that the statistics are taken of, in training. Overlapping windows share it.
        eps: added to the variance.

    Attributes:
        watched: where it is a list, each forward pass leaves there its input (padded, where sides differ), and the
            means and 1 / standard deviations of its units.

    Raises:
        HanseError: INVALID_INPUT for what is out of range, groups that divide not both numbers of channels, and in
            `forward` for a kernel larger than the padded input.
    """

    axes: int

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1, padding: Size = 0,
        dilation: Size = 1, groups: int = 1, bias: bool = True, *, dropout: float = 0.0, eps: float = 1e-5,
    ) -> None:  # fmt: skip
        for name, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if groups < 1 or channels % groups:
                raise invalid("groups", groups, f"a divisor of the {channels} {name}")
        uneven = isinstance(padding, tuple) and len(padding) == 2 * self.axes
        # The convolution of so many axes comes next in line.
        as_plain: tuple[Any, ...] = (kernel_size, stride, 0 if uneven else padding, dilation, groups, bias)
        super().__init__(in_channels, out_channels, *as_plain)
        self.uneven = padding if uneven else None
        self.keep, self.eps = UnitDropout(dropout), check_epsilon(eps)
        self.watched: list[Tensor] | None = None

    @property
    def windows(self) -> Windows:
        """That the kernel slides over."""
        return Windows(self.kernel_size, self.stride, self.padding, self.dilation)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        if self.uneven is not None:
            x = pad(x, self.uneven)  # type: ignore[arg-type]
        windows = self.windows
        windows.counts(tuple(x.shape[2:]))
        units = UnitStatistics(windows, self.keep.scale, self.eps)
        form = fused_form("convolution", x, windows) or NormalizedConvolution
        out, *statistics = form.apply(x, self.keep(x), self.weight, self.bias, units, self.groups)
        if self.watched is not None:
            self.watched[:] = x, *statistics
        return out  # type: ignore[no-any-return]


class KNConv1d(_KNConv, nn.Conv1d):
    axes = 1


class KNConv2d(_KNConv, nn.Conv2d):
    axes = 2


class KNConv3d(_KNConv, nn.Conv3d):
    axes = 3


def _convolve(x: Tensor, weight: Tensor, windows: Windows, groups: int) -> Tensor:
    none = (0,) * (x.dim() - 2)
    return torch.convolution(x, weight, None, windows.stride, windows.padding, windows.dilation, False, none, groups)


def _of_convolution(
    ctx: Any, x: Tensor, weight: Tensor, given: Tensor, inverse: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of a plain convolution by its input and weight, of `given * inverse`.

    That product is as large as the output: where it is larger than `PRODUCT_BYTES`, it is made for some examples at a
    time.
    """
    windows, none = ctx.units.windows, (0,) * (x.dim() - 2)
    wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[2], False]
    at_once = max(1, PRODUCT_BYTES * len(x) // max(1, given.numel() * given.element_size()))
    parts = [
        torch.ops.aten.convolution_backward(
            g * i, p, weight, None, windows.stride, windows.padding, windows.dilation, False, none, ctx.groups, wanted
        )
        for g, i, p in zip(*(torch.split(each, at_once) for each in (given, inverse, x)), strict=True)
    ]
    if len(parts) == 1:
        return parts[0][0], parts[0][1]
    of_weight = torch.stack([part[1] for part in parts]).sum(0) if wanted[1] else None
    return torch.cat([part[0] for part in parts]) if wanted[0] else None, of_weight


def _of_filters(weight: Tensor, bias: Tensor | None) -> Tensor:
    """-sum(Z) and b of each filter: (channels, 2)."""
    sums = -weight.flatten(1).sum(1)
    return torch.stack([sums, torch.zeros_like(sums) if bias is None else bias], dim=1)


def _of_windows(mean: Tensor, inverse: Tensor) -> Tensor:
    """mean / standard deviation, and one, of each window: (n, 2, windows)."""
    return torch.cat([mean * inverse, torch.ones_like(mean)], dim=1).flatten(2)
