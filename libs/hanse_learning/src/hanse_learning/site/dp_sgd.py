"""DP-SGD (Abadi et al., 2016, algorithm 1): gradients of single examples, clipped, summed, with noise.

Each example, or each unit that has examples (`hanse_learning.site.units`), is in a step's batch with probability
`rate`, independently (Poisson sampling). The sum of the clipped gradients gets noise and is divided by the *expected*
size of the batch; an empty batch takes a step of noise alone. Who is sampled, and the noise, come from the operating
system's randomness, not from the job's seed: the same task done twice gives other bits. A site that is asked again
sends the answer that it wrote down.

The noise is whole steps of a grid of 2^-30 of its scale, and the sum is rounded to that grid (`hanse_privacy.noise`),
so that no low bits tell what was under it. Rounding lets one example change the sum by sqrt(d) such steps more, so
gradients of d parameters are clipped to as much less.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.config import TrainConfig
from hanse_learning.site.augmentation import copies_of
from hanse_learning.site.clipping import clipped_sum
from hanse_learning.site.devices import CPU, device_of, memory_of
from hanse_learning.site.example_gradients import Parameters, example_gradients, numbers_of_example
from hanse_learning.site.examples import Examples, Problem
from hanse_learning.site.losses import loss_function, tensors
from hanse_learning.site.modes import BATCH_NORMS
from hanse_learning.site.optimizers import make_optimizer
from hanse_learning.site.ranks import Ranks
from hanse_learning.site.schedule import rate_factor
from hanse_learning.site.site_privacy import DpSgd
from hanse_learning.site.training import OnProgress, make_repeatable
from hanse_learning.site.units import Rows, Units
from hanse_privacy.noise.mechanisms import Gaussian, add, clip_left
from hanse_privacy.noise.source import NoiseSource

LARGEST_PART = 512
"""Examples worked on at once."""
_SHARE = 16
"""The gradients of single examples have this part of the memory: batches beyond it are worked on in parts."""
LARGEST_UNIT = 512
"""Examples of one unit that a step uses."""
_REPORTS = 20


def train_privately(
    module: nn.Module,
    data: Examples,
    config: TrainConfig,
    problem: Problem,
    private: DpSgd,
    on_progress: OnProgress,
    *,
    round_number: int = 1,
    source: NoiseSource | None = None,
    ranks: Ranks | None = None,
    memory: int | None = None,
    added: Mapping[str, Tensor] | None = None,
) -> dict[str, float]:
    """Train the module in place.

    Args:
        config: its optimizer, schedule and loss; length and batch size are `private`'s.
        source: for tests; else of fresh randomness.
        ranks: that make each step's sum together, the noise of which is drawn once for all; None: this process alone.
        memory: bytes that the task may use, less than what the machine has; None: as much as there is.
        added: to each step's noisy gradient, by parameter: what depends on no data but by what was released.

    Returns:
        `steps` alone: a loss would be a release that is not paid for.

    Raises:
        HanseError: INVALID_INPUT for a module whose examples depend on each other, or without examples;
            TRAINING_FAILED when a parameter is no longer finite.
    """
    if not len(data):
        raise invalid("data", "no examples", "at least one training example")
    if private.by_unit != (data.whose is not None):
        raise HanseError(ErrorCode.CONFLICT, "privacy: the data were read with another unit than was charged for")
    if config.sample_weights:
        raise invalid("train.sample_weights", True, "false with dp_sgd, which clips each example's gradient")
    check_independent(module)
    units = Units(data, LARGEST_UNIT)
    make_repeatable(0, device_of(module))
    source = source or (NoiseSource() if ranks is None else ranks.source())
    # What dropout draws is no secret, but shall not repeat from round to round.
    torch.manual_seed((int(source.words(1)[0]) >> 2) + (0 if ranks is None else ranks.rank))
    module.train()
    named = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    apply_gradients = make_optimizer(named.values(), config.optimizer)
    gradients_of = example_gradients(module, loss_function(problem, config))
    x, y = tensors(data, problem, module)
    augmentation = config.augmentation
    copies = augmentation.copies if augmentation is not None else 1
    changes = torch.Generator()
    if augmentation is not None:
        changes.manual_seed(int(source.words(1)[0]) >> 1)
    average = MovingAverage(named, config.weights_average) if config.weights_average is not None else None
    count = sum(parameter.numel() for parameter in named.values())
    part = examples_at_once(module, x[:1].repeat_interleave(copies, dim=0), memory, alone=data.whose is None)
    if ranks is not None:  # they share the memory, and a batch
        part = max(1, part // ranks.count) * ranks.count
    mechanism = Gaussian(private.scale)
    clip = clip_left(private.clip, mechanism, count)
    every = max(1, private.steps // _REPORTS)
    for step in range(1, private.steps + 1):
        total: np.ndarray | None = None
        for chosen, each in units.batches(poisson_sample(len(units), private.rate, source), part, source):
            given = x[chosen] if augmentation is None else copies_of(x[chosen], augmentation, changes)
            wanted, own = y[chosen].repeat_interleave(copies, dim=0), slice(None)
            if ranks is not None:
                units_of = ranks.share(len(chosen) // each)
                own = slice(units_of.start * each * copies, units_of.stop * each * copies)
            if len(wanted[own]):
                made = gradients_of(named, given[own], wanted[own], each * copies)
                total = clipped_sum(made, clip, config.clipping, total)
        if total is None:
            total = np.zeros(count)
        if ranks is not None:
            ranks.add(torch.from_numpy(total))
        noisy = add(total, mechanism, source)
        noisy /= private.batch
        _set_gradients(named, noisy, added or {})
        apply_gradients(rate_factor(config.schedule, round_number, step))
        if average is not None:
            average.take(step)
        if step % every == 0 or step == private.steps:
            _check_finite(named, step)
            on_progress(step / private.steps, f"step {step} of {private.steps}, private")
    if average is not None:
        average.give()
    if ranks is not None:
        ranks.require_same(module)
    return {"steps": float(private.steps)}


def examples_at_once(module: nn.Module, x: Tensor, memory: int | None = None, *, alone: bool = True) -> int:
    """How many examples' gradients are made at once, by the memory of the device or container, or by the task's.

    Args:
        x: one example's copies, (copies, *shape).
        memory: bytes that the task may use beside a GPU; None: what there is.
        alone: whether no unit has several examples.
    """
    each = x.element_size() * numbers_of_example(module, x, alone=alone)
    there = memory_of(x.device)
    if memory is not None and x.device.type == CPU:
        there = min(there, memory)
    return max(1, min(LARGEST_PART, there // _SHARE // each))


def check_independent(module: nn.Module) -> None:
    """Refuse layers whose output for one example depends on others, of this batch or of earlier ones.

    Raises:
        HanseError: INVALID_INPUT naming the layer.
    """
    for name, part in module.named_modules():
        if isinstance(part, BATCH_NORMS):
            raise invalid(
                f"model layer {name}", type(part).__name__, "a layer that treats each example by itself",
                hint="use a model without batch norm",
            )  # fmt: skip


def poisson_sample(count: int, rate: float, source: NoiseSource) -> Rows:
    """Indices (k,) of those chosen: each of `count` with probability `rate` (to 2^-53), independently."""
    if rate >= 1:
        return np.arange(count)
    chosen = source.words(count) < np.uint64(int(rate * 2.0**64))
    return np.flatnonzero(chosen)


class MovingAverage:
    """Of parameters over steps, begun with those that were received."""

    def __init__(self, named: Parameters, past: float) -> None:
        self._named, self._past = named, past
        self._mean = {name: parameter.detach().clone() for name, parameter in named.items()}

    def take(self, step: int) -> None:
        """The parameters after a step, from 1: the first steps count more, so that the start is soon forgotten."""
        past = min(self._past, (1 + step) / (10 + step))
        for name, parameter in self._named.items():
            self._mean[name].lerp_(parameter.detach(), 1 - past)

    def give(self) -> None:
        """Put the averages into the parameters."""
        with torch.no_grad():
            for name, parameter in self._named.items():
                parameter.copy_(self._mean[name])


def _set_gradients(named: Parameters, values: np.ndarray, added: Mapping[str, Tensor]) -> None:
    start = 0
    for name, parameter in named.items():
        piece = values[start : start + parameter.numel()]
        parameter.grad = torch.from_numpy(piece).to(parameter).reshape(parameter.shape)
        if name in added:
            parameter.grad.add_(added[name])
        start += parameter.numel()


def _check_finite(named: Parameters, step: int) -> None:
    for name, parameter in named.items():
        if not bool(torch.isfinite(parameter.detach()).all()):
            raise HanseError(
                ErrorCode.TRAINING_FAILED,
                f"private training diverged: parameter {name} is not finite after {step} steps",
                hint="lower train.optimizer.lr or privacy.clip, or allow a larger epsilon",
            )
