"""Processes forked from one that has loaded their modules once, as their supervisor sees it.

Loading modules takes most of a small hub's start, and torch most of a site's. Each is a process of its own all the
same; where there is no nursery, or it has died, they are started as everywhere else.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hanse.embedded.dying import die_with_parent

_FORK_LIMIT = 60.0
_STOP_LIMIT = 10.0


@dataclass(frozen=True, slots=True)
class NurseryKind:
    """What a nursery forks.

    Attributes:
        program: arguments of `python -m` that start it.
        modules: those whose `python -m` it can stand for.
        environment: of the nursery; what libraries read of it while they are loaded holds for all that it forks.
        shared: the socket of one that runs already, for hubs that come and go (`forking.serve_at`).
    """

    program: Sequence[str]
    modules: frozenset[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    shared: Path | None = None


DATAPODS = NurseryKind(
    ("hanse_datapod.process.nursery",),
    frozenset({"hanse_datapod"}),
    # As datapods set them for their workers, which inherit this process's.
    {
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
        "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    },
)  # fmt: skip

_OF_SERVICES = {
    "hanse_coordinator": "hanse_coordinator.app",
    "hanse_aggregator": "hanse_aggregator.service",
    "hanse_compensator": "hanse_compensator.service",
    "hanse_model_registry": "hanse_model_registry.service",
    "hanse_console": "hanse_console.app",
}
SERVICES = NurseryKind(
    ("hanse.embedded.service_nursery", *_OF_SERVICES.values(), "hanse_fabric.bus.nats",
     "hanse_fabric.store.s3", "hanse_fabric.store.minio_client"),
    frozenset(_OF_SERVICES), {"OPENBLAS_NUM_THREADS": "1"},
)  # fmt: skip


class ForkedProcess:
    """What is used of `asyncio.subprocess.Process`, for a process that the nursery has forked."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        try:
            self._handle: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._handle = None  # gone already; its status is on its way

    async def wait(self) -> int:
        """Its exit status, negative for a signal's number, when it has ended."""
        await self._ended.wait()
        return 0 if self.returncode is None else self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def end(self, status: int) -> None:
        """Note that it has ended."""
        self.returncode = status
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._ended.set()

    def _send(self, number: signal.Signals) -> None:
        # By a handle: the number may be another process's by now.
        if self._handle is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)


class Nursery:
    """Forks processes while the context lasts; leaving it ends those that still run. Does nothing where not on
    Linux."""

    def __init__(self, kind: NurseryKind, log: Path) -> None:
        self._kind, self._log = kind, log
        self._process: asyncio.subprocess.Process | None = None
        self._asking: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[ForkedProcess | None]] = {}
        self._running: dict[int, ForkedProcess] = {}

    async def __aenter__(self) -> Self:
        if sys.platform == "linux":
            with suppress(OSError):  # where it cannot be started, nor can they, which is said of them
                answers = await (self._start() if self._kind.shared is None else self._connect(self._kind.shared))
                self._reading = asyncio.create_task(self._read(answers), name="nursery")
        return self

    async def _start(self) -> asyncio.StreamReader:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", *self._kind.program,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                env={**os.environ, **self._kind.environment}, preexec_fn=die_with_parent, start_new_session=True,
            )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - they are pipes
        self._asking = process.stdin
        return process.stdout

    async def _connect(self, shared: Path) -> asyncio.StreamReader:
        answers, self._asking = await asyncio.open_unix_connection(shared)
        return answers

    async def fork(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> ForkedProcess | None:
        """A process of these arguments; None where this cannot give one, and it is to be started otherwise."""
        asking, reading = self._asking, self._reading
        if asking is None or reading is None or reading.done() or name in self._asked:
            return None
        if tuple(argv[:2]) != (sys.executable, "-m") or argv[2] not in self._kind.modules:
            return None
        answer: asyncio.Future[ForkedProcess | None] = asyncio.get_running_loop().create_future()
        self._asked[name] = answer
        asked = {
            "name": name, "argv": list(argv[2:]), "folder": str(Path.cwd()), "log": str(Path.cwd() / log),
            "environment": {**os.environ, **self._kind.environment, **environment},
        }  # fmt: skip
        try:
            asking.write(json.dumps(asked).encode() + b"\n")
            async with asyncio.timeout(_FORK_LIMIT):
                return await asyncio.shield(answer)
        except (OSError, TimeoutError):
            return None
        finally:
            self._asked.pop(name, None)

    async def _read(self, answers: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while line := await answers.readline():
                self._note(json.loads(line))
        if self._process is not None:
            await self._process.wait()
        # The kernel ends all that a process has forked with it.
        for forked in self._running.values():
            forked.end(-signal.SIGKILL)
        self._running.clear()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(None)

    def _note(self, told: dict[str, Any]) -> None:
        if "name" in told:
            forked = ForkedProcess(told["pid"]) if told["pid"] else None
            if forked is not None:
                self._running[forked.pid] = forked
            answer = self._asked.get(told["name"])
            if answer is not None and not answer.done():
                answer.set_result(forked)
            elif forked is not None:
                forked.kill()  # nobody waits for it any more
        elif told["pid"] in self._running:
            self._running.pop(told["pid"]).end(told["status"])

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asking, reading = self._asking, self._reading
        if asking is None or reading is None:
            return
        asking.close()
        if self._process is not None and not self._running:  # it may still be loading
            with suppress(ProcessLookupError):
                self._process.kill()
        try:
            await asyncio.wait_for(asyncio.shield(reading), _STOP_LIMIT)
        except TimeoutError:
            if self._process is not None:
                with suppress(ProcessLookupError):
                    self._process.kill()
                await reading
            else:
                reading.cancel()
