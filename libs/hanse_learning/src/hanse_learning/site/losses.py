"""Losses of a batch, as means over its examples, and the tensors that they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from hanse_fabric.errors import invalid, unfit
from hanse_learning.config import FocalConfig, HuberConfig, TrainConfig
from hanse_learning.config.training import OF_VALUES
from hanse_learning.site.examples import Examples, Problem

LossOf = Callable[[Tensor, Tensor], Tensor]
"""(outputs (n, k), targets as `tensors` makes them) -> scalar: a mean over the examples."""
Reduction = Literal["mean", "none"]


def loss_function(problem: Problem, config: TrainConfig) -> LossOf:
    """Mean cross-entropy (binary: of one logit), focal loss, squared error or Huber's loss.

    With class weights w the mean over n examples is that of w[y] times each one's loss: divided by n, not by the sum of
    weights, so that the mean of sites' losses by their examples is the pooled data's. Likewise with weights of examples
    (`sample_weights`), which are the targets' last column then.

    Raises:
        HanseError: INVALID_INPUT where the configured loss is not for the task, or its weights not for the classes.
    """
    if not config.sample_weights:
        return _loss(problem, config, "mean")
    each = _loss(problem, config, "none")
    return lambda outputs, given: _weighed(each(outputs, _targets_of(given, problem)), given[:, -1])


def _weighed(losses: Tensor, weights: Tensor) -> Tensor:
    """mean over n of each one's weight times its loss (n,) or (n, k). Scalar."""
    return (losses.reshape(len(losses), -1).mean(dim=1) * weights.to(losses.dtype)).mean()


def _targets_of(given: Tensor, problem: Problem) -> Tensor:
    return given[:, 0].long() if problem.task == "classification" else given[:, :-1]


def _loss(problem: Problem, config: TrainConfig, over: Reduction) -> LossOf:
    """The mean over examples, or each one's loss."""
    named, weights = config.loss_name, config.class_weights
    if config.balanced:
        raise invalid("train.loss.class_weights", "balanced", "numbers, which a run finds before its first round")
    if problem.task == "regression":
        if named not in (None, *OF_VALUES):
            raise invalid("train.loss", named, "mse or huber, which regression needs")
        if isinstance(config.loss, HuberConfig):
            delta = config.loss.delta
            return lambda outputs, values: nn.functional.huber_loss(outputs, values, delta=delta, reduction=over)
        return lambda outputs, values: nn.functional.mse_loss(outputs, values, reduction=over)
    if named in OF_VALUES:
        raise invalid("train.loss", named, "cross_entropy, binary or focal, which classification needs")
    if weights is not None and len(weights) != max(2, problem.outputs):
        expected = f"{max(2, problem.outputs)} numbers, one for each class"
        raise invalid("train.loss.class_weights", list(weights), expected)
    if isinstance(config.loss, FocalConfig):
        gamma = config.loss.gamma
        return lambda outputs, labels: focal_loss(class_logits(outputs), labels, gamma, weights, over)
    if weights is not None:
        return lambda outputs, labels: weighted_cross_entropy(class_logits(outputs), labels, weights, over)
    return lambda outputs, labels: nn.functional.cross_entropy(class_logits(outputs), labels, reduction=over)


def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: tuple[float, ...], over: Reduction = "mean"
) -> Tensor:
    """mean over n of -w[y] log p, p the probability (n,) of the true class y. Scalar, or (n,) over `none`."""
    given = torch.tensor(weights, dtype=logits.dtype, device=logits.device)
    if over == "none":
        return nn.functional.cross_entropy(logits, labels, weight=given, reduction="none")
    return nn.functional.cross_entropy(logits, labels, weight=given, reduction="sum") / len(labels)


def focal_loss(
    logits: Tensor, labels: Tensor, gamma: float, weights: tuple[float, ...] | None = None, over: Reduction = "mean"
) -> Tensor:
    """mean of -w[y] (1 - p)^gamma log p, p the probability (n,) of the true class y (Lin et al., 2017, equation 5).
    Scalar, or (n,) over `none`.

    Args:
        weights: w, by class; None: all are one.
    """
    log = nn.functional.log_softmax(logits, dim=1).gather(1, labels[:, None]).squeeze(1)
    each = log
    if gamma > 0:
        # A probability that rounds to one would give the gradient of a power an infinite factor for gamma < 1.
        each = (-torch.expm1(log)).clamp_min(torch.finfo(log.dtype).tiny).pow(gamma) * log
    if weights is not None:
        each = torch.tensor(weights, dtype=log.dtype, device=log.device)[labels] * each
    return -(each if over == "none" else each.mean())


def class_logits(outputs: Tensor) -> Tensor:
    """Logits (n, classes): a single output z stands for two classes, (0, z), whose softmax is z's sigmoid."""
    if outputs.shape[1] > 1:
        return outputs
    return torch.cat([torch.zeros_like(outputs), outputs], dim=1)


def inputs(data: Examples, module: nn.Module) -> Tensor:
    """The examples (n, *shape), in the dtype and on the device of the module's parameters."""
    first = next(module.parameters(), None)
    x = torch.from_numpy(data.x)
    return x if first is None else x.to(device=first.device, dtype=first.dtype)


def targets(data: Examples, problem: Problem, dtype: torch.dtype = torch.float32) -> Tensor:
    """Labels (n,) int64, or values (n, outputs) of `dtype`.

    Raises:
        HanseError: SCHEMA_MISMATCH for a label outside the classes.
    """
    if problem.task == "regression":
        return torch.from_numpy(data.y).to(dtype).reshape(len(data), -1)
    classes = max(2, problem.outputs)
    if len(data) and not (data.y.min() >= 0 and data.y.max() < classes):
        raise unfit(f"labels: 0 to {classes - 1} were expected", f"{int(data.y.min())} to {int(data.y.max())}")
    return torch.from_numpy(data.y.astype("int64"))


def tensors(data: Examples, problem: Problem, module: nn.Module, *, weighted: bool = False) -> tuple[Tensor, Tensor]:
    """(inputs, targets) as the module takes them; `weighted`: targets (n, 1 + k) with the examples' weights behind.

    Raises:
        HanseError: INVALID_INPUT where there are no weights.
    """
    x = inputs(data, module)
    wanted = targets(data, problem, x.dtype if x.is_floating_point() else torch.float32)
    if not weighted:
        return x, wanted.to(x.device)
    if data.weights is None:
        raise invalid("train.sample_weights", True, "false: these examples have no weights")
    # One tensor, so that whatever draws a batch of targets draws their weights.
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    columns = wanted.reshape(len(data), -1).to(exact), torch.from_numpy(data.weights).to(exact)[:, None]
    return x, torch.cat(columns, dim=1).to(x.device)
