"""Evaluation of a module on a site's test examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.tensors.words import pack_words
from hanse_learning.metrics import confusion, matthews
from hanse_learning.pooled.count import counts_of
from hanse_learning.pooled.layout import Counts
from hanse_learning.pooled.noisy import chosen_rows
from hanse_learning.site.devices import device_of
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.losses import class_logits, tensors
from hanse_learning.site.training import make_repeatable

_BATCH = 1024


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Metrics of a site's test examples, and what was counted of them (`hanse_fabric.tensors.words`)."""

    metrics: dict[str, float]
    counted: str = ""


def evaluate(
    module: nn.Module, data: Examples, problem: Problem, *, cut: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Metrics: `loss`, `accuracy` and `matthews` for classification; `loss`, `mse` and `r2` for regression.

    `r2` is left out where the targets do not vary.

    Args:
        cut: what each example's value is cut to, by name; then only means of such values are made, as shares of the
            bound from 0 to 1. None: nothing is cut.

    Raises:
        HanseError: INVALID_INPUT without examples; TRAINING_FAILED where the model gives no finite loss.
    """
    return evaluated(module, data, problem, cut=cut).metrics


def evaluated(
    module: nn.Module, data: Examples, problem: Problem, *, cut: Mapping[str, float] | None = None,
    counts: Counts | None = None, groups: NDArray[np.int64] | None = None,
) -> Evaluated:  # fmt: skip
    """As `evaluate`, with what is counted for metrics of all sites' examples.

    Args:
        counts: None, or what to count; where values are cut, only counts that are to have noise as well.
        groups: (n,) of the examples, where these are counted by groups.

    Raises:
        HanseError: INVALID_INPUT where the model has other classes than are to be counted.
    """
    if not len(data):
        raise invalid("data", "no examples", "at least one test example")
    make_repeatable(0, device_of(module))
    module.eval()
    x, y = tensors(data, problem, module)
    with torch.no_grad():
        outputs = torch.cat([module(batch) for batch in torch.split(x, _BATCH)])  # (n, k)
    if cut is not None:
        noisy = counts if counts is not None and counts.scale is not None else None
        counted = "" if noisy is None else _counted(noisy, outputs, y, problem, groups, data.whose)
        return Evaluated(_shares(_each(outputs, y, problem), cut) if cut else {}, counted)
    counted = "" if counts is None else _counted(counts, outputs, y, problem, groups)
    if problem.task == "classification":
        outputs = class_logits(outputs)
        loss = float(nn.functional.cross_entropy(outputs, y))
        said = outputs.argmax(dim=1)
        table = confusion(y.cpu().numpy(), said.cpu().numpy(), outputs.shape[1])
        metrics = {"loss": loss, "accuracy": float((said == y).double().mean()), "matthews": matthews(table)}
    else:
        squared = (outputs - y).double().square()
        loss = float(squared.mean())
        metrics = {"loss": loss, "mse": loss}
        spread = float((y.double() - y.double().mean(dim=0)).square().mean())
        if spread > 0:
            metrics["r2"] = 1.0 - loss / spread
    if not math.isfinite(loss):
        raise HanseError(
            ErrorCode.TRAINING_FAILED,
            f"evaluation: the model's loss on the test examples is {loss}",
            hint="lower train.optimizer.lr, or scale the features",
        )
    return Evaluated(metrics, counted)


def _counted(
    counts: Counts, outputs: torch.Tensor, y: torch.Tensor, problem: Problem, groups: NDArray[np.int64] | None,
    whose: NDArray[np.int64] | None = None,
) -> str:  # fmt: skip
    """What is counted of outputs (n, k), in double precision."""
    if whose is not None:
        rows = chosen_rows(whose, counts.rows)
        outputs, y, groups = outputs[rows], y[rows], None if groups is None else groups[rows]
    if problem.task == "classification":
        outputs = class_logits(outputs)
    has = outputs.shape[1] if problem.task == "classification" else 0
    if has != counts.classes:
        raise invalid("evaluate.classes", counts.classes, f"{has}, which this model has")
    return pack_words(counts_of(counts, outputs.double().cpu().numpy(), y.cpu().numpy(), groups))


def _each(outputs: torch.Tensor, y: torch.Tensor, problem: Problem) -> dict[str, torch.Tensor]:
    """The metrics that are means over examples, of each example: (n,)."""
    if problem.task == "classification":
        outputs = class_logits(outputs)
        loss = nn.functional.cross_entropy(outputs, y, reduction="none")
        return {"loss": loss, "accuracy": (outputs.argmax(dim=1) == y).double()}
    squared = (outputs - y).double().square().reshape(len(y), -1).mean(dim=1)
    return {"loss": squared, "mse": squared}


def _shares(values: Mapping[str, torch.Tensor], cut: Mapping[str, float]) -> dict[str, float]:
    """Means of values over their bound, which are cut to 0..1 before; one that is no number counts as 1.

    A mean that is then a part of a small bound would be rounded to a multiple of the least number that there is.
    """
    return {
        name: float((each.double() / cut[name]).nan_to_num(nan=1.0).clamp(0.0, 1.0).mean())
        for name, each in values.items()
        if name in cut
    }
