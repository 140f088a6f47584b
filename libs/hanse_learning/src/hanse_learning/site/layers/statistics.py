"""Mean and variance of units: all channels of one window (Nasirigerdeh et al., 2024, section 2).

Sums over channels are made in double precision, for the variance is a difference, E[u^2] - E[u]^2: it keeps the digits
of a float32 input as long as the mean is less than about 10^3 standard deviations.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from hanse_fabric.errors import invalid
from hanse_learning.site.layers.windows import Windows


@dataclass(frozen=True, slots=True)
class UnitStatistics:
    """How a layer takes its units' statistics.

    Attributes:
        scale: what the values that the mask leaves are multiplied by.
        epsilon: added to the variance.
    """

    windows: Windows
    scale: float
    epsilon: float

    def of(self, x: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Mean and 1 / standard deviation of each unit of x (n, c, *space), (n, 1, *windows) each, in x's dtype.

        Args:
            keep: the values that count, a bool of x's shape; None for all.
        """
        size = x.shape[1] * self.windows.positions
        sums = torch.stack([_sums(one) for one in masked(x, keep)])  # (n, 2, *space)
        first, second = (self.windows.sums(sums) / size).unbind(1)
        mean = first * self.scale
        variance = torch.clamp(second * self.scale**2 - mean.square(), min=0)
        return mean.unsqueeze(1).to(x.dtype), torch.rsqrt(variance + self.epsilon).unsqueeze(1).to(x.dtype)

    def gradient(
        self, x: Tensor, mean: Tensor, inverse: Tensor, of_mean: Tensor, of_inverse: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What the statistics add to the gradient of the values that count, a + x b, with a and b (n, 1, *space).

        Args:
            of_mean, of_inverse: gradients with respect to `mean` and `inverse`, (n, 1, *windows).
        """
        size = x.shape[1] * self.windows.positions
        of_variance = -0.5 * inverse.pow(3) * of_inverse
        of_first = (of_mean - 2 * mean * of_variance) * (self.scale / size)
        of_second = of_variance * (2 * self.scale**2 / size)
        spread = self.windows.spread(torch.cat([of_first, of_second], dim=1), tuple(x.shape[2:]))
        return spread[:, :1], spread[:, 1:]


def masked(x: Tensor, keep: Tensor | None) -> list[Tensor]:
    """One example after the other, (c, *space) each, without what the mask leaves out."""
    if keep is None:
        return list(x)
    return [one * as_numbers(counts, x.dtype) for one, counts in zip(x, keep, strict=True)]


def as_numbers(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """Zeros and ones of a mask. The way through bytes is the faster one; `torch.compile` (2.11) does not know it."""
    return keep.to(dtype) if torch.compiler.is_compiling() else keep.view(torch.uint8).to(dtype)


def check_epsilon(epsilon: float) -> float:
    """It, if it is what keeps a constant unit from division by zero.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if not (isfinite(epsilon) and epsilon > 0):
        raise invalid("eps", epsilon, "a number above 0: it is all that a constant unit is divided by")
    return epsilon


def _sums(one: Tensor) -> Tensor:
    """Over channels, of (c, *space) and of its squares: (2, *space) float64."""
    exact = one.double()
    return torch.stack([exact.sum(0), (exact * exact).sum(0)])
