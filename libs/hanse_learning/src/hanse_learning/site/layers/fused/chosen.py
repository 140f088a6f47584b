"""Whether a layer is computed by its fused form: on a CUDA device, where Triton is, and only after a trial.

The first time that a kind of window meets a kind of number on a device, both forms are given what was drawn to find
differences, and the fused form is used from then on only if outcome and gradients agree. It steps aside for
`torch.func` (each example's own gradient by `vmap`), for `torch.compile`, and for float64.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor

from hanse_learning.site.layers.statistics import UnitStatistics
from hanse_learning.site.layers.windows import Windows

Kind = Literal["convolution", "units"]

_log = logging.getLogger(__name__)
_CLOSE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far the forms may be from each other, beside the largest number of the plain form in float64."""
_LARGEST_BATCH = (1 << 16) - 1
"""Programs along one axis of a CUDA grid."""


def fused_form(kind: Kind, x: Tensor, windows: Windows) -> Any | None:
    """The fused form (an autograd function with the plain form's arguments), or None where the plain form is right."""
    if x.device.type != "cuda" or x.dtype not in _CLOSE or not 0 < len(x) <= _LARGEST_BATCH:
        return None
    if torch._C._are_functorch_transforms_active() or torch.compiler.is_compiling():
        return None
    return None if disagreement(kind, x.device, x.dtype, windows) else form_of(kind)


def form_of(kind: Kind) -> Any:
    """The fused form itself."""
    from hanse_learning.site.layers.fused import functions  # Triton is only where torch has a GPU

    return functions.FusedConvolution if kind == "convolution" else functions.FusedUnits


def plain_form(kind: Kind) -> Any:
    """What the fused form is held against."""
    from hanse_learning.site.layers import kernel_norm, kn_conv  # they ask here for the fused one

    return kn_conv.NormalizedConvolution.apply if kind == "convolution" else kernel_norm.units_side_by_side


@cache
def disagreement(kind: Kind, device: torch.device, dtype: torch.dtype, windows: Windows) -> str:
    """Why the fused form is not used for such windows; empty where it agrees with the plain one."""
    if find_spec("triton") is None:
        return "triton is not installed"
    try:
        why = _compared(kind, device, dtype, windows)
    except Exception as error:  # what a compiler or a driver raises has no common kind
        why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    if why:
        said = {"form": kind, "device": str(device), "dtype": str(dtype), "windows": str(windows), "reason": why}
        _log.warning("a fused layer is not used", extra=said)
    return why


def _compared(kind: Kind, device: torch.device, dtype: torch.dtype, windows: Windows) -> str:
    """Both forms of what is drawn, with a mask: the plain one in float64 on the processor. Empty, or what differs."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
        names, drawn, keep, units = _drawn(kind, dtype, windows)
        expected = _outcome(plain_form(kind), kind, drawn, keep, units, torch.device("cpu"), torch.float64)
        with torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False, allow_tf32=False):
            found = _outcome(form_of(kind).apply, kind, drawn, keep, units, device, dtype)
    for name, ours, theirs in zip(names, found, expected, strict=True):
        off = (ours.cpu().double() - theirs).abs().max() / theirs.abs().max()
        if not bool(off <= _CLOSE[dtype]):  # NaN is no agreement
            return f"{name} is {float(off):.1g} from the plain form's"
    return ""


def _drawn(kind: Kind, dtype: torch.dtype, windows: Windows) -> tuple[list[str], list[Tensor], Tensor, UnitStatistics]:
    """Names of what is compared, an input (and a weight and a bias), its mask, and how statistics are taken."""
    generator = torch.Generator().manual_seed(0)
    groups, channels = 2, 66  # more than one program has, and some left over
    least = [apart * (size - 1) + 1 for size, apart in zip(windows.kernel, windows.dilation, strict=True)]
    more = [1] * (len(least) - 1) + [70]
    space = [
        max(1, size + count * step - 2 * around)
        for size, count, step, around in zip(least, more, windows.stride, windows.padding, strict=True)
    ]
    shapes = {"x": [2, channels, *space]}
    if kind == "convolution":
        shapes |= {"weight": [channels, channels // groups, *windows.kernel], "bias": [channels]}
    drawn = [(torch.randn(shape, generator=generator) + 0.5).to(dtype) for shape in shapes.values()]
    keep = torch.rand(shapes["x"], generator=generator) >= 0.25
    names = ["the outcome", *(f"the gradient of {name}" for name in shapes)]
    return names, drawn, keep, UnitStatistics(windows, 1 / 0.75, 1e-3)


def _outcome(
    form: Any, kind: Kind, drawn: list[Tensor], keep: Tensor, units: UnitStatistics, device: torch.device,
    dtype: torch.dtype,
) -> list[Tensor]:  # fmt: skip
    """What a form makes, and the gradients of a weighted sum of that."""
    given = [each.to(device, dtype).requires_grad_() for each in drawn]
    x, *filters = given
    made = form(x, keep.to(device), *filters, units, *([2] if kind == "convolution" else []))
    out = made[0] if isinstance(made, tuple) else made
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape).to(device, dtype)
    return [out.detach(), *torch.autograd.grad(out, given, weights)]
