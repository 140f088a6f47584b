"""What a team's own training loop is given of a task, and answers: the same with and without a policy at the site."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hanse_fabric.errors import ErrorCode, HanseError, invalid

if TYPE_CHECKING:
    import numpy as np

    from hanse.arrays import Model


class SiteTask(ABC):
    """One open task of this site. It is answered once: by `push`, `report` or `fail`."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """`initialize` (make the run's first model), `train` or `evaluate`."""

    @property
    @abstractmethod
    def round(self) -> int:
        """From 1; 0 for `initialize`."""

    @property
    @abstractmethod
    def seed(self) -> int:
        """The seed of this task, for repeatable training."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The job's `model` and `train` sections."""

    @property
    @abstractmethod
    def seconds_left(self) -> float:
        """Until the deadline."""

    def model(self, like: Model | None = None) -> Any:
        """The task's model: copies that may be changed.

        Args:
            like: the model in the form that you have it in: dicts and lists of numpy arrays, torch tensors or numbers,
                such as `module.state_dict()` or `[estimator.coef_, estimator.intercept_]`. None: numpy arrays by name.

        Raises:
            HanseError: INVALID_INPUT for a task without a model, or another form; GONE where the task has closed.
        """
        arrays = self._arrays()
        if like is None:
            return arrays
        from hanse.arrays import in_form

        return in_form(arrays, like)

    def push(self, model: Model, *, examples: int, metrics: Mapping[str, float] | None = None) -> None:
        """Hand in the trained model (`train`) or the first one (`initialize`); what is sent of a trained one is its
        difference to the task's model.

        Args:
            model: with the entries and shapes of `model()`: arrays by name, or nested as `like` there.
            examples: training examples behind it: its weight in the mean.
            metrics: finite numbers by name.

        Raises:
            HanseError: INVALID_INPUT naming an entry that is missing, unknown, or wrongly shaped; GONE where the task
                has closed meanwhile: take the next one.
        """
        from hanse.arrays import by_name

        self._push(by_name(model), _whole(examples), _numbers(metrics or {}))

    def report(self, *, examples: int, metrics: Mapping[str, float]) -> None:
        """Hand in metrics without a model: the answer to `evaluate`.

        Args:
            examples: test examples behind them: their weight in the mean.
            metrics: finite numbers by name. The site's policy may hold some back.

        Raises:
            HanseError: INVALID_INPUT; GONE where the task has closed meanwhile.
        """
        self._report(_whole(examples), _numbers(metrics))

    @abstractmethod
    def fail(self, reason: str) -> None:
        """Say that the task could not be done, and why. The run goes on without this site in this round; its owner
        reads the reason, unless the answer is masked or private: then it stays in this site's log."""

    @abstractmethod
    def _arrays(self) -> dict[str, np.ndarray]: ...

    @abstractmethod
    def _push(self, model: dict[str, np.ndarray], examples: int, metrics: dict[str, float]) -> None: ...

    @abstractmethod
    def _report(self, examples: int, metrics: dict[str, float]) -> None: ...

    def __repr__(self) -> str:
        return f"<hanse task {self.kind}, round {self.round}>"


def no_model(kind: str) -> HanseError:
    """A task has no model to start from."""
    return HanseError(ErrorCode.INVALID_INPUT, f"task {kind}: it has no model to start from")


def _numbers(metrics: Mapping[str, float]) -> dict[str, float]:
    """Of numbers, numpy's numbers, and tensors of one number."""
    found = {}
    for name, value in metrics.items():
        try:
            found[str(name)] = float(value)
        except (TypeError, ValueError):
            raise invalid(f"metrics {name}", value, "a number") from None
        if not math.isfinite(found[str(name)]):
            raise invalid(f"metrics {name}", value, "a finite number")
    return found


def _whole(examples: int) -> int:
    if isinstance(examples, bool) or not hasattr(examples, "__index__") or examples < 0:
        raise invalid("examples", examples, "a whole number of examples, 0 or more")
    return int(examples)
