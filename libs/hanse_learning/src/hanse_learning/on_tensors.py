"""Strategies on torch tensors, on whatever device they lie: the same formulas, the same result to rounding.

What is measured is summed in float64 and comes back to the processor, where the weights are chosen by the same code as
for numpy arrays; columns are worked on in blocks, so that memory is that of K blocks beside what is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.server.bulyan import Bulyan
from hanse_learning.server.feddyn import FedDyn
from hanse_learning.server.gram import GRAM
from hanse_learning.server.norm_clipping import SQUARES, NormClipping
from hanse_learning.server.optimizers import Adaptive, Plain, ServerOptimizer, Sgd
from hanse_learning.server.order_statistics import Median, TrimmedMean, trimmed
from hanse_learning.server.qfedavg import QFedAvg
from hanse_learning.server.reduction import Array, Measured, Reduction
from hanse_learning.server.sign_mask import SignMask
from hanse_learning.server.strategy import Strategy

BLOCK_BYTES = 1 << 28
"""Of all K rows of a block, at most, in float64."""


class TorchTensors:
    """See `hanse_learning.in_memory.Backend`."""

    def kind(self, array: Tensor) -> str:
        return "f" if array.dtype in (torch.float16, torch.float32, torch.float64, torch.bfloat16) else "i"

    def flat(self, array: Tensor) -> Tensor:
        return array.detach().reshape(-1)

    def copy(self, array: Tensor) -> Tensor:
        return array.detach().clone(memory_format=torch.contiguous_format)

    def filled(self, like: Tensor, value: float) -> Tensor:
        return torch.full_like(like, value)

    def finite(self, array: Tensor) -> bool:
        return bool(torch.isfinite(array).all())

    def measure(self, reduction: Measured, rows: Sequence[Tensor]) -> list[Mapping[str, Array]]:
        """What is measured, block by block."""
        squares = isinstance(reduction, NormClipping | QFedAvg)
        found: list[Mapping[str, Array]] = []
        for part in _parts(rows):
            stack = torch.stack([row[part] for row in rows]).double()
            made = stack.square().sum(dim=1) if squares else stack @ stack.T
            found.append({SQUARES if squares else GRAM: made.cpu().numpy()})
        return found

    def apply(
        self,
        strategy: Strategy,
        model: Tensor,
        rows: Sequence[Tensor],
        weights: Array,
        state: Mapping[str, Tensor],
        round_: int,
    ) -> None:
        """See `Strategy.apply`."""
        wide = torch.float64 if model.dtype == torch.float64 else torch.float32
        kept = [k for k, weight in enumerate(weights.tolist()) if weight]
        factors = torch.tensor(weights[kept], dtype=wide, device=model.device)
        for part in _parts(rows):
            stack = torch.stack([rows[k][part] for k in kept] or [torch.zeros_like(model[part])]).to(wide)
            change = _combine(strategy.reduction, stack, factors)
            before = model[part].to(wide)
            own = {name: array[part].to(wide) for name, array in state.items()}
            after = _step(strategy.optimizer, before, change, own, round_)
            if strategy.mask is not None:
                mask = _mask(strategy.mask, stack)
                after = torch.where(mask < 1, before + mask * (after - before), after)
            model[part] = after.to(model.dtype)
            for name, array in state.items():
                array[part] = own[name].to(array.dtype)

    def buffer(self, rule: str, values: Sequence[Tensor], means: Sequence[Tensor], weights: Array, out: Tensor) -> None:
        """See `hanse_learning.server.buffers`."""
        stack = torch.stack([*values])
        factors = torch.tensor(weights, dtype=torch.float64, device=out.device)[:, None]
        if rule == "keep_newest":
            out.copy_(stack.amax(dim=0))
        elif rule == "average":
            out.copy_((stack.double() * factors).sum(dim=0))
        else:
            centers = torch.stack([*means]).double()
            center = (centers * factors).sum(dim=0)
            out.copy_(((stack.double() + (centers - center).square()) * factors).sum(dim=0))


def _parts(rows: Sequence[Tensor]) -> Iterator[slice]:
    size, step = rows[0].numel(), max(1, BLOCK_BYTES // (8 * len(rows)))
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def _combine(reduction: Reduction, stack: Tensor, factors: Tensor) -> Tensor:
    """(n,) of `stack` (K, n), the rows that have a weight, by `factors` (K,)."""
    match reduction:
        case Median() | TrimmedMean():
            trim = trimmed(reduction, len(stack))
            return stack.sort(dim=0).values[trim : len(stack) - trim].mean(dim=0)
        case Bulyan(byzantine=byzantine):
            return _mean_of_nearest(stack.sort(dim=0).values, max(1, len(stack) - 2 * byzantine))
        case _ if len(factors):
            return (stack * factors[:, None]).sum(dim=0)
        case _:
            return stack[0]


def _mean_of_nearest(rows: Tensor, beta: int) -> Tensor:
    """See `hanse_learning.server.bulyan`; `rows` (K, n) are sorted."""
    median = rows[(len(rows) - 1) // 2] * 0.5 + rows[len(rows) // 2] * 0.5
    kept = rows[:beta].clone()
    for low in range(len(rows) - beta):
        nearer = rows[low + beta] - median < median - rows[low]
        kept[low % beta] = torch.where(nearer, rows[low + beta], kept[low % beta])
    return kept.mean(dim=0)


def _mask(mask: SignMask, stack: Tensor) -> Tensor:
    """(n,) factors by the signs of `stack` (K, n)."""
    agreement = stack.sign().sum(dim=0).abs().double() / len(stack)
    return torch.where(agreement >= mask.tau, 1.0, agreement).to(stack.dtype)


def _step(optimizer: ServerOptimizer, model: Tensor, change: Tensor, state: dict[str, Tensor], round_: int) -> Tensor:
    """The model (n,) moved by `change` (n,); `state` is changed in place."""
    match optimizer:
        case Plain():
            return model + change
        case Sgd(lr=lr, momentum=momentum):
            if not momentum:
                return model + lr * change
            return model + lr * state["momentum"].mul_(momentum).add_(change)
        case FedDyn(share=share):
            return model + (change + state["correction"].add_(share * change))
        case Adaptive():
            first = state["momentum"].mul_(optimizer.decay).add_((1 - optimizer.decay) * change)
            square = change.square()
            second, fresh = state["second_moment"], 1 - optimizer.beta2
            if optimizer.kind == "adagrad":
                second.add_(square)
            elif optimizer.kind == "adam":
                second.mul_(optimizer.beta2).add_(fresh * square)
            else:
                second.sub_(fresh * square * torch.sign(second - square))
            return model + optimizer.rate(round_) * first / (second.sqrt() + optimizer.tau)
        case _:
            raise HanseError(ErrorCode.INTERNAL, f"{type(optimizer).__name__} is not made for tensors")
