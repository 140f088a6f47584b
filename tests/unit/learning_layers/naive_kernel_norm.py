"""KernelNorm and KNConv as they are defined: every unit is cut out, normalized and put beside the others.

Slow, and of the memory of all units: what the layers of `hanse_learning.site.layers` are held to.
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import pad

from hanse_learning.site.layers.windows import Windows


def normalized_units(x: Tensor, windows: Windows, keep: Tensor | None, scale: float, eps: float) -> Tensor:
    """The units (n, windows, c, *kernel) of x (n, c, *space), in the order of their places."""
    around = [side for size in reversed(windows.padding) for side in (size, size)]
    dropped = pad(x if keep is None else x * keep * scale, around)
    x = pad(x, around)
    units = []
    for place in product(*(range(count) for count in windows_along(x, windows))):
        box = tuple(
            slice(at * step, at * step + apart * (size - 1) + 1, apart)
            for at, step, apart, size in zip(place, windows.stride, windows.dilation, windows.kernel, strict=True)
        )
        unit, seen = x[(..., *box)], dropped[(..., *box)].flatten(1)
        mean = seen.mean(1)
        variance = (seen - mean[:, None]).square().mean(1)
        shape = (-1, *(1,) * (x.dim() - 1))
        units.append((unit - mean.reshape(shape)) / torch.sqrt(variance + eps).reshape(shape))
    return torch.stack(units, dim=1)


def kernel_norm(x: Tensor, windows: Windows, keep: Tensor | None, scale: float, eps: float) -> Tensor:
    """The units side by side: (n, c, *(windows * kernel))."""
    units = normalized_units(x, windows, keep, scale, eps)
    counts = windows.counts(tuple(x.shape[2:]))
    out = x.new_zeros(*x.shape[:2], *(count * size for count, size in zip(counts, windows.kernel, strict=True)))
    for number, place in enumerate(product(*map(range, counts))):
        box = tuple(slice(at * size, (at + 1) * size) for at, size in zip(place, windows.kernel, strict=True))
        out[(..., *box)] = units[:, number]
    return out


def kn_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, windows: Windows, groups: int, keep: Tensor | None, scale: float,
    eps: float,
) -> Tensor:  # fmt: skip
    """Each normalized unit times each filter: (n, channels, *windows)."""
    units = normalized_units(x, windows, keep, scale, eps)  # (n, windows, c, *kernel)
    n, places, each = len(x), units.shape[1], len(weight) // groups
    parts = units.reshape(n, places, groups, -1)
    filters = weight.reshape(groups, each, -1)
    out = torch.einsum("nwgk,gek->ngew", parts, filters).reshape(n, len(weight), places)
    out = out if bias is None else out + bias[:, None]
    return out.reshape(n, len(weight), *windows.counts(tuple(x.shape[2:])))


def windows_along(padded: Tensor, windows: Windows) -> list[int]:
    sizes = zip(padded.shape[2:], windows.kernel, windows.stride, windows.dilation, strict=True)
    return [(size - apart * (kernel - 1) - 1) // step + 1 for size, kernel, step, apart in sizes]
