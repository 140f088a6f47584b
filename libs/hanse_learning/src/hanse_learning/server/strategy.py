"""A strategy: a reduction and a server optimizer, built from a job's `strategy` section and applied block by block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hanse_learning.server.config import (
    AdaptiveConfig,
    MedianConfig,
    NormClippingConfig,
    PrivateMeanConfig,
    SgdConfig,
    StrategyConfig,
    TrimmedMeanConfig,
    check_strategy,
)
from hanse_learning.server.norm_clipping import NormClipping
from hanse_learning.server.optimizers import Adaptive, Plain, ServerOptimizer, Sgd
from hanse_learning.server.order_statistics import Median, TrimmedMean
from hanse_learning.server.private_mean import PrivateMean
from hanse_learning.server.reduction import TILE, Array, Reduction, Rows, tiles, working_dtype
from hanse_learning.server.weighted_mean import WeightedMean


@dataclass(frozen=True, slots=True)
class Strategy:
    """How the parameters of a model change by K updates."""

    reduction: Reduction
    optimizer: ServerOptimizer

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
            weights: (K,) float64, summing to 1.
            round: from 1.
            at: offset of the columns in their file (bytes), for reductions that add noise.

        A float16 model is moved in float32 and rounded once.
        """
        wide = working_dtype(model.dtype)
        change = np.empty(min(TILE, len(model)), wide)
        for part in tiles(len(model)):
            block = model[part]
            moved = change[: len(block)]
            self.reduction.combine([row[part] for row in updates], weights, moved)
            if isinstance(self.reduction, PrivateMean):
                self.reduction.add_noise(moved, at + part.start * block.itemsize, len(updates))
            self.move(block, moved, {name: array[part] for name, array in state.items()}, round)

    def move(self, model: Array, change: Array, state: Mapping[str, Array], round: int) -> None:  # noqa: A002
        """Move `model` (n,) and the `state` arrays (n,), in place, by a `change` (n,) that is reduced already.

        `change` has the working dtype and may be overwritten. A float16 model is moved in float32 and rounded once.
        """
        wide = change.dtype
        kept = {name: array.astype(wide, copy=False) for name, array in state.items()}
        result = model.astype(wide, copy=False)
        self.optimizer.step(result, change, kept, round)
        if wide != model.dtype:
            model[...] = result
            for name, array in state.items():
                array[...] = kept[name]


def build_strategy(config: Mapping[str, Any]) -> Strategy:
    """The strategy that a job's `strategy` section describes; an empty section is federated averaging.

    Raises:
        HanseError: INVALID_INPUT naming each field, its value and what was expected.
    """
    checked = check_strategy(config)
    return Strategy(_reduction(checked), _optimizer(checked))


def _reduction(config: StrategyConfig) -> Reduction:
    match config.reduction:
        case MedianConfig():
            return Median()
        case TrimmedMeanConfig(fraction=fraction):
            return TrimmedMean(fraction)
        case NormClippingConfig(norm=norm):
            return NormClipping(norm)
        case PrivateMeanConfig(terms=terms, seed=seed, clip=clip):
            return PrivateMean.of(terms, seed, clip)
        case _:
            return WeightedMean()


def _optimizer(config: StrategyConfig) -> ServerOptimizer:
    match config.optimizer:
        case SgdConfig() as sgd:
            return Sgd(sgd.lr, sgd.momentum)
        case AdaptiveConfig() as adaptive:
            return Adaptive(adaptive.name, adaptive.lr, adaptive.beta1, adaptive.beta2, adaptive.tau)
        case _:
            return Plain()
