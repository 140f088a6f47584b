"""What each process of a deployment takes of a core: for a tiny round, and for a minute in which nothing is asked.

A busy machine changes these figures much less than what a clock shows, so two releases can be compared on any.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from hanse.embedded.deployment import Deployment
from hanse.hub import Run

_WARM = 10
"""Rounds before the first that counts: processes load what they need in their first."""


def used(deployment: Deployment) -> Counter[str]:
    """Milliseconds of a core so far, by kind of process: `datapods` are all sites, `workers` what these started."""
    found = Counter[str]()
    for name, pid in deployment.hub.supervisor.pids().items():
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            site = name.startswith("datapod")
            found["datapods" if site else name] += _milliseconds(process)
            for child in process.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    found["workers" if site else name] += _milliseconds(child)
    return found


def _milliseconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return 1000 * (times.user + times.system)


def between(before: Mapping[str, float], after: Mapping[str, float], parts: float) -> dict[str, float]:
    """What was used in one of so many parts of the time between, by kind of process."""
    return {name: round((after[name] - before.get(name, 0.0)) / parts, 2) for name in sorted(after)}


async def a_round(deployment: Deployment, job: Mapping[str, Any]) -> dict[str, float]:
    """Run a job; milliseconds of a core that one of its rounds takes, by kind of process. The first rounds, and what a
    run takes at its beginning and its end, are left out."""
    run = await asyncio.to_thread(deployment.project.run, job)
    last = int(job["rounds"]) - 1
    seen = await asyncio.to_thread(_watched, deployment, run, last)
    if run.state != "completed":
        raise RuntimeError(f"the run ended {run.state}: {run.view.reason}")
    return between(seen[_WARM], seen[last], last - _WARM)


def _watched(deployment: Deployment, run: Run, last: int) -> dict[int, Counter[str]]:
    ends = (event.round for event in run.watch() if event.kind == "round-finished")
    return {number: used(deployment) for number in ends if number in (_WARM, last)}


async def an_idle_minute(deployment: Deployment, *, seconds: float = 60.0) -> dict[str, float]:
    """Milliseconds of a core that a minute takes in which nothing is asked, by kind of process."""
    before = used(deployment)
    await asyncio.sleep(seconds)
    return between(before, used(deployment), seconds / 60)
