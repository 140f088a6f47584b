"""Gradients of single examples that are never multiplied out.

What a linear layer's weight has of one example is a product, G^T A: A (positions, inputs) is what came in at each
position, G (positions, outputs) the gradient of what went out. Of a convolution, A holds what lies under the kernel at
each position. The norm of a product needs but the factors (Goodfellow 2015; of convolutions, Bu et al. 2022):

    |G^T A|^2 = sum over positions s, t of (A A^T)_st (G G^T)_st,

and a sum of products, each scaled, is one product of all examples' factors side by side. So the gradients of a layer
with many weights and few positions, which would be written and read again several times, are never there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_DOUBLE = 2.0**-52
LONGEST = 2.0**60
"""Of factors, and of gradients."""
_CANCELS = 2.0**-7
"""A gradient's norm counts as this part, at least, of the sizes of the products that it is the sum of: so no clipped
gradient has terms so large that their rounding counts. In networks with and without normalization it is a tenth of
them or more."""
_WORTH = 32
"""Products of positions that cost as much as to write a number of a weight's gradient, and to read it twice."""
_CACHED, _ON_DEVICE = 1 << 17, 1 << 21


@dataclass(frozen=True, slots=True)
class Factors:
    """The gradients of k examples by one weight.

    Attributes:
        inputs: (k, positions, a).
        outputs: (k, positions, b).
        shape: of the weight, whose first axis is b.
        last: whether the channels are the last axis of a (after the kernel's), not the first.
    """

    inputs: Tensor
    outputs: Tensor
    shape: torch.Size
    last: bool = False

    def __len__(self) -> int:
        return len(self.inputs)

    def multiplied(self) -> Tensor:
        """The gradients themselves: (k, *shape)."""
        return self._weight(self.outputs.transpose(1, 2) @ self.inputs)

    def norms(self) -> Tensor:
        """Upper bounds of the gradients' L2 norms: (k,) float64. Infinite where a factor is longer than 2^60, or no
        number.

        All products are made in double precision, for what they add up to may cancel; the bound has room for rounding.
        """
        return torch.cat([_norms(inputs, outputs) for inputs, outputs in self._parts()])

    def summed(self, scales: Tensor) -> Tensor:
        """The sum of the gradients, each times its scale: (shape.numel(),) float64. Examples of scale zero are left
        out, whatever they hold."""
        made = self.inputs.new_zeros(self.outputs.shape[2], self.inputs.shape[2], dtype=torch.float64)
        start = 0
        for inputs, outputs in self._parts(16):
            own = scales[start : start + len(inputs)]
            start += len(inputs)
            if not bool(own.all()):  # not a number times zero is none
                inputs, outputs, own = inputs[own != 0], outputs[own != 0], own[own != 0]
            scaled = outputs.double() * own[:, None, None]
            made.addmm_(scaled.flatten(0, 1).T, inputs.double().flatten(0, 1))
        return self._weight(made[None]).flatten()

    def _parts(self, times: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Some examples after the other."""
        at_once = max(1, times * numbers_at_once(self.inputs.device) // self.inputs[0].numel())
        return zip(torch.split(self.inputs, at_once), torch.split(self.outputs, at_once), strict=True)

    def _weight(self, made: Tensor) -> Tensor:
        """(k, b, a) -> (k, *shape)."""
        if not self.last:
            return made.reshape(-1, *self.shape)
        return made.reshape(-1, self.shape[0], *self.shape[2:], self.shape[1]).movedim(-1, 2).contiguous()


def numbers_at_once(device: torch.device) -> int:
    """How many numbers are made double at once: they stay in a processor's cache, or keep another device busy."""
    return _CACHED if device.type == "cpu" else _ON_DEVICE


def worth_factors(layer: Any, x: Tensor, out: Tensor, copies: int = 1) -> int:
    """How many numbers the factors of one example have, for a layer whose weight's gradient is better not multiplied
    out; 0 for any other layer, and where the weight is not trained.

    Args:
        x, out: the layer's input and output.
    """
    if isinstance(layer, nn.GroupNorm) or not layer.weight.requires_grad:
        return 0
    if isinstance(layer, nn.Linear):
        positions, kernel = x[0].numel() // x.shape[-1] * copies, layer.in_features
    else:
        positions, kernel = out[0, 0].numel() * copies, layer.weight[0].numel()
    outputs = layer.weight.shape[0]
    few = getattr(layer, "groups", 1) == 1 and positions**2 * (kernel + outputs) <= _WORTH * kernel * outputs
    return positions * (kernel + outputs) if few else 0


def factors_of(layer: Any, x: Tensor, statistics: tuple[Tensor, ...], of_out: Tensor, copies: int) -> Factors:
    """Of a linear layer or a convolution without groups.

    Args:
        x: its input (k copies, ...).
        statistics: of kernel-normalized units: means, and 1 / standard deviations.
        of_out: the gradient of its output.
    """
    if isinstance(layer, nn.Linear):
        apart = [part.reshape(len(part) // copies, -1, part.shape[-1]) for part in (x, of_out)]
        return Factors(apart[0], apart[1], layer.weight.shape)
    inputs = _under_kernel(layer, x)
    if statistics:  # out = (x * Z - mean sum(Z)) inverse + b
        mean, inverse = statistics
        inputs -= mean.flatten(1)[..., None]
        of_out = of_out * inverse
    outputs = of_out.flatten(2).transpose(1, 2)
    together = [part.reshape(len(x) // copies, -1, part.shape[-1]) for part in (inputs, outputs)]
    return Factors(together[0], together[1], layer.weight.shape, last=True)


def _under_kernel(layer: Any, x: Tensor) -> Tensor:
    """What lies under the kernel at each position, zeros around the input: (n, positions, *kernel times channels).

    The channels of a pixel lie together, so that whole runs of numbers are copied.
    """
    padded = nn.functional.pad(x, [side for size in reversed(layer.padding) for side in (size, size)])
    padded = padded.movedim(1, -1).contiguous()
    axes = list(zip(layer.kernel_size, layer.stride, layer.dilation, padded.shape[1:], strict=False))
    counts = [(size - apart * (kernel - 1) - 1) // step + 1 for kernel, step, apart, size in axes]
    one, *along, channel = padded.stride()
    views = padded.as_strided(
        (len(x), *counts, *layer.kernel_size, x.shape[1]),
        (
            one, *(step * each for (_, step, _, _), each in zip(axes, along, strict=True)),
            *(apart * each for (_, _, apart, _), each in zip(axes, along, strict=True)), channel,
        ),
    )  # fmt: skip
    made = views.reshape(len(x), math.prod(counts), -1)
    return made.clone() if made.data_ptr() == padded.data_ptr() else made


def _norms(inputs: Tensor, outputs: Tensor) -> Tensor:
    """See `Factors.norms`."""
    positions, numbers = inputs.shape[1], inputs.shape[2] + outputs.shape[2]
    ours, theirs = (part @ part.transpose(1, 2) for part in (inputs.double(), outputs.double()))
    of_inputs, of_outputs = (part.diagonal(dim1=1, dim2=2) for part in (ours, theirs))
    sizes = (of_inputs * of_outputs).sqrt().sum(1)
    squares = (ours * theirs).sum((1, 2)).clamp_min(0.0) + (numbers + positions**2) * _DOUBLE * sizes.square()
    norms = torch.maximum(squares.sqrt(), _CANCELS * sizes)
    short = (of_inputs.sum(1) <= LONGEST**2) & (of_outputs.sum(1) <= LONGEST**2)
    return torch.where(short, norms, math.inf)
