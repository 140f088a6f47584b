"""A strategy: a reduction and a server optimizer, built from a job's `strategy` section and applied block by block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from hanse_fabric.errors import invalid
from hanse_fabric.plugin_methods import require_nothing
from hanse_learning.server.config import OptimizerConfig, ReductionConfig, check_strategy
from hanse_learning.server.optimizers import ServerOptimizer
from hanse_learning.server.private_mean import PrivateMean
from hanse_learning.server.reduction import TILE, Array, Reduction, Rows, combined_by_plugin, tiles, working_dtype
from hanse_learning.server.sign_mask import SignMask, damp


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the parameters of a model change by K updates.

    Attributes:
        mask: of what the optimizer makes of the change, by the signs of the updates that have a weight.
        name: of the reduction, in jobs.
        least: how many updates it takes.
        foreign: whether reduction and optimizer are of a package, or a notebook: they are watched at their work.
    """

    reduction: Reduction
    optimizer: ServerOptimizer
    mask: SignMask | None = None
    name: str = "weighted_mean"
    least: int = 1
    foreign: tuple[bool, bool] = (False, False)

    def apply(
        self,
        model: Array,
        updates: Rows,
        weights: Array,
        state: Mapping[str, Array],
        round: int,  # noqa: A002
        at: int = 0,
    ) -> None:
        """Move `model` (n,) and the optimizer's `state` arrays (n,), in place, by `updates` K x (n,).

        Args:
            weights: (K,) float64, summing to 1, or what the reduction made of them.
            round: from 1.
            at: offset of the columns in their file (bytes), for reductions that add noise.

        A float16 model is moved in float32 and rounded once.
        """
        wide = working_dtype(model.dtype)
        change = np.empty(min(TILE, len(model)), wide)
        for part in tiles(len(model)):
            block = model[part]
            moved = change[: len(block)]
            rows = [row[part] for row in updates]
            if self.foreign[0]:
                combined_by_plugin(f"strategy {self.name}", self.reduction, rows, weights, moved)
            else:
                self.reduction.combine(rows, weights, moved)
            if isinstance(self.reduction, PrivateMean):
                self.reduction.add_noise(moved, at + part.start * block.itemsize, len(updates), block.itemsize)
            mask = None
            if self.mask is not None:
                mask = self.mask.of([row for row, weight in zip(rows, weights, strict=True) if weight], wide)
            self.move(block, moved, {name: array[part] for name, array in state.items()}, round, mask)

    def move(
        self,
        model: Array,
        change: Array,
        state: Mapping[str, Array],
        round: int,  # noqa: A002
        mask: Array | None = None,
    ) -> None:
        """Move `model` (n,) and the `state` arrays (n,), in place, by a `change` (n,) that is reduced already.

        `change` has the working dtype and may be overwritten; `mask` (n,) too, where the model moves by a part only.
        A float16 model is moved in float32 and rounded once.
        """
        wide = change.dtype
        kept = {name: array.astype(wide, copy=False) for name, array in state.items()}
        result = model.astype(wide, copy=False)
        before = None if mask is None else result.copy()
        returned: object = cast(Any, self.optimizer).step(result, change, kept, round)
        if self.foreign[1]:
            require_nothing(f"server optimizer {type(self.optimizer).__name__}: step", returned, "model")
        if mask is not None and before is not None:
            damp(before, result, mask)
        if wide != model.dtype:
            model[...] = result
            for name, array in state.items():
                array[...] = kept[name]


def build_strategy(config: Mapping[str, Any] | ReductionConfig | OptimizerConfig) -> Strategy:
    """The strategy that a job's `strategy` section describes; an empty section is federated averaging.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    checked = check_strategy(config)
    mask = None if checked.sign_mask is None else SignMask(checked.sign_mask.tau)
    reduction = checked.reduction
    built, optimizer = reduction.build(), checked.optimizer.build()
    foreign = not _ours(built), not _ours(optimizer)
    return Strategy(built, optimizer, mask, reduction.name, reduction.least(), foreign)


def _ours(built: object) -> bool:
    return type(built).__module__.startswith(f"{__package__}.")


def check_enough(strategy: Strategy, count: int) -> None:
    """Raises HanseError INVALID_INPUT for fewer updates than the strategy takes."""
    if count < strategy.least:
        raise invalid("updates", count, f"{strategy.least} or more, which {strategy.name} takes")
