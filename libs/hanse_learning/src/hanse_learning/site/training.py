"""Local training: mini-batches in an order drawn from the seed, single-threaded, the same bits for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.config import TrainConfig
from hanse_learning.site.augmentation import augment
from hanse_learning.site.checkpoints import Checkpoints, Course, packed, unpacked
from hanse_learning.site.devices import device_of
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.losses import LossOf, loss_function, tensors
from hanse_learning.site.mapped import Ahead, ahead_of
from hanse_learning.site.modes import normalizes_batches, set_training
from hanse_learning.site.optimizers import Optimizer, make_optimizer
from hanse_learning.site.ranks import Ranks
from hanse_learning.site.schedule import rate_factor

OnProgress = Callable[[float, str], None]
_REPORTS = 20
_OF_CHANGES = 0x5EED
"""Augmentation draws apart from the order of batches, which is the same with it and without."""


def make_repeatable(seed: int, device: torch.device | None = None) -> None:
    """One thread, deterministic algorithms, torch's generator at `seed` (which dropout draws from).

    Of the processor, and of the CUDA device where one is given: `torch.manual_seed` would note the seed for every other
    kind of device, with a stack trace each, in lists that grow until such a device is used.

    A few operations have no deterministic form on CUDA (some losses of images, some poolings backward): there, torch
    warns in the log instead of failing. TF32 is off, which would round the factors of products to 10 bits.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    on_cuda = device is not None and device.type == "cuda"
    # use_deterministic_algorithms, without loading the compiler
    torch.set_deterministic_debug_mode("warn" if on_cuda else "error")
    # It would write all new memory twice, for those who read what was never written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.default_generator.manual_seed(seed)
    if on_cuda:
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


class LocalSteps:
    """What happens in each local step. Here: plain descent; algorithms override what they change."""

    def __init__(self, module: nn.Module, loss_of: LossOf) -> None:
        self.module = module
        self.loss_of = loss_of

    def gradients(self, x: Tensor, y: Tensor) -> Tensor:
        """Set the parameters' gradients, which have none, for a batch x (n, ...), y (n, ...).

        Returns:
            The loss, detached.
        """
        loss = self.loss_of(self.module(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def takes(self, examples: int) -> bool:
        """Whether the next step can be taken on a batch of so many."""
        # Batch norm has no variance over one example.
        return examples > 1 or not normalizes_batches(self.module)

    def adjust(self) -> None:
        """Change the gradients, which are clipped already."""

    def taken(self, step: int) -> None:
        """Called after every step, from 1."""

    @property
    def pull(self) -> float:
        """How much of the distance to the start is added to every gradient (FedProx's mu)."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Descent:
    """What came of it.

    Attributes:
        loss: mean over the last epoch's mini-batches.
        steps: that were taken.
        normalizer: sum of the factors a that the steps' gradients G, times the first step's rate, have in the change of
            the parameters, -rate G a (Wang et al., 2020, section 4): `steps` for plain SGD at a constant rate. None for
            an optimizer whose change is no sum of gradients.
    """

    loss: float
    steps: int
    normalizer: float | None


def length_of(config: TrainConfig, examples: int) -> tuple[int, int]:
    """(all steps of the configured training, those of an epoch)."""
    per_epoch = -(-examples // config.batch_size)
    return config.steps or (config.epochs or 1) * per_epoch, per_epoch


def descend(
    local: LocalSteps, x: Tensor, y: Tensor, config: TrainConfig, apply_gradients: Optimizer, *, seed: int,
    on_progress: OnProgress, round_number: int = 1, total: int | None = None, ranks: Ranks | None = None,
    checkpoints: Checkpoints | None = None, ahead: Ahead | None = None,
) -> Descent:  # fmt: skip
    """Take the configured number of steps, or `total`.

    Args:
        ranks: that take each step together; None: this process takes it alone.
        checkpoints: where ends of epochs are kept, and the newest is gone on from; only where `local` keeps nothing
            from step to step. None: training always begins anew.
        ahead: as of `batches`.

    Raises:
        HanseError: TRAINING_FAILED when the loss or a parameter is no longer finite; INVALID_INPUT without a batch that
            can be trained on.
    """
    module = local.module
    set_training(module)
    configured, per_epoch = length_of(config, len(x))
    total = total or configured
    generator = torch.Generator().manual_seed(seed)
    every = max(1, total // _REPORTS)
    first = rate_factor(config.schedule, round_number, 1)
    changes = torch.Generator().manual_seed(seed ^ _OF_CHANGES)
    generators = {"batches": generator, "changes": changes}
    # Velocity and distance are of a parameter whose gradient is always -1, in units of the first rate.
    course = Course(0, 0, [], velocity=0.0, gone=0.0)
    if checkpoints is not None and (kept := checkpoints.read()) is not None:
        course = unpacked(kept, module, apply_gradients, generators)

    def keep() -> None:
        """At the end of an epoch, where the next one's order is not drawn yet."""
        at_end = course.step % per_epoch == 0 and course.step < total
        if checkpoints is not None and at_end and checkpoints.due():
            checkpoints.write(packed(course, module, apply_gradients, generators))

    left = batches(len(x), config.batch_size, total - course.step, generator, ahead)
    for step, batch in enumerate(left, start=course.step + 1):
        course.step = step
        if not local.takes(len(batch)):
            keep()
            continue
        module.zero_grad(set_to_none=True)
        given = x[batch] if config.augmentation is None else augment(x[batch], config.augmentation, changes)
        make = local.gradients if ranks is None else partial(ranks.gradients, local)
        loss = make(given, y[batch])
        if config.clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), config.clip_norm)
        local.adjust()
        factor = rate_factor(config.schedule, round_number, step)
        apply_gradients(factor)
        local.taken(step)
        course.took(loss, per_epoch)
        pulled = local.pull * config.optimizer.lr * first * course.gone
        course.velocity = (apply_gradients.momentum or 0.0) * course.velocity + 1 - pulled
        course.gone += factor / first * course.velocity
        keep()
        if step % every == 0 or step == total:
            value = float(loss)
            _check_finite(value, step, config)
            on_progress(step / total, f"step {step} of {total}, loss {value:.4f}")
    if not course.losses:
        raise invalid("train.batch_size", config.batch_size, "a size with at least two examples in a batch")
    mean = float(torch.stack(course.losses).mean())
    _check_finite(mean, total, config)
    for name, parameter in module.named_parameters():
        # A finite sum has finite terms, and is much faster to check. Only where the sum is not finite are the terms
        # looked at.
        if not bool(torch.isfinite(parameter.detach().sum())) and not bool(torch.isfinite(parameter).all()):
            raise _diverged(f"parameter {name} is not finite after {total} steps", config)
    return Descent(mean, course.taken, None if apply_gradients.momentum is None else course.gone)


def train(
    module: nn.Module, data: Examples, config: TrainConfig, problem: Problem, seed: int, on_progress: OnProgress
) -> dict[str, float]:
    """Train the module in place, plainly: what `fedavg` does in a first round.

    Returns:
        `loss`: mean over the last epoch's (or all, where only steps are given) mini-batches; `steps`.

    Raises:
        HanseError: as `descend`; INVALID_INPUT without examples.
    """
    require_examples(data)
    make_repeatable(seed, device_of(module))
    local = LocalSteps(module, loss_function(problem, config))
    x, y = tensors(data, problem, module, weighted=config.sample_weights)
    apply_gradients = make_optimizer(module.parameters(), config.optimizer)
    made = descend(local, x, y, config, apply_gradients, seed=seed, on_progress=on_progress, ahead=ahead_of(data.x))
    return {"loss": made.loss, "steps": float(made.steps)}


def require_examples(data: Examples) -> None:
    """Refuse to train on nothing.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if not len(data):
        raise invalid("data", "no examples", "at least one training example")


def batches(
    count: int, size: int, total: int, generator: torch.Generator, ahead: Ahead | None = None
) -> Iterator[Tensor]:
    """`total` batches of indices; every epoch has an order of its own, which is not drawn before its first batch.

    Args:
        ahead: is told an epoch's next batch before one is given (`mapped.ahead_of`).
    """
    made = 0
    while made < total:
        order = torch.split(torch.randperm(count, generator=generator), size)
        for at, batch in enumerate(order, start=1):
            if made == total:
                return
            made += 1
            if ahead is not None and at < len(order):
                ahead(order[at].tolist())
            yield batch


def _check_finite(loss: float, step: int, config: TrainConfig) -> None:
    if not math.isfinite(loss):
        raise _diverged(f"the loss is {loss} at step {step}", config)


def _diverged(what: str, config: TrainConfig) -> HanseError:
    return HanseError(
        ErrorCode.TRAINING_FAILED,
        f"training diverged: {what}",
        hint=f"lower train.optimizer.lr (now {config.optimizer.lr}), set train.clip_norm, or scale the features",
    )
