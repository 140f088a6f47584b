"""Supervised child processes: started, restarted when they die, stopped together, never outliving their parent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hanse.embedded.dying import die_with_parent
from hanse.embedded.nursery import ForkedProcess, Nursery
from hanse_fabric.errors import ErrorCode, HanseError

_BACKOFF = (0.0, 0.1, 0.5, 1.0, 2.0)
_CALM_AFTER = 10.0  # a child that lived so long starts its backoff anew
_TAIL_LINES = 8


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to start a process.

    Attributes:
        ready: whether it answers now; asked until it says yes.
        grace: seconds between SIGTERM and SIGKILL.
        tidy: removes what the process leaves behind; called after each of its ends.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    ready: Callable[[], Awaitable[bool]] | None = None
    grace: float = 10.0
    tidy: Callable[[], None] = lambda: None


class Child:
    """One supervised process; its output goes to `<logs>/<name>.log`."""

    def __init__(
        self, spec: ChildSpec, logs: Path, on_start: Callable[[], None], nursery: Nursery | None = None
    ) -> None:
        self.spec = spec
        self.log = logs / f"{spec.name}.log"
        self.restarts = 0
        self._on_start = on_start
        self._nursery = nursery
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None
        self._stopping = False
        self._starting = asyncio.Lock()

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def supervise(self) -> None:
        """Keep the process running until `stop`."""
        failures = 0
        while not self._stopping:
            await asyncio.sleep(_BACKOFF[min(failures, len(_BACKOFF) - 1)])
            started = time.monotonic()
            process = await self._start()
            if process is not None:
                await process.wait()
                self._clear(process.pid)
            failures = 1 if time.monotonic() - started > _CALM_AFTER else failures + 1
            self.restarts += 1

    async def wait_ready(self, timeout: float) -> None:
        """Return when the process answers.

        Raises:
            HanseError: UNAVAILABLE with the end of its log, when it has not within `timeout` seconds.
        """
        give_up = time.monotonic() + timeout
        while time.monotonic() < give_up:
            if self.pid is not None and (self.spec.ready is None or await self.spec.ready()):
                return
            if self.restarts >= len(_BACKOFF):
                break
            await asyncio.sleep(0.02)
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            f"{self.spec.name} did not become ready; the end of {self.log}:\n{tail(self.log)}",
        )

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL after the grace period; what the process itself had started ends with it."""
        self._stopping = True
        async with self._starting:  # so that a start under way is not missed
            process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self.spec.grace)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._clear(process.pid)

    def _clear(self, pid: int) -> None:
        """End what a process that is gone has left in its session, and remove its files."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self.spec.tidy()

    async def _start(self) -> asyncio.subprocess.Process | ForkedProcess | None:
        """The new process; None when stopping, or when it cannot be started, which its log then says."""
        async with self._starting:
            if self._stopping:
                return None
            if self._nursery is not None:
                self._process = await self._nursery.fork(
                    self.spec.name, self.spec.argv, self.spec.environment, self.log
                )
                if self._process is not None:
                    self._on_start()
                    return self._process
            with self.log.open("ab") as log:
                try:
                    self._process = await asyncio.create_subprocess_exec(
                        *self.spec.argv,
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env={**os.environ, **self.spec.environment},
                        preexec_fn=die_with_parent if sys.platform == "linux" else None,
                        # ctrl-C reaches the supervisor alone, which stops the others in order
                        start_new_session=True,
                    )
                except OSError as error:
                    log.write(f"{self.spec.argv[0]}: cannot be started: {error.strerror}\n".encode())
                    return None
        self._on_start()
        return self._process


class Supervisor:
    """The children of one folder. `processes.json` there says who runs, for people and for tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs = folder / "logs"
        self._logs.mkdir(parents=True, exist_ok=True)
        self._children: list[tuple[Child, asyncio.Task[None]]] = []

    def start(self, spec: ChildSpec, nursery: Nursery | None = None) -> Child:
        """Start and keep a process, where one is given and alive by forking it in the nursery."""
        child = Child(spec, self._logs, self._record, nursery)
        task = asyncio.get_running_loop().create_task(child.supervise(), name=f"supervise {spec.name}")
        self._children.append((child, task))
        return child

    async def stop(self) -> None:
        """Stop all: the last started first, those of one rank together."""
        for rank in _ranks([child for child, _ in self._children]):
            await asyncio.gather(*(child.stop() for child in rank))
        for _, task in self._children:
            task.cancel()
        await asyncio.gather(*(task for _, task in self._children), return_exceptions=True)
        self._children.clear()
        (self._folder / "processes.json").unlink(missing_ok=True)

    def pids(self) -> dict[str, int]:
        """The running processes' ids by name."""
        return {child.spec.name: child.pid for child, _ in self._children if child.pid is not None}

    def _record(self) -> None:
        path = self._folder / "processes.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(self.pids(), indent=1))
        partial.replace(path)


SERVERS = ("nats-server", "object-store")
"""What the names of servers begin with."""


def _ranks(children: list[Child]) -> list[list[Child]]:
    """Services and sites stop before the servers they need."""
    return [
        [child for child in children if not child.spec.name.startswith(SERVERS)],
        [child for child in children if child.spec.name.startswith(SERVERS)],
    ]


def tail(log: Path) -> str:
    """The last lines of a log."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
    except OSError:
        return "(no log)"
