"""What the SDK adds to the hub's answers (`hanse_schemas.http`): runs as people look at them, events in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hanse.history import ASKED_FOR
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_schemas.http import events as body
from hanse_schemas.http.runs import RunSummary
from hanse_schemas.metrics import COUNTED

_FIRST = ("auroc", "r2", "loss", "accuracy", "mse")
"""What lists show of a model's metrics, the first of those that there are."""


class RunView(RunSummary):
    """A run. Its job is as the hub wrote it, because a newer hub may write what this release does not know; a run in a
    list comes without it."""

    job: dict[str, Any] = {}
    privacy: str = ""


def unpublished(run: RunView) -> HanseError:
    """The error for a run that has no model."""
    return HanseError(
        ErrorCode.NOT_FOUND,
        f"run {run.run} has published no model ({run.state})",
        hint="" if run.ended else "wait for it: the job's last round publishes one",
    )


def unmarked(run: RunView) -> HanseError:
    """The error for a run of which no model is marked as the best."""
    kept = run.job.get("keep") == "best"
    return HanseError(
        ErrorCode.NOT_FOUND,
        f"run {run.run} has no best model ({run.state})",
        hint="wait for its first evaluation" if kept and not run.ended else "keep: best in a job marks it",
    )


def no_curves(run: RunView) -> HanseError:
    """The error for a run without an evaluation that has more than metrics."""
    asked = run.job.get("evaluate") or {}
    named = [name for name in asked.get("metrics") or () if name in COUNTED]
    if not named:
        hint = ASKED_FOR
    elif not run.ended:
        hint = "wait for its first evaluation"
    else:
        hint = f"no evaluation of {', '.join(named)} was finished" + (f": {run.reason}" if run.reason else "")
    return HanseError(
        ErrorCode.NOT_FOUND, f"curves of run {run.run}: there are none ({run.state})", hint=hint,
    )  # fmt: skip


class Event(body.Event):
    """Something that happened in a run; `sequence` is where watching resumes."""

    sequence: int = 0

    def __str__(self) -> str:
        """One line, whatever a site or the hub has said in several."""
        return " ".join(f"{self.at:%H:%M:%S} {describe(self)}".split())


def describe(event: Event) -> str:
    """An event in plain words."""
    data = event.data
    who = data.get("participant", "")
    match event.kind:
        case "state":
            reason = f": {data['reason']}" if data.get("reason") else ""
            return f"run is {data.get('state')}{reason}"
        case "round-started":
            return f"round {event.round} started with {len(data.get('participants') or ())} participants"
        case "task-answered":
            return f"round {event.round}: {who} {answer(data)}"
        case "round-finished":
            return f"round {event.round} finished: {metrics_text(data.get('metrics') or {}) or 'no metrics'}"
        case "late-result":
            return f"a late result of {who} was refused"
        case "refused":
            return f"round {event.round}: {who} left out: {data.get('reason', '')}"
        case "note":
            return f"round {event.round}: {_missing(data)}"
        case "progress" if "done" in data:
            return f"{data.get('what', 'steps')}: {data['done']} of {data.get('of', '?')} done"
        case "computed":
            return f"{data.get('step')} computed by {len(data.get('up') or ())} cohorts"
        case _:
            return f"{event.kind} {data}"


def answer(data: Mapping[str, Any]) -> str:
    """How a site answered its task."""
    if data.get("outcome", "done") != "done":
        return f"{data['outcome']}: {data.get('reason') or data.get('code') or 'no reason given'}"
    took = f" ({data['seconds']:.2f} s)" if data.get("seconds") else ""  # masked and private answers do not say
    return f"answered{took}" + (f": {said}" if (said := note_of(data)) else "")


def note_of(data: Mapping[str, Any]) -> str:
    """What a site says of work that it has done: metrics withheld, another device than was asked for; else empty."""
    return str(data.get("reason") or "") if data.get("outcome", "done") == "done" else ""


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """Numbers by name, on one line: what was measured on the model. Minima over sites and what training reported are
    in the data, but would crowd it out; they are shown where there is nothing else."""
    return ", ".join(f"{name} {value:.4f}" for name, value in main_metrics(metrics).items())


def headline(metrics: Mapping[str, Any], most: int = 2) -> str:
    """The few of them that people look at first, for lists."""
    found = main_metrics(metrics)
    names = [name for name in _FIRST if name in found] + [name for name in found if name not in _FIRST]
    return ", ".join(f"{name} {found[name]:.4g}" for name in names[:most])


def main_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What was measured on the model; minima over sites and what training reported only where there is nothing else."""
    numbers = {name: value for name, value in sorted(metrics.items()) if isinstance(value, int | float)}
    main = {name: value for name, value in numbers.items() if not name.startswith("train_") and name[-4:] != "_min"}
    return main or numbers


def _missing(data: Mapping[str, Any]) -> str:
    silent = [f"{name} is silent" for name in data.get("silent") or ()]
    failed = [f"{name} failed ({reason})" for name, reason in (data.get("failed") or {}).items()]
    warning = [f"warning: {data['warning']}"] if data.get("warning") else []
    reason = [str(data["reason"])] if data.get("reason") else []
    return ", ".join(silent + failed + warning + reason) or str(dict(data))
