"""Runs beside each other: what their jobs have differently, how good each was, and how many bytes it took."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse.display import Table
from hanse.figures import installed, save, tidy
from hanse.history import History, larger_is_better, size_text, sparkline
from hanse.settings import flat_settings, without_defaults
from hanse_fabric.errors import invalid

if TYPE_CHECKING:
    from hanse.views import RunView

ABSENT = "-"


class Comparison:
    """Runs of a project, in the order in which they were given.

    Args:
        runs: each with its finished rounds.
        metric: to compare them by; empty: the jobs' `stop.metric`, where it is the same, or else the first that is
            measured in all of them.

    Raises:
        HanseError: INVALID_INPUT for fewer than two runs, one that is there twice, or a metric that none measured.
    """

    def __init__(self, runs: Sequence[tuple[RunView, History]], metric: str = "") -> None:
        names = [view.run for view, _ in runs]
        if len(names) < 2:
            raise invalid("runs", len(names), "two or more to compare")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise invalid("runs", twice, "each once")
        self.runs = tuple(runs)
        self.metric = metric or _common(runs)
        if self.metric and all(value is None for _, history in runs for value in history.mean(self.metric)):
            measured = sorted({name for _, history in runs for name in _measured(history)})
            raise invalid("metric", metric, f"one of {', '.join(measured)}" if measured else "runs that measure some")

    @property
    def differences(self) -> dict[str, tuple[Any, ...]]:
        """The settings that are not the same in all jobs, such as `train.optimizer.lr`, each with its value by run; `-`
        where a job does not have it. What all of them leave as it is by default is none."""
        flat = [flat_settings(view.job) for view, _ in self.runs]
        names = dict.fromkeys(name for view, _ in self.runs for name in flat_settings(without_defaults(view.job)))
        found = {name: tuple(one.get(name, ABSENT) for one in flat) for name in names}
        return {name: values for name, values in sorted(found.items()) if any(each != values[0] for each in values)}

    def table(self) -> Table:
        """A line for each run."""
        apart = self.differences
        rows = []
        for at, (view, history) in enumerate(self.runs):
            settings = [str(values[at]) for values in apart.values()]
            rows.append((
                view.run, view.name, view.state, f"{view.round}/{view.rounds}", *settings, *self._measure(history),
                size_text(history.down + history.up),
            ))  # fmt: skip
        said = self.metric or "metric"
        header = (
            "run",
            "name",
            "state",
            "rounds",
            *apart,
            f"{said}, last",
            "best",
            "in round",
            "over the rounds",
            "sent",
        )
        return Table(header, rows)

    def frame(self) -> Any:
        """All metrics as a pandas DataFrame indexed by run and round.

        Raises:
            HanseError: NOT_FOUND where pandas is not installed.
        """
        pandas = installed("pandas")
        rows = [
            {"run": view.run, "round": item["round"], **(item.get("metrics") or {})}
            for view, history in self.runs
            for item in history.rounds
        ]
        return pandas.DataFrame(rows, columns=None if rows else ["run", "round"]).set_index(["run", "round"])

    def plot(self, path: str | Path) -> Path:
        """Draw the metric over the rounds, a line for each run, as SVG, PNG or PDF by the file's ending.

        Raises:
            HanseError: NOT_FOUND where matplotlib is not installed; INVALID_INPUT where nothing was measured, or for
                another ending.
        """
        if not self.metric:
            raise invalid("metric", "", "runs that have measured one")
        installed("matplotlib")
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes = figure.subplots()
        for view, history in self.runs:
            there = [
                (item["round"], value)
                for item, value in zip(history.rounds, history.mean(self.metric), strict=True)
                if value is not None
            ]
            axes.plot(*zip(*there, strict=True) if there else ((), ()), marker="o", markersize=3, label=_called(view))
        axes.set(xlabel="round", ylabel=self.metric)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        tidy(axes)
        axes.legend(frameon=False)
        return save(figure, path)

    def _measure(self, history: History) -> tuple[str, str, str, str]:
        values = history.mean(self.metric) if self.metric else []
        there = [
            (item["round"], value) for item, value in zip(history.rounds, values, strict=False) if value is not None
        ]
        if not there:
            return ABSENT, ABSENT, ABSENT, ""
        sign = 1 if larger_is_better(self.metric) else -1
        place, best = max(there, key=lambda pair: (sign * pair[1], -pair[0]))
        return f"{there[-1][1]:.4f}", f"{best:.4f}", str(place), sparkline(values)

    def _repr_html_(self) -> str:
        return self.table().html()

    def __repr__(self) -> str:
        return str(self.table())


def _called(view: RunView) -> str:
    return f"{view.name} ({view.run})" if view.name else view.run


def _measured(history: History) -> set[str]:
    return {name for item in history.rounds for name in item.get("metrics") or {}}


def _common(runs: Sequence[tuple[RunView, History]]) -> str:
    """What to look at first, of what all have measured that have measured anything: what all stop by, if it is one."""
    some = [(view, history) for view, history in runs if history.metric]
    shared = set.intersection(*(_measured(history) for _, history in some)) if some else set()
    stops = {str((view.job.get("stop") or {}).get("metric")) for view, _ in some}
    first = (*(stops if len(stops) == 1 else ()), *(history.metric for _, history in some))
    return next((name for name in first if name in shared), min(shared, default=""))
