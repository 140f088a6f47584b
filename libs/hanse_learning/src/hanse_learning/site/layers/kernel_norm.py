"""KernelNorm (Nasirigerdeh et al., 2024, equations 1 to 3): each window over all channels is normalized by itself.

The unit of a window is (channels, *kernel). Its statistics are those of the unit after dropout, and are applied to the
unit as it is. The output is the units side by side: with windows that overlap it is larger than the input. There are no
parameters, and examples do not depend on each other.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad

from hanse_learning.site.layers.fused import fused_form
from hanse_learning.site.layers.statistics import UnitStatistics, check_epsilon
from hanse_learning.site.layers.unit_dropout import UnitDropout
from hanse_learning.site.layers.windows import Windows

Size = int | tuple[int, ...]


class _KernelNorm(nn.Module):
    """For inputs (n, c, *space) of as many axes as the class says.

    Args:
        kernel_size, stride, padding: a number, or one for each axis; zeros are padded.
        dropout: of the values that the statistics are taken of, in training.
        eps: added to the variance.

    Raises:
        HanseError: INVALID_INPUT for what is out of range, and in `forward` for a kernel larger than the padded input.
    """

    axes: int

    def __init__(
        self, kernel_size: Size = 1, stride: Size = 1, padding: Size = 0, *, dropout: float = 0.0, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.windows = Windows(*(self._each(size) for size in (kernel_size, stride, padding, 1)))
        self.keep, self.eps = UnitDropout(dropout), check_epsilon(eps)

    def forward(self, x: Tensor) -> Tensor:
        self.windows.counts(tuple(x.shape[2:]))
        units = UnitStatistics(self.windows, self.keep.scale, self.eps)
        fused = fused_form("units", x, self.windows)
        if fused is None:
            return units_side_by_side(x, self.keep(x), units)
        return fused.apply(x, self.keep(x), units)[0]  # type: ignore[no-any-return]

    def _each(self, size: Size) -> tuple[int, ...]:
        return (size,) * self.axes if isinstance(size, int) else size

    def extra_repr(self) -> str:
        return f"{self.windows.kernel}, stride={self.windows.stride}, padding={self.windows.padding}, eps={self.eps:g}"


class KernelNorm1d(_KernelNorm):
    axes = 1


class KernelNorm2d(_KernelNorm):
    axes = 2


class KernelNorm3d(_KernelNorm):
    axes = 3


def units_side_by_side(x: Tensor, keep: Tensor | None, units: UnitStatistics) -> Tensor:
    """The normalized units of x (n, c, *space): (n, c, *(windows * kernel)).

    Args:
        keep: the values that count for the statistics; None for all.
    """
    windows, axes = units.windows, x.dim() - 2
    mean, inverse = units.of(x, keep)
    if windows.positions == 1 and not any(windows.padding) and set(windows.stride) == {1}:
        return (x - mean) * inverse
    made = pad(x, [side for size in reversed(windows.padding) for side in (size, size)])
    for axis, (kernel, stride) in enumerate(zip(windows.kernel, windows.stride, strict=True)):
        made = made.unfold(2 + axis, kernel, stride)  # views: (n, c, *windows, *kernel)
    apart = (..., *(None,) * axes)
    made = (made - mean[apart]) * inverse[apart]
    order = [axis for pair in zip(range(2, 2 + axes), range(2 + axes, 2 + 2 * axes), strict=True) for axis in pair]
    sides = (count * kernel for count, kernel in zip(mean.shape[2:], windows.kernel, strict=True))
    return made.permute(0, 1, *order).reshape(*x.shape[:2], *sides)
