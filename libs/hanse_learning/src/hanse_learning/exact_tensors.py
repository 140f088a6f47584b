"""The strategies' arithmetic on torch tensors, in numpy's order of operations: the bits are numpy's on any device.

Only operations of which IEEE 754 fixes the result are used (sums, products and quotients of two numbers, comparisons,
sorting), each by itself: nothing that a device may fuse, or add up in another order. Two things are not so: roots,
which some builds of torch round otherwise (adaptive server optimizers), and what is measured of whole updates (norms,
Gram matrices), which is not here. `hanse_learning.on_device` checks that a device gives these bits.

A reduction has a form here (`has_form`), and a server optimizer its steps (`has_step`), or not: what has none is
computed on the processor, by its own `combine` and `step`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import numpy as np
import torch
from torch import Tensor

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.server.bulyan import Bulyan
from hanse_learning.server.feddyn import FedDyn
from hanse_learning.server.fednova import FedNova
from hanse_learning.server.geometric_median import GeometricMedian
from hanse_learning.server.krum import Krum
from hanse_learning.server.look_ahead import LookAhead
from hanse_learning.server.norm_clipping import NormClipping
from hanse_learning.server.optimizers import Adaptive, Plain, ServerOptimizer, Sgd
from hanse_learning.server.order_statistics import Median, TrimmedMean, trimmed
from hanse_learning.server.overlap_mean import OverlapMean
from hanse_learning.server.qfedavg import QFedAvg
from hanse_learning.server.reduction import Array, Reduction
from hanse_learning.server.sign_mask import SignMask
from hanse_learning.server.strategy import Strategy
from hanse_learning.server.weighted_mean import WeightedMean


def model_after(
    strategy: Strategy, model: Tensor, rows: Sequence[Tensor], weights: Array, state: Mapping[str, Tensor], round_: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """What `Strategy.apply` makes of `model` (n,) and `state` (n,) by `rows` K x (n,); nothing is changed in place.

    Raises:
        HanseError: INTERNAL for a reduction that has no form here.
    """
    wide = working_type(model.dtype)
    change = combined(strategy.reduction, [row.to(wide) for row in rows], weights)
    before, kept = model.to(wide), {name: array.to(wide) for name, array in state.items()}
    after, kept = _stepped(strategy.optimizer, before, change, kept, round_)
    if strategy.mask is not None:
        voting = [row for row, weight in zip(rows, weights.tolist(), strict=True) if weight]
        mask = mask_of(strategy.mask, voting, wide)
        after = torch.where(mask < 1, before + (after - before) * mask, after)
    return after.to(model.dtype), {name: array.to(state[name].dtype) for name, array in kept.items()}


def working_type(dtype: torch.dtype) -> torch.dtype:
    """See `hanse_learning.server.reduction.working_dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _number(value: float, like: Tensor) -> Tensor:
    """A number rounded to the dtype of `like` before it is used, as numpy does."""
    return torch.tensor(value, dtype=like.dtype, device=like.device)


def has_form(reduction: Reduction) -> bool:
    """Whether `combined` can compute it."""
    return type(reduction) in _FORMS


def has_step(optimizer: ServerOptimizer) -> bool:
    """Whether a server optimizer has its steps here."""
    return isinstance(optimizer, Plain | Sgd | FedDyn | Adaptive | LookAhead)


def combined(reduction: Reduction, rows: list[Tensor], weights: Array) -> Tensor:
    """(n,) of `rows` K x (n,) of the working type, by `weights` (K,); see `Reduction.combine`.

    Raises:
        HanseError: INTERNAL for a reduction that has no form here.
    """
    if not has_form(reduction):
        raise HanseError(ErrorCode.INTERNAL, f"{type(reduction).__name__} has no form for tensors; see has_form")
    return _FORMS[type(reduction)](reduction, rows, weights)


def _middle(reduction: Median | TrimmedMean, rows: list[Tensor], weights: Array) -> Tensor:  # noqa: ARG001
    trim = trimmed(reduction, len(rows))
    return _mean_of([*_sorted(rows)[trim : len(rows) - trim]])


def _near_the_median(reduction: Bulyan, rows: list[Tensor], weights: Array) -> Tensor:
    chosen = [row for row, weight in zip(rows, weights.tolist(), strict=True) if weight]
    return _mean_of_nearest(_sorted(chosen), max(1, len(chosen) - 2 * reduction.byzantine))


def _weighted(reduction: Reduction, rows: list[Tensor], weights: Array) -> Tensor:  # noqa: ARG001
    """See `hanse_learning.server.weighted_mean`."""
    factors = torch.from_numpy(weights.copy()).to(rows[0])
    total: Tensor | None = None
    for row, factor, counts in zip(rows, factors, factors.tolist(), strict=True):
        if counts:
            total = row * factor if total is None else total.add_(row * factor)
    return torch.zeros_like(rows[0]) if total is None else total


def _overlapping(reduction: OverlapMean, rows: list[Tensor], weights: Array) -> Tensor:  # noqa: ARG001
    """See `hanse_learning.server.overlap_mean`."""
    factors = torch.from_numpy(weights.copy()).to(rows[0])
    total, share = torch.zeros_like(rows[0]), torch.zeros_like(rows[0])
    for row, factor, counts in zip(rows, factors, factors.tolist(), strict=True):
        if counts:
            total = total + row * factor
            share = share + (row != 0).to(row) * factor
    return total / (share + (share == 0).to(share))


def _sorted(rows: list[Tensor]) -> Tensor:
    """(K, n), each column from the smallest on; zeros have no sign."""
    return (torch.stack(rows) + _number(0.0, rows[0])).sort(dim=0).values


def _mean_of(rows: list[Tensor]) -> Tensor:
    """See `hanse_learning.server.order_statistics.mean_of`."""
    scale = _number(1 / len(rows), rows[0])
    total = rows[0] * scale
    for row in rows[1:]:
        total.add_(row * scale)
    return total


def _mean_of_nearest(rows: Tensor, beta: int) -> Tensor:
    """See `hanse_learning.server.bulyan`; `rows` (K, n) are sorted."""
    half = _number(0.5, rows)
    median = rows[(len(rows) - 1) // 2] * half + rows[len(rows) // 2] * half
    kept = [*rows[:beta]]
    for low in range(len(rows) - beta):
        nearer = rows[low + beta] - median < median - rows[low]
        kept[low % beta] = torch.where(nearer, rows[low + beta], kept[low % beta])
    return _mean_of(kept)


def mask_of(mask: SignMask, rows: Sequence[Tensor], wide: torch.dtype) -> Tensor:
    """See `hanse_learning.server.sign_mask.SignMask.of`."""
    agreement = np.arange(len(rows) + 1) / len(rows)
    factors = torch.from_numpy(np.where(agreement >= mask.tau, 1.0, agreement)).to(rows[0].device, wide)
    votes = torch.zeros(rows[0].shape, dtype=torch.int64, device=rows[0].device)
    for row in rows:
        votes += (row > 0).long() - (row < 0).long()
    return factors[votes.abs()]


def _stepped(
    optimizer: ServerOptimizer, model: Tensor, change: Tensor, state: dict[str, Tensor], round_: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """See `hanse_learning.server.optimizers`: the new model (n,) and state."""
    match optimizer:
        case Plain():
            return model + change, state
        case Sgd(decay=decay) if decay:
            return _stepped(
                Sgd(optimizer.lr, optimizer.momentum), model, change - model * _number(decay, change), state, round_
            )
        case Sgd(lr=lr, momentum=momentum) if momentum:
            kept = state["momentum"] * _number(momentum, change) + change
            return model + kept * _number(lr, change), {"momentum": kept}
        case Sgd(lr=lr):
            return model + change * _number(lr, change), state
        case FedDyn(share=share):
            correction = state["correction"] + change * _number(share, change)
            return model + (change + correction), {"correction": correction}
        case LookAhead(jump_start=True) if round_ == 1:
            return model + change, state
        case LookAhead():
            return _stepped(optimizer.later, model, change, state, round_)
        case Adaptive():
            return _adapted(optimizer, model, change, state, round_)
        case _:
            raise HanseError(ErrorCode.INTERNAL, f"{type(optimizer).__name__} is not made for tensors")


def _adapted(
    optimizer: Adaptive, model: Tensor, change: Tensor, state: dict[str, Tensor], round_: int
) -> tuple[Tensor, dict[str, Tensor]]:
    decay, fresh = _number(optimizer.decay, change), _number(1 - optimizer.decay, change)
    first = state["momentum"] * decay + change * fresh
    square, second = change * change, state["second_moment"]
    share = _number(1 - optimizer.beta2, change)
    match optimizer.kind:
        case "adagrad":
            second = second + square
        case "adam":
            second = second * _number(optimizer.beta2, change) + square * share
        case "yogi":
            second = second - (square * share) * torch.sign(second - square)
        case unknown:
            assert_never(unknown)
    way = first / (second.sqrt() + _number(optimizer.tau, change)) * _number(optimizer.rate(round_), change)
    return model + way, {"momentum": first, "second_moment": second}


_FORMS: Mapping[type, Callable[[Any, list[Tensor], Array], Tensor]] = {
    WeightedMean: _weighted,
    GeometricMedian: _weighted,
    Krum: _weighted,
    NormClipping: _weighted,
    FedNova: _weighted,
    QFedAvg: _weighted,
    OverlapMean: _overlapping,
    Median: _middle,
    TrimmedMean: _middle,
    Bulyan: _near_the_median,
}
"""By the exact type: a subclass may combine otherwise. `PrivateMean` is not here: its noise is the processor's."""
