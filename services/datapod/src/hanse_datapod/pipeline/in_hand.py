"""A task that the team's loop has in hand: it runs in one thread, and the datapod waits in another."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as OutOfTime
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.tensors.file import layout_like
from hanse_fabric.tensors.trained import fitted

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Answered:
    """What the loop has answered.

    Attributes:
        model: None for an evaluation.
    """

    model: Arrays | None
    examples: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class InHand:
    """A task for the loop. It is answered once, and may be withdrawn before.

    Attributes:
        kind: `initialize`, `train` or `evaluate`.
        config: the job's `model` and `train` sections.
        model: arrays by name, which the loop may change; None: there is none.
        ends: on the monotonic clock.
    """

    kind: str
    round: int
    seed: int
    config: dict[str, Any]
    model: Arrays | None
    ends: float
    _answer: Future[Answered] = field(default_factory=Future)

    @property
    def seconds_left(self) -> float:
        return self.ends - SYSTEM_CLOCK.monotonic()

    def push(self, model: Mapping[str, np.ndarray], examples: int, metrics: Mapping[str, float]) -> None:
        """A trained or first model.

        Raises:
            HanseError: INVALID_INPUT for a model that is none; GONE where the task was withdrawn, or was
                answered before.
        """
        if self.kind == "evaluate":
            raise invalid("push", "a model", "metrics, by report(): the task is to evaluate")
        layout = layout_like(model if self.model is None else self.model)
        self._done(Answered(fitted(layout, model), examples, dict(metrics)))

    def report(self, examples: int, metrics: Mapping[str, float]) -> None:
        """Metrics alone; raises as `push`."""
        if self.kind != "evaluate":
            raise invalid("report", "metrics alone", f"a model, by push(): the task is to {self.kind}")
        self._done(Answered(None, examples, dict(metrics)))

    def fail(self, reason: str) -> None:
        """It could not be done.

        Raises:
            HanseError: GONE.
        """
        try:
            self._answer.set_exception(HanseError(ErrorCode.TRAINING_FAILED, reason[:2000]))
        except InvalidStateError:
            raise _gone() from None

    def withdraw(self) -> None:
        """Nobody waits for it any more."""
        if not self._answer.done():
            self._answer.cancel()

    @property
    def open(self) -> bool:
        return not self._answer.done()

    def wait(self) -> Answered:
        """The loop's answer.

        Raises:
            HanseError: TRAINING_FAILED with its reason; TIMEOUT; CANCELLED where it was withdrawn.
        """
        try:
            return self._answer.result(max(0.0, self.seconds_left))
        except CancelledError:
            raise HanseError(ErrorCode.CANCELLED, "the task was withdrawn from the pipeline") from None
        except OutOfTime:
            self.withdraw()
            raise HanseError(
                ErrorCode.TIMEOUT, "the pipeline has not answered in the time that the task and the policy leave",
                hint="limits.seconds of the policy, participants.deadline of the job",
            ) from None  # fmt: skip

    def _done(self, answered: Answered) -> None:
        try:
            self._answer.set_result(answered)
        except InvalidStateError:
            raise _gone() from None


def _gone() -> HanseError:
    return HanseError(
        ErrorCode.GONE, "this task is closed, or was answered already", hint="take the next one from site.tasks()"
    )
