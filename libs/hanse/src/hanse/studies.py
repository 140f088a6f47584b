"""What an owner takes home from an association study: its results as files, and how much crossed for them.

    run = project.run("study.yaml")
    save_study(run, "lungs")      # waits; then lungs/results.tsv.gz, results.parquet, report.html

Formatting is `hanse_genomics`', in a process of its own; the SDK itself needs no numpy.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.wheels import to_install
from hanse_schemas.job import STUDY

if TYPE_CHECKING:
    from hanse.aio import AsyncRun
    from hanse.hub import Run
    from hanse.views import Event, RunView

OUTPUTS = ("results", "summary")
FORMATTER = "hanse_genomics"
_LIMIT_S = 3600.0
_NOTED = "run.json"


@dataclass(slots=True)
class ArrayBytes:
    """Bytes of a study's arrays by step and by cohort, as its events tell them.

    Attributes:
        steps: by step of the study `computations`, `masked`, `up` (from all cohorts) and `down` (to all).
        cohorts: `up` and `down` by cohort.
    """

    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    cohorts: dict[str, dict[str, int]] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Take in an event, if it tells of a computation."""
        data = event.data
        if event.kind != "computed" or not isinstance(data.get("step"), str):
            return
        new = {"computations": 0, "masked": bool(data.get("masked")), "up": 0, "down": 0}
        step = self.steps.setdefault(data["step"], new)
        step["computations"] += 1
        for way in ("up", "down"):
            sizes = data.get(way)
            for cohort, size in sizes.items() if isinstance(sizes, Mapping) else ():
                step[way] += int(size)
                own = self.cohorts.setdefault(str(cohort), {"up": 0, "down": 0})
                own[way] += int(size)

    @property
    def total(self) -> int:
        """Bytes of all."""
        return sum(step["up"] + step["down"] for step in self.steps.values())


def is_study(view: RunView) -> bool:
    """Whether a run is an association study."""
    return view.job.get("workflow") == STUDY


def check_study(view: RunView) -> None:
    """Check that a run has results that can be formatted here.

    Raises:
        HanseError: INVALID_INPUT when it is no study; UNAVAILABLE without hanse_genomics.
    """
    check_formatter()
    if not is_study(view):
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"run {view.run} is no association study, so it has no results but its model"
        )


def check_formatter() -> None:
    """Check that results can be formatted here.

    Raises:
        HanseError: UNAVAILABLE when hanse_genomics is not installed.
    """
    if importlib.util.find_spec(FORMATTER) is None:
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            f"{FORMATTER}: not installed beside the SDK, expected for tables and reports",
            hint=to_install("hanse-genomics[parquet,report]"),
        )


def save_study(run: Run, folder: str | Path, *, traffic: ArrayBytes | None = None) -> dict[str, Any]:
    """Wait for a study, download what it made, and write its table and its report.

    Args:
        folder: made where it is missing: `results.tsv.gz`, `results.parquet`, `report.html`, both plots, and what they
            are made of.
        traffic: counted already, by one who has watched the run; None: it is counted here.

    Returns:
        `files`, `without` (what could not be made, and what to install for it), `test`, `snps`, `tested`, `significant`
        at 5e-8, `inflation`.

    Raises:
        HanseError: what the run failed of; INVALID_INPUT when it is no study; UNAVAILABLE without hanse_genomics.
    """
    into = Path(folder)
    check_study(run.view)
    if traffic is None:
        traffic = ArrayBytes()
        for event in run.watch():
            traffic.take(event)
    fetch_study(run, into, traffic)
    return publish(into)


async def asave_study(run: AsyncRun, folder: str | Path) -> dict[str, Any]:
    """The same for asyncio, for a run of `hanse.aconnect`."""
    into, traffic = Path(folder), ArrayBytes()
    check_study(run.view)
    async for event in run.watch():
        traffic.take(event)
    check_completed(run.view)
    for name in OUTPUTS:
        await run.download(name, into / f"{name}.safetensors")
    note_run(run.view, into, traffic)
    return await asyncio.to_thread(publish, into)


def fetch_study(run: Run, folder: Path, traffic: ArrayBytes) -> None:
    """Download what a completed study has made, and note what is known of the run beside it.

    Raises:
        HanseError: what the run failed of.
    """
    check_completed(run.view)
    for name in OUTPUTS:
        run.download(name, folder / f"{name}.safetensors")
    note_run(run.view, folder, traffic)


def note_run(view: RunView, folder: Path, traffic: ArrayBytes) -> None:
    """Write down what the report tells of a run."""
    secured = view.job.get("secure_aggregation") or {}
    noted = {
        "project": view.project, "run": view.run, "mode": secured.get("mode", ""), "traffic": traffic.cohorts,
        "steps": traffic.steps,
    }  # fmt: skip
    (folder / _NOTED).write_text(json.dumps(noted, indent=1), encoding="utf-8")


def publish(folder: Path) -> dict[str, Any]:
    """Write table and report of downloaded results; as `save_study`."""
    check_formatter()
    answers: list[dict[str, Any]] = run_formatter("publish", str(folder))
    return answers[0]


def run_formatter(*arguments: str) -> Any:
    """What `python -m hanse_genomics` answers.

    Raises:
        HanseError: what it says is wrong; TIMEOUT.
    """
    command = [sys.executable, "-m", FORMATTER, *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise HanseError(ErrorCode.TIMEOUT, f"{FORMATTER} {arguments[0]}: not done within {_LIMIT_S:g} s") from None
    if done.returncode:
        raise _said(done.stderr, arguments[0])
    return json.loads(done.stdout.splitlines()[-1])


def check_completed(view: RunView) -> None:
    """Check that a run has ended well.

    Raises:
        HanseError: what it failed of; CANCELLED; INVALID_INPUT while it has not ended.
    """
    if view.state == "failed":
        # A run's reason begins with the code of what it failed of.
        code, _, reason = view.reason.partition(": ")
        raise HanseError(ErrorCode.of(code), f"run {view.run} failed: {reason or code}")
    if view.state == "cancelled":
        raise HanseError(ErrorCode.CANCELLED, f"run {view.run} was cancelled")
    if not view.ended:
        raise HanseError(ErrorCode.INVALID_INPUT, f"run {view.run} is {view.state}, completed was expected")


def _said(errors: str, command: str) -> HanseError:
    """The error that the formatter ended by: its last line is one in JSON."""
    last = (errors.strip().splitlines() or [""])[-1]
    try:
        found = json.loads(last)["error"]
        return HanseError(ErrorCode.of(str(found["code"])), str(found["message"]), hint=str(found["hint"]))
    except (ValueError, KeyError, TypeError):
        return HanseError(ErrorCode.INTERNAL, f"{FORMATTER} {command}: failed: {errors.strip()[-300:]}")
