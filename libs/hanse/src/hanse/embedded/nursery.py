"""Datapods forked from one process that has loaded torch once, as their supervisor sees it.

Loading torch takes most of a small demonstration's start. Each site is a process of its own all the same, with its own
data, log and worker; where there is no nursery, or it has died, sites are started as everywhere else.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from hanse.embedded.dying import die_with_parent

_PREFIX = (sys.executable, "-m", "hanse_datapod")
_FORK_LIMIT = 60.0
_STOP_LIMIT = 10.0
# As datapods set them for their workers, which inherit this process's.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
    "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
}  # fmt: skip


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
    """Forks datapods while the context lasts; leaving it ends those that still run. Does nothing where not on Linux."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[ForkedProcess | None]] = {}
        self._running: dict[int, ForkedProcess] = {}

    async def __aenter__(self) -> Self:
        if sys.platform == "linux":
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "hanse_datapod.process.nursery",
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                    env={**os.environ, **_ENVIRONMENT}, preexec_fn=die_with_parent, start_new_session=True,
                )  # fmt: skip
            self._reading = asyncio.create_task(self._read(self._process), name="nursery")
        return self

    async def fork(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> ForkedProcess | None:
        """A datapod of these arguments; None where this cannot give one, and it is to be started otherwise."""
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            return None
        if tuple(argv[:3]) != _PREFIX or name in self._asked:
            return None
        answer: asyncio.Future[ForkedProcess | None] = asyncio.get_running_loop().create_future()
        self._asked[name] = answer
        asked = {"name": name, "argv": list(argv[3:]), "environment": dict(environment), "log": str(log)}
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            async with asyncio.timeout(_FORK_LIMIT):
                return await asyncio.shield(answer)
        except (OSError, TimeoutError):
            return None
        finally:
            self._asked.pop(name, None)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        stream = process.stdout
        while stream is not None and (line := await stream.readline()):
            told = json.loads(line)
            if "name" in told:
                self._running[told["pid"]] = forked = ForkedProcess(told["pid"])
                answer = self._asked.get(told["name"])
                if answer is not None and not answer.done():
                    answer.set_result(forked)
                else:
                    forked.kill()  # nobody waits for it any more
            elif told["pid"] in self._running:
                self._running.pop(told["pid"]).end(told["status"])
        await process.wait()
        # The kernel ends all that a process has forked with it.
        for forked in self._running.values():
            forked.end(-signal.SIGKILL)
        self._running.clear()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(None)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, reading = self._process, self._reading
        if process is None or reading is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(reading), _STOP_LIMIT)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await reading
