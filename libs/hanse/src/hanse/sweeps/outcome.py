"""What a sweep has found: its runs beside each other, and the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse.comparison import ABSENT, Comparison
from hanse.display import Table
from hanse.history import larger_is_better
from hanse_fabric.errors import ErrorCode, HanseError

if TYPE_CHECKING:
    from hanse.history import History
    from hanse.sweeps.plan import Trial
    from hanse.views import RunView


class Swept:
    """The runs of a sweep, in its order.

    Args:
        trials: what each has differently.
        runs: each with its finished rounds.
        metric: by which they are compared; empty: the job's `stop.metric`, else the first that all have measured.

    Raises:
        HanseError: INVALID_INPUT for a metric that none measured.
    """

    def __init__(self, trials: Sequence[Trial], runs: Sequence[tuple[RunView, History]], metric: str = "") -> None:
        self.trials = tuple(trials)
        stop = trials[0].job.get("stop") or {}
        measured = {name for _, history in runs for item in history.rounds for name in item.get("metrics") or {}}
        wanted = metric or (stop.get("metric", "accuracy") if stop else "")
        self.comparison = Comparison(runs, wanted if metric or wanted in measured else "")

    @property
    def metric(self) -> str:
        """Empty where nothing was measured."""
        return self.comparison.metric

    @property
    def values(self) -> tuple[float | None, ...]:
        """Of each run, the metric of the model that it leaves: of its best round where its job has `keep: best`, else
        of its last; None where it has not completed, or measured nothing."""
        return tuple(self._value(view, history) for view, history in self.comparison.runs)

    @property
    def best(self) -> str:
        """The id of the run with the best value, the first of those that are alike.

        Raises:
            HanseError: NOT_FOUND where no run has completed with one.
        """
        sign = 1 if larger_is_better(self.metric) else -1
        there = [(sign * value, -at) for at, value in enumerate(self.values) if value is not None]
        if not there:
            raise HanseError(
                ErrorCode.NOT_FOUND, "best run: none has completed with a metric",
                hint="hanse run list says why runs failed",
            )  # fmt: skip
        return self.comparison.runs[-max(there)[1]][0].run

    def table(self) -> Table:
        """A line for each run: what it has differently, its state, and the metric of the model that it leaves."""
        names = list(self.trials[0].settings)
        there = any(value is not None for value in self.values)
        best = self.best if there else ""
        rows = [
            (
                view.run, *(str(trial.settings[name]) for name in names), view.state, f"{view.round}/{view.rounds}",
                ABSENT if value is None else f"{value:.4f}", "best" if view.run == best else "",
            )
            for trial, (view, _), value in zip(self.trials, self.comparison.runs, self.values, strict=True)
        ]  # fmt: skip
        return Table(("run", *names, "state", "rounds", self.metric or "metric", ""), rows)

    def plot(self, path: str | Path) -> Path:
        """The metric over the rounds, a line for each run; as `Comparison.plot`."""
        return self.comparison.plot(path)

    def _value(self, view: RunView, history: History) -> float | None:
        if not self.metric or view.state != "completed":
            return None
        values = history.mean(self.metric)
        if view.job.get("keep") == "best":
            place = _kept(view.job.get("stop") or {}, history)
            return None if place is None else values[place]
        return next((value for value in reversed(values) if value is not None), None)

    def _repr_html_(self) -> str:
        return self.table().html()

    def __repr__(self) -> str:
        return str(self.table())


def _kept(stop: Mapping[str, Any], history: History) -> int | None:
    """The place of the round whose model `keep: best` keeps: the first that is best by `stop.metric`, whatever the runs
    are compared by; None where it was never measured."""
    metric = str(stop.get("metric", "accuracy"))
    rising = stop["mode"] == "max" if stop.get("mode") else larger_is_better(metric)
    judged = [
        (value if rising else -value, -place) for place, value in enumerate(history.mean(metric)) if value is not None
    ]
    return -max(judged)[1] if judged else None
