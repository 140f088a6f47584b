"""Which values of a unit count for its statistics: a mask, drawn anew in each forward pass of training."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid

_LEVELS = 1 << 16


class UnitDropout(nn.Module):
    """Each value is left out of the statistics with probability `p`, and the others count 1/(1-p) times as much.

    Only the statistics see it; what is normalized is the input as it is. In evaluation nothing is left out. A value
    has one mask, whichever of the overlapping windows it is seen in. `p` is rounded to 2^-16, for four draws in one.

    Raises:
        HanseError: INVALID_INPUT for a probability outside of [0, 1), or one that rounds to 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not (math.isfinite(p) and 0 <= p <= 1 - 1 / _LEVELS):
            raise invalid("dropout", p, "a probability of 0 or more and below 1")
        self._dropped = round(p * _LEVELS)
        self.p = self._dropped / _LEVELS

    @property
    def scale(self) -> float:
        """What the values that are left count; 1 in evaluation."""
        return 1 / (1 - self.p) if self.training else 1.0

    def forward(self, x: Tensor) -> Tensor | None:
        """The mask of x: a bool (*shape of x), or None where nothing is left out."""
        if not self.training or not self._dropped:
            return None
        words = torch.randint(-(1 << 63), (1 << 63) - 1, (-(-x.numel() // 4),), device=x.device)
        levels = words.view(torch.int16)[: x.numel()].reshape(x.shape)
        return levels >= self._dropped - _LEVELS // 2

    def extra_repr(self) -> str:
        return f"p={self.p:g}"
