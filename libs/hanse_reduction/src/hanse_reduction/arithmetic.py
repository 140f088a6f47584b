"""What the columns of plain updates are combined on: the processor, or a device that the operator has set.

Torch is loaded with a device that is set, and not before: an aggregator at rest has none of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.telemetry.catalogue import DEVICE_INFO
from hanse_learning.server.reduction import Array, Rows
from hanse_learning.server.strategy import Strategy

PROCESSOR = "cpu"
_log = logging.getLogger(__name__)


class Arithmetic(Protocol):
    """Applies strategies to blocks; safe from several threads. All of them make the same bits."""

    @property
    def label(self) -> str:
        """The device, for people."""
        ...

    @property
    def warning(self) -> str:
        """For the owner, where another device was asked for than is used; else empty."""
        ...

    def takes(self, strategy: Strategy) -> bool:
        """Whether the strategy's work is done on a device."""
        ...

    def apply(
        self, strategy: Strategy, model: Array, updates: Rows, weights: Array, state: Mapping[str, Array],
        round: int, at: int = 0,  # noqa: A002 - as in `Strategy.apply`
    ) -> None:  # fmt: skip
        """See `Strategy.apply`."""


@dataclass(frozen=True, slots=True)
class Processor:
    """An `Arithmetic`: numpy, as the strategies themselves have it."""

    warning: str = ""

    @property
    def label(self) -> str:
        return PROCESSOR

    def takes(self, strategy: Strategy) -> bool:  # noqa: ARG002
        return False

    def apply(
        self, strategy: Strategy, model: Array, updates: Rows, weights: Array, state: Mapping[str, Array],
        round: int, at: int = 0,  # noqa: A002
    ) -> None:  # fmt: skip
        strategy.apply(model, updates, weights, state, round, at=at)


def choose_arithmetic(setting: str) -> Arithmetic:
    """What HANSE_REDUCE_DEVICE asks for; the processor with a warning where that cannot be had. `auto` warns nobody."""
    if setting == PROCESSOR:
        return _told(Processor())
    try:
        from hanse_learning.on_device import open_device  # which loads torch
    except ImportError as error:
        return _fallen(setting, f"HANSE_REDUCE_DEVICE is {setting}, but this image has no torch ({error})")
    try:
        return _told(open_device(setting))
    except HanseError as error:
        if error.code is not ErrorCode.NO_DEVICE:
            raise
        return _fallen(setting, error.message)


def _fallen(setting: str, reason: str) -> Arithmetic:
    _log.warning("reductions are done on the processor", extra={"reason": reason})
    return _told(Processor("" if setting == "auto" else f"{reason}: the processor is used"))


def _told(chosen: Arithmetic) -> Arithmetic:
    _log.info("reductions", extra={"device": chosen.label})
    DEVICE_INFO.set(1, service="aggregator", device=chosen.label)
    return chosen
