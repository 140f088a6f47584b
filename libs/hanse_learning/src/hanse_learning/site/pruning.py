"""Masks of a site's weights: which of them it keeps, and which it prunes next, by their magnitude."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from hanse_learning.site.session import Session

Masks = Mapping[str, Tensor]
"""By name, bools of the weight's shape: what is kept. On the processor."""
_OUTPUT = "output."
_WEIGHT = 2
"""Dimensions that a weight has at least; biases, and the scales of normalizations, have one."""


def prunable(session: Session, *, spare_output: bool = False) -> dict[str, nn.Parameter]:
    """The weights that masks are of: matrices and kernels among what travels; no biases, no normalization.

    Args:
        spare_output: leave the last layer whole.
    """
    return {
        name: parameter
        for name, parameter in session.shared().items()
        if parameter.dim() >= _WEIGHT and not (spare_output and name.startswith(_OUTPUT))
    }


def whole(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Masks that keep everything."""
    return {name: torch.ones(tuple(weight.shape), dtype=torch.bool) for name, weight in weights.items()}


def packed(masks: Masks) -> dict[str, np.ndarray]:
    """A bit for each weight, (ceil(n / 8),) bytes."""
    return {name: np.packbits(mask.numpy()) for name, mask in masks.items()}


def unpacked(bits: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Masks of `packed` bits."""
    return {
        name: torch.from_numpy(
            np.unpackbits(bits[name].cpu().numpy(), count=weight.numel()).view(np.bool_).reshape(tuple(weight.shape))
        )
        for name, weight in weights.items()
    }


def pruned(
    weights: Mapping[str, Tensor], masks: Masks, *, step: float, target: float, of: Literal["original", "remaining"]
) -> dict[str, Tensor]:
    """The masks after one step of pruning: in each weight those of least magnitude go, of equal ones the first.

    Args:
        step: share of each weight's elements that goes, one at least.
        target: share that is gone in the end; no step goes beyond it.
        of: whether `step` is of all elements or of those that are left.

    Each output (the first dimension) keeps its largest element, so that no neuron loses all of its inputs.
    """
    made = {}
    for name, weight in weights.items():
        mask = masks[name]
        total, left = mask.numel(), int(mask.sum())
        asked = max(1, round(step * (total if of == "original" else left)))
        room = int(target * total + 1e-9) - (total - left)
        made[name] = _without_smallest(weight, mask, min(asked, room)) if room > 0 else mask
    return made


def _without_smallest(weight: Tensor, mask: Tensor, count: int) -> Tensor:
    magnitudes = weight.detach().cpu().abs().double()
    magnitudes[~mask] = -1.0
    candidates = mask.clone().flatten(1)
    largest = magnitudes.flatten(1).argmax(dim=1, keepdim=True)
    candidates.scatter_(1, largest, torch.zeros_like(largest, dtype=torch.bool))
    places = torch.nonzero(candidates.flatten())[:, 0]
    order = torch.argsort(magnitudes.flatten()[places], stable=True)
    kept = mask.clone().flatten()
    kept[places[order[:count]]] = False
    return kept.reshape(mask.shape)


def share_pruned(masks: Masks) -> float:
    """Of all weights that masks are of, the share that is gone."""
    total = sum(mask.numel() for mask in masks.values())
    return 1.0 - sum(int(mask.sum()) for mask in masks.values()) / total if total else 0.0


def same(one: Masks, other: Masks) -> bool:
    """Whether they keep the same weights."""
    return all(torch.equal(mask, other[name]) for name, mask in one.items())


@torch.no_grad()
def zero_pruned(weights: Mapping[str, Tensor], masks: Masks) -> None:
    """Set what the masks do not keep to zero, in place."""
    for name, weight in weights.items():
        weight.mul_(masks[name].to(weight))
