"""What the scenes stand on: a deployment whose bus is heard, what comes of it, and waiting for what happens there."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanse.embedded.deployment import Deployment
from hanse.hub import Project, Run
from releases.recording import StoredHome
from releases.tap import Tap

QUIET_S = 2.0
"""How long after a run's end its last notices may come."""


@dataclass
class Played:
    """What came of the scenes: each run's tap and identity, objects that it found in the store, and site homes."""

    runs: dict[str, tuple[Tap, Run]] = field(default_factory=dict)
    objects: dict[str, dict[str, bytes]] = field(default_factory=dict)
    homes: dict[str, tuple[dict[str, Any], StoredHome]] = field(default_factory=dict)


@dataclass
class Stage:
    """A deployment whose bus is heard."""

    deployment: Deployment
    tap: Tap
    played: Played

    async def submit(self, body: dict[str, Any]) -> Run:
        return await asyncio.to_thread(self.deployment.project.run, body)

    async def done(self, name: str, run: Run, state: str = "completed") -> None:
        """Wait for the end, and for what is said after it."""
        print(f"{name}: run {run.id}", flush=True)
        await asyncio.to_thread(run.wait)
        assert run.state == state, f"{name}: {run.state}: {run.view.reason}"
        await asyncio.sleep(QUIET_S)
        self.played.runs[name] = self.tap, run

    @contextmanager
    def standing_still(self, site: str) -> Iterator[None]:
        """A site's process does nothing while inside."""
        pid = self.deployment.datapods[site].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def keep_home(played: Played, name: str, home: Path, **header: Any) -> None:
    """Remember the files of a site's home folder, but for what is only space or only a copy."""
    files = {
        str(path.relative_to(home)): (path.stat().st_mode & 0o777, path.read_bytes())
        for path in sorted(home.rglob("*"))
        if path.is_file() and path.suffix != ".reserve" and path.parent.name != "cache"
    }
    played.homes[name] = header, StoredHome({}, files)


async def answered(run: Run, step: str, name: str) -> None:
    """Return when the site's answer to the step is in."""
    await seen(run, "task-answered", lambda event: (event.data["step"], event.data["participant"]) == (step, name))


async def round_finished(run: Run, number: int) -> None:
    await seen(run, "round-finished", lambda event: event.round == number)


async def seen(run: Run, kind: str, fits: Callable[[Any], bool]) -> None:
    def look() -> bool:
        return any(event.kind == kind and fits(event) for event in run.watch())

    assert await asyncio.to_thread(look), f"the run ended without {kind}: {run.refresh().view.reason}"


async def present(project: Project, count: int) -> None:
    """Return when so many sites are online."""
    await until(lambda: sum(view.online for view in project.participants()) >= count, "the sites do not come")


async def until(true: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + 120
    while not await asyncio.to_thread(true):
        assert time.monotonic() < end, otherwise
        await asyncio.sleep(0.05)
