"""Signs in a run's metrics that it will come to nothing: what stands still, and what gets worse and worse. Pure.

A run with such metrics is a run like any other to the platform; people who watch it want to hear of it early.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse_schemas.metrics import known

STILL = 5
"""Evaluations in a row with the same value, bit by bit."""
WORSE = 3
"""Evaluations in a row whose loss is above `_TIMES` the best one's."""
_TIMES = 2.0
_MEANS: dict[tuple[str, float], str] = {
    ("matthews", 0.0): "the model predicts one class",
    ("balanced_accuracy", 0.5): "the model predicts one class",
    ("sensitivity", 0.0): "the model finds no positive example",
    ("f1", 0.0): "the model finds no positive example",
    ("auroc", 0.5): "the model ranks no better than chance",
}
_ADVICE = "look at how the columns are scaled (prepare), at class weights (train.loss) and at train.optimizer.lr"


class Signs:
    """Watches the metrics of a run's evaluations, in their order."""

    def __init__(self) -> None:
        self._still: dict[str, tuple[float, int]] = {}
        self._best: float | None = None
        self._worse = 0

    def observe(self, metrics: Mapping[str, Any]) -> tuple[str, ...]:
        """Warnings of an evaluation that people have not had, in plain words; most have none."""
        values = {
            name: float(value)
            for name, value in metrics.items()
            if isinstance(value, int | float) and not name.endswith("_min") and known(name) is not None
        }
        self._still = {name: (value, self._times(name, value)) for name, value in values.items()}
        return tuple(filter(None, (self._stands_still(), self._diverges(values.get("loss")))))

    def _times(self, name: str, value: float) -> int:
        before, times = self._still.get(name, (None, 0))
        return times + 1 if value == before else 1

    def _stands_still(self) -> str:
        """Of all metrics that stand still the one that says most."""
        still = {name: value for name, (value, times) in self._still.items() if times == STILL}
        for name, value in sorted(still.items()):
            if (name, value) in _MEANS:
                return f"{name} has been {value:.4f} for {STILL} rounds: {_MEANS[name, value]}; {_ADVICE}"
        if "loss" in still and still["loss"] != 0:
            return f"loss has been {still['loss']:.4f} for {STILL} rounds: the model does not change; {_ADVICE}"
        return ""

    def _diverges(self, loss: float | None) -> str:
        if loss is None:
            return ""
        if self._best is None or loss <= self._best:
            self._best = loss
        self._worse = self._worse + 1 if loss > _TIMES * max(self._best, 1e-12) else 0
        if self._worse != WORSE:
            return ""
        return (
            f"loss is {loss:.4g}, and for {WORSE} rounds was more than twice its best value, {self._best:.4g}: "
            "training diverges; lower train.optimizer.lr or train.epochs, set train.clip_norm, or scale the columns "
            "(prepare)"
        )
