"""Local training: mini-batches in an order drawn from the seed, single-threaded, the same bits for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.config import TrainConfig
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.optimizers import make_optimizer

OnProgress = Callable[[float, str], None]
_REPORTS = 20


def make_repeatable(seed: int) -> None:
    """One thread, deterministic algorithms, torch's generator at `seed` (which dropout draws from)."""
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms, without loading the compiler
    torch.manual_seed(seed)


def train(
    module: nn.Module, data: Examples, config: TrainConfig, problem: Problem, seed: int, on_progress: OnProgress
) -> dict[str, float]:
    """Train the module in place.

    Returns:
        `loss`: mean over the last epoch's (or all, where only steps are given) mini-batches; `steps`.

    Raises:
        HanseError: TRAINING_FAILED when the loss or a parameter is no longer finite; INVALID_INPUT without examples.
    """
    if not len(data):
        raise invalid("data", "no examples", "at least one training example")
    make_repeatable(seed)
    module.train()
    apply_gradients = make_optimizer(module.parameters(), config.optimizer)
    loss_of = loss_function(problem, config)
    x, y = torch.from_numpy(data.x), targets(data, problem)
    per_epoch = -(-len(data) // config.batch_size)
    total = config.steps or (config.epochs or 1) * per_epoch
    generator = torch.Generator().manual_seed(seed)
    single = _has_batch_norm(module)
    losses: list[Tensor] = []
    every = max(1, total // _REPORTS)
    for step, batch in enumerate(_batches(len(data), config.batch_size, total, generator), start=1):
        if single and len(batch) == 1:
            continue  # batch norm has no variance over one example
        module.zero_grad(set_to_none=True)
        loss = loss_of(module(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        if config.clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), config.clip_norm)
        apply_gradients()
        losses.append(loss.detach())
        if step % every == 0 or step == total:
            value = float(loss.detach())
            _check_finite(value, step, config)
            on_progress(step / total, f"step {step} of {total}, loss {value:.4f}")
    if not losses:
        raise invalid("train.batch_size", config.batch_size, "a size with at least two examples in a batch")
    mean = float(torch.stack(losses[-per_epoch:]).mean())
    _check_finite(mean, total, config)
    for name, parameter in module.named_parameters():
        # A finite sum needs finite terms, and is much faster to find; only a sum that overflowed is looked into.
        if not bool(torch.isfinite(parameter.detach().sum())) and not bool(torch.isfinite(parameter).all()):
            raise _diverged(f"parameter {name} is not finite after {total} steps", config)
    return {"loss": mean, "steps": float(len(losses))}


def loss_function(problem: Problem, config: TrainConfig) -> Callable[[Tensor, Tensor], Tensor]:
    """(outputs (n, k), targets) -> scalar: mean cross-entropy, or mean squared error.

    Raises:
        HanseError: INVALID_INPUT where the configured loss is not for the task.
    """
    expected = "cross_entropy" if problem.task == "classification" else "mse"
    if config.loss not in (None, expected):
        raise invalid("train.loss", config.loss, f"{expected}, which {problem.task} needs")
    if problem.task == "classification":
        return nn.functional.cross_entropy
    return nn.functional.mse_loss


def targets(data: Examples, problem: Problem) -> Tensor:
    """Labels (n,) int64, or values (n, outputs) float32.

    Raises:
        HanseError: SCHEMA_MISMATCH for a label outside the classes.
    """
    if problem.task == "regression":
        return torch.from_numpy(data.y.astype("float32")).reshape(len(data), -1)
    if len(data) and not (data.y.min() >= 0 and data.y.max() < problem.outputs):
        raise HanseError(
            ErrorCode.SCHEMA_MISMATCH,
            f"labels: {int(data.y.min())} to {int(data.y.max())}, 0 to {problem.outputs - 1} were expected",
        )
    return torch.from_numpy(data.y.astype("int64"))


def _batches(count: int, size: int, total: int, generator: torch.Generator) -> Iterator[Tensor]:
    """`total` batches of indices; every epoch has an order of its own."""
    made = 0
    while made < total:
        for batch in torch.split(torch.randperm(count, generator=generator), size):
            if made == total:
                return
            made += 1
            yield batch


def _has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d) for part in module.modules())


def _check_finite(loss: float, step: int, config: TrainConfig) -> None:
    if not math.isfinite(loss):
        raise _diverged(f"the loss is {loss} at step {step}", config)


def _diverged(what: str, config: TrainConfig) -> HanseError:
    return HanseError(
        ErrorCode.TRAINING_FAILED,
        f"training diverged: {what}",
        hint=f"lower train.optimizer.lr (now {config.optimizer.lr}), set train.clip_norm, or scale the features",
    )
