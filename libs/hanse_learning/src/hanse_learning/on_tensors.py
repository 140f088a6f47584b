"""Strategies on torch tensors, on whatever device they lie: numpy's result, to the bit for most.

Two things are not to the bit: adaptive server optimizers (`exact_tensors`), and what is measured. That is summed in
float64, in the device's order, and comes back to the processor, where the weights are chosen by the same code as for
numpy arrays. What has no form for tensors is computed on the processor, by numpy. Columns are worked on in blocks, so
that memory is that of K blocks beside what is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from hanse_fabric.errors import invalid
from hanse_learning.exact_tensors import has_form, has_step, model_after, working_type
from hanse_learning.server.bulyan import Bulyan
from hanse_learning.server.geometric_median import GeometricMedian
from hanse_learning.server.gram import GRAM
from hanse_learning.server.krum import Krum
from hanse_learning.server.norm_clipping import SQUARES, NormClipping
from hanse_learning.server.qfedavg import QFedAvg
from hanse_learning.server.reduction import Array, Measured, measured
from hanse_learning.server.strategy import Strategy

BLOCK_BYTES = 1 << 28
"""Of all K rows of a block, at most, in float64."""


class TorchTensors:
    """See `hanse_learning.in_memory.Backend`."""

    def kind(self, array: Tensor) -> str:
        if array.dtype in (torch.float16, torch.float32, torch.float64, torch.bfloat16):
            return "f"
        return "" if array.is_floating_point() or array.is_complex() else "i"

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
        form = _MEASURES.get(type(reduction))
        found: list[Mapping[str, Array]] = []
        for part in _parts(rows):
            if form is None:
                found.append(measured(reduction, [_array(row[part]) for row in rows]))
            else:
                name, measure = form
                found.append({name: measure(torch.stack([row[part] for row in rows]).double()).cpu().numpy()})
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
        """See `Strategy.apply`; the bits are those of numpy, but for roots (see `exact_tensors`)."""
        if not (has_form(strategy.reduction) and has_step(strategy.optimizer)):
            _apply_on_processor(strategy, model, rows, weights, state, round_)
            return
        for part in _parts(rows):
            own = {name: array[part] for name, array in state.items()}
            after, kept = model_after(strategy, model[part], [row[part] for row in rows], weights, own, round_)
            model[part] = after
            for name, array in kept.items():
                state[name][part] = array

    def buffer(self, rule: str, values: Sequence[Tensor], means: Sequence[Tensor], weights: Array, out: Tensor) -> None:
        """See `hanse_learning.server.buffers`."""
        stack = torch.stack([*values])
        factors = torch.tensor(weights, dtype=torch.float64, device=out.device)[:, None]
        if rule == "keep_newest":
            out.copy_(stack.amax(dim=0))
        elif rule == "average":
            out.copy_((stack.double() * factors).sum(dim=0))
        elif rule == "pool_variance":
            centers = torch.stack([*means]).double()
            center = (centers * factors).sum(dim=0)
            out.copy_(((stack.double() + (centers - center).square()) * factors).sum(dim=0))
        else:
            raise invalid("buffers", rule, "average, keep_newest or pool_variance")


def _apply_on_processor(
    strategy: Strategy, model: Tensor, rows: Sequence[Tensor], weights: Array, state: Mapping[str, Tensor], round_: int
) -> None:
    for part in _parts(rows):
        block, own = _array(model[part]), {name: _array(array[part]) for name, array in state.items()}
        strategy.apply(block, [_array(row[part]) for row in rows], weights, own, round_)
        model[part] = torch.from_numpy(block).to(model)
        for name, array in own.items():
            state[name][part] = torch.from_numpy(array).to(state[name])


def _array(tensor: Tensor) -> Array:
    """A copy on the processor, of the working type."""
    return tensor.to("cpu", working_type(tensor.dtype), copy=True).numpy()


def _squares(stack: Tensor) -> Tensor:
    return stack.square().sum(dim=1)


def _inner_products(stack: Tensor) -> Tensor:
    return stack @ stack.T


_MEASURES: Mapping[type, tuple[str, Callable[[Tensor], Tensor]]] = {
    NormClipping: (SQUARES, _squares),
    QFedAvg: (SQUARES, _squares),
    Krum: (GRAM, _inner_products),
    Bulyan: (GRAM, _inner_products),
    GeometricMedian: (GRAM, _inner_products),
}
"""What is measured of (K, n) float64, by the exact type; what is not here is measured on the processor."""


def _parts(rows: Sequence[Tensor]) -> Iterator[slice]:
    size, step = rows[0].numel(), max(1, BLOCK_BYTES // (8 * len(rows)))
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))
