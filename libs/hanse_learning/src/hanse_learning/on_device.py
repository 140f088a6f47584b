"""Blocks of a reduction on a device that torch knows, for aggregators: K rows go there, and one comes back.

The server optimizer stays on the processor: it reads and writes each number once, and copying them to the device and
back would take longer.

A device is used only after it has made numpy's bits of every strategy that has a form there (`exact_tensors`), on a
block that was drawn to find differences (ties, signed and tiny numbers, numbers near overflow), and it is left for good
when it fails in the middle: so a result does not depend on which device made which block, and replicas with and without
one may share a reduction. What has no form is computed on the processor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import STRATEGIES, built_in
from hanse_learning.exact_tensors import combined, has_form, mask_of, working_type
from hanse_learning.server.reduction import Array, Rows, normalize
from hanse_learning.server.strategy import Strategy, build_strategy

_log = logging.getLogger(__name__)
_WITH_MASKS: tuple[Mapping[str, Any], ...] = (
    {"sign_mask": {"tau": 0.4}, "optimizer": {"name": "sgd", "lr": 0.7, "momentum": 0.9, "weight_decay": 0.01}},
    {"sign_mask": {"tau": 0.7}, "reduction": {"name": "median"}},
)
_DTYPES: tuple[type[np.floating[Any]], ...] = (np.float32, np.float64, np.float16)
_ROWS, _COLUMNS = 9, 1 << 14


@dataclass(slots=True)
class OnDevice:
    """Applies strategies on a device; safe from several threads.

    Attributes:
        name: torch's.
        label: for people.
        warning: why the device was left; empty while it is used.
    """

    name: str
    label: str
    warning: str = field(default="", init=False)

    def takes(self, strategy: Strategy) -> bool:
        """Whether it is worked on here: only what has a form for devices, and nothing after a failure."""
        return not self.warning and has_form(strategy.reduction)

    def apply(
        self, strategy: Strategy, model: Array, updates: Rows, weights: Array, state: Mapping[str, Array],
        round: int, at: int = 0,  # noqa: A002 - as in `Strategy.apply`
    ) -> None:  # fmt: skip
        """See `Strategy.apply`."""
        if self.takes(strategy):
            try:
                change, mask = self._reduced(strategy, updates, weights)
            except RuntimeError as error:  # out of memory, or the device is lost: nothing was changed yet
                self.warning = f"{self.label} failed ({str(error).splitlines()[0][:120]}): the processor is used"
                _log.warning("a device was left", extra={"device": self.label, "reason": str(error)})
            else:
                strategy.move(model, change, state, round, mask)
                return
        strategy.apply(model, updates, weights, state, round, at=at)

    def _reduced(self, strategy: Strategy, updates: Rows, weights: Array) -> tuple[Array, Array | None]:
        """The change (n,) and the mask (n,), where there is one."""
        stack = torch.from_numpy(np.stack(updates)).to(self.name)  # (K, n), one transfer
        wide = working_type(stack.dtype)
        rows = [*stack.to(wide)]
        change = combined(strategy.reduction, rows, weights).cpu().numpy()
        if strategy.mask is None:
            return change, None
        voting = [row for row, weight in zip(rows, weights.tolist(), strict=True) if weight]
        return change, mask_of(strategy.mask, voting, wide).cpu().numpy()


def open_device(setting: str) -> OnDevice:
    """A device by its setting, looked at closely.

    Args:
        setting: `auto`, `cuda` or `cuda:N`; `torch-cpu` is torch on the processor, for tests.

    Raises:
        HanseError: NO_DEVICE saying why it cannot be used.
    """
    if setting == "torch-cpu":
        device = OnDevice("cpu", "torch-cpu")
    else:
        index = int(setting.partition(":")[2] or 0)
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            built = "" if torch.version.cuda else f", and torch {torch.__version__} is built without CUDA"
            raise HanseError(
                ErrorCode.NO_DEVICE, f"HANSE_REDUCE_DEVICE is {setting}, but torch sees no such device{built}"
            )
        name = f"cuda:{index}"
        device = OnDevice(name, f"{name} {torch.cuda.get_device_name(index)}")
    wrong = differences(device)
    if device.warning or wrong:
        raise HanseError(
            ErrorCode.NO_DEVICE,
            device.warning or f"{device.label}: other bits than the processor's in " + ", ".join(wrong),
        )
    return device


def differences(device: OnDevice) -> list[str]:
    """The strategies in which the device makes other bits than numpy, with the dtype; empty: none."""
    wrong: list[str] = []
    for number, section in enumerate(tried()):
        strategy = build_strategy(section)
        wrong += [
            f"{dict(section)} of {np.dtype(dtype)}"
            for dtype in _DTYPES
            if _bits(strategy, dtype, number, None) != _bits(strategy, dtype, number, device)
        ]
    return wrong


def tried() -> list[Mapping[str, Any]]:
    """The sections that a device is tried with: every built-in strategy that has a form there, and masks."""
    registered = [
        {"reduction": {"name": plugin.name, **example}}
        for plugin in built_in(STRATEGIES)
        for example in plugin.load().examples
    ]
    return [section for section in registered if has_form(build_strategy(section).reduction)] + [*_WITH_MASKS]


def _bits(strategy: Strategy, dtype: type[np.floating[Any]], seed: int, device: OnDevice | None) -> bytes:
    """What the strategy makes of a drawn block in two rounds, as bytes."""
    rng = np.random.default_rng(seed)
    rows = [_drawn(rng, dtype) for _ in range(_ROWS)]
    model = _drawn(rng, dtype)
    weights = normalize(rng.uniform(1, 1000, _ROWS).tolist())
    state = {name: np.full(_COLUMNS, value, dtype) for name, value in strategy.optimizer.state.items()}
    with np.errstate(over="ignore", under="ignore"):
        for round_ in (1, 2):
            if device is None:
                strategy.apply(model, rows, weights, state, round_)
            else:
                device.apply(strategy, model, rows, weights, state, round_)
    return b"".join((model.tobytes(), *(state[name].tobytes() for name in sorted(state))))


def _drawn(rng: np.random.Generator, dtype: type[np.floating[Any]]) -> Array:
    """(n,) numbers of many sizes: usual ones, few distinct ones, zeros of both signs, subnormal and large ones."""
    info = np.finfo(dtype)
    usual = rng.standard_normal(_COLUMNS // 2)
    ties = rng.integers(-2, 3, _COLUMNS // 4) * rng.choice([1.0, -1.0, 0.5], _COLUMNS // 4)
    tiny = rng.integers(-9, 10, _COLUMNS // 8) * float(info.smallest_subnormal)
    large = rng.standard_normal(_COLUMNS // 8) * (float(info.max) / 512)
    return np.concatenate([usual, ties, tiny, large]).astype(dtype)
