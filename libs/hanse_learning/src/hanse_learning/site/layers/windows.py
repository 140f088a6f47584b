"""The windows that a kernel slides over, and sums within them, of one number for each position.

A window's mean and variance over all channels need two maps of one channel: the sums over channels of x and of x^2.
Window sums of these are a convolution with ones, so nothing is unfolded: beside the input, memory is that of two maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from hanse_fabric.errors import invalid

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Windows:
    """A kernel's size, its stride, the zeros around the input, and the dilation; a number for each axis."""

    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes

    @property
    def positions(self) -> int:
        """In one window."""
        return prod(self.kernel)

    def counts(self, space: Sizes) -> Sizes:
        """Windows along each axis of an input of size `space`.

        Raises:
            HanseError: INVALID_INPUT for a kernel that is larger than the padded input.
        """
        axes = zip(space, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        made = tuple((size + 2 * pad - apart * (k - 1) - 1) // step + 1 for size, k, step, pad, apart in axes)
        if min(made) < 1:
            expected = f"a kernel that fits into an input of {list(space)} with padding {list(self.padding)}"
            raise invalid("kernel", list(self.kernel), expected)
        return made

    def sums(self, maps: Tensor) -> Tensor:
        """Of maps (n, m, *space), within each window: (n, m, *windows)."""
        if self.positions == 1 and not any(self.padding):
            every = tuple(slice(None, None, step) for step in self.stride)
            return maps[(slice(None), slice(None), *every)]
        flat = maps.reshape(-1, 1, *maps.shape[2:])
        made = torch.convolution(
            flat, self._ones(maps), None, self.stride, self.padding, self.dilation, False, self._nothing, 1
        )
        return made.reshape(*maps.shape[:2], *made.shape[2:])

    def spread(self, values: Tensor, space: Sizes) -> Tensor:
        """To each position, the sum of the values (n, m, *windows) of the windows that it is in: (n, m, *space)."""
        axes = zip(space, values.shape[2:], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        rest = [
            size - ((count - 1) * step - 2 * pad + apart * (k - 1) + 1) for size, count, k, step, pad, apart in axes
        ]
        flat = values.reshape(-1, 1, *values.shape[2:])
        made = torch.convolution(
            flat, self._ones(values), None, self.stride, self.padding, self.dilation, True, rest, 1
        )
        return made.reshape(*values.shape[:2], *space)

    def _ones(self, like: Tensor) -> Tensor:
        return like.new_ones(1, 1, *self.kernel)

    @property
    def _nothing(self) -> Sizes:
        return (0,) * len(self.kernel)
