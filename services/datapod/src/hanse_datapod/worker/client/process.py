"""The worker's process as the agent sees it: started at once, warm between tasks, killed at a limit, restarted.

The process is `python -m hanse_datapod.worker`, with `--studies` for one without torch. It ends by itself when its
stdin closes, so it never outlives the agent. It gets none of the agent's HANSE_ variables: site code runs in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from hanse_datapod.worker.client.adopted import AdoptedProcess, take_prepared
from hanse_datapod.worker.frames import answer_sum, error_of, length_of, pack
from hanse_datapod.worker.port import AskSum, OnProgress
from hanse_fabric.errors import ErrorCode, HanseError

_START_LIMIT = 120.0
_MEMORY_EVERY = 0.05
_STOP_LIMIT = 5.0
# glibc gives large blocks back to the system when they are freed, and the next round's gradients would be fresh pages
# again, which cost a third of a small round's time: up to this much free memory is kept.
_TRAINING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
# The same for tiles of genotypes. The larger arrays read from files are mapped apart and given back once dropped.
_STUDYING = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(128 << 20)}
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Child:
    """A running process, and whether it has said that it is ready."""

    process: asyncio.subprocess.Process | AdoptedProcess
    ready: bool = False


@dataclass(slots=True, eq=False)
class WorkerProcess:
    """One child process that answers one request at a time.

    Attributes:
        studies: it computes on genotypes, and loads no torch.
        threads: of its linear algebra.
    """

    studies: bool = False
    threads: int = 1
    _child: _Child | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closed: bool = False

    async def start(self) -> None:
        """Start the child if there is none; does not wait until it is ready."""
        if self._closed:
            raise HanseError(ErrorCode.CANCELLED, "worker: it was closed")
        if self._child is not None and self._child.process.returncode is None:
            return
        if not self.studies and (prepared := await take_prepared()) is not None:
            self._child = _Child(prepared)
            return
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "hanse_datapod.worker",
            *(["--studies"] if self.studies else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(_STUDYING if self.studies else _TRAINING, self.threads),
        )
        self._child = _Child(process)

    @property
    def pid(self) -> int | None:
        """The child's process id, where one runs."""
        return self._child.process.pid if self._child is not None else None

    async def request(
        self, body: dict[str, Any], *, time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Send a request and return the answer. The child is killed when a request is cancelled or fails midway.

        Raises:
            HanseError: TIMEOUT, TOO_LARGE (memory), UNAVAILABLE where the child died (the agent asks again), or what
                the child raised.
        """
        async with self._turn:
            await self.start()
            child = self._child
            if child is None:
                raise HanseError(ErrorCode.INTERNAL, "worker: no process")
            try:
                await self._until_ready(child)
                answer = await self._converse(child, body, time_limit, memory_limit, on_progress, exchange)
            except BaseException:
                await self._kill()
                if not self._closed:
                    with suppress(OSError, HanseError):
                        await self.start()  # the next task finds it warm
                raise
        if answer["kind"] == "error":
            raise error_of(answer)
        return answer

    async def close(self) -> None:
        """Kill the child; a request that waits for it ends with an error."""
        self._closed = True
        await self._kill()

    async def _until_ready(self, child: _Child) -> None:
        if child.ready:
            return
        try:
            async with asyncio.timeout(_START_LIMIT):
                await _read(child)
        except TimeoutError:
            raise HanseError(
                ErrorCode.TIMEOUT, f"worker: not ready {_START_LIMIT:.0f} s after its start",
                hint="see its messages in the datapod's log",
            ) from None  # fmt: skip
        child.ready = True

    async def _converse(
        self, child: _Child, body: dict[str, Any], time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None,
    ) -> dict[str, Any]:  # fmt: skip
        ends = time.monotonic() + time_limit
        _write(child, pack(body))
        reading = asyncio.ensure_future(_read(child))
        try:
            while True:
                left = ends - time.monotonic()
                wait = left if memory_limit is None else min(left, _MEMORY_EVERY)
                done, _ = await asyncio.wait({reading}, timeout=max(0.0, wait))
                if done:
                    answer = reading.result()
                    if answer["kind"] == "sum" and exchange is not None:
                        _write(child, pack(await answer_sum(exchange, answer, limit=left)))
                    elif answer["kind"] == "progress":
                        on_progress(answer["fraction"], answer["text"])
                    else:
                        return answer
                    reading = asyncio.ensure_future(_read(child))
                if time.monotonic() >= ends:
                    raise self._too_long(time_limit)
                if memory_limit is not None:
                    self._check_memory(child.process.pid, memory_limit)
        finally:
            if not reading.done():
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    def _too_long(self, limit: float) -> HanseError:
        what, less = ("the study's step", "smaller chunks") if self.studies else ("training", "fewer epochs")
        return HanseError(
            ErrorCode.TIMEOUT, f"{what} did not end within {limit:g} s and was stopped",
            hint=f"{less}, or a longer limit in the site's policy and the job's deadline",
        )  # fmt: skip

    def _check_memory(self, pid: int, limit: int) -> None:
        try:
            used = psutil.Process(pid).memory_info().rss
        except psutil.NoSuchProcess:
            return  # the process has ended, which `_read` reports
        if used > limit:
            what, less = ("the study", "smaller chunks") if self.studies else ("training", "a smaller batch or model")
            raise HanseError(
                ErrorCode.TOO_LARGE,
                f"{what} used {used >> 20} MiB of memory, {limit >> 20} are allowed, and was stopped",
                hint=f"{less}, or a higher limit in the site's policy",
            )

    async def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(ProcessLookupError):
            child.process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_LIMIT):
                await child.process.wait()


def _environment(allocator: dict[str, str], threads: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANSE_")}
    libraries = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    return allocator | kept | libraries | {"PYTHONHASHSEED": "0"}


def _write(child: _Child, frame: bytes) -> None:
    if child.process.stdin is None:
        raise HanseError(ErrorCode.INTERNAL, "worker: no pipe to its stdin")
    child.process.stdin.write(frame)


async def _read(child: _Child) -> dict[str, Any]:
    stream = child.process.stdout
    if stream is None:
        raise HanseError(ErrorCode.INTERNAL, "worker: no pipe from its stdout")
    try:
        text = await stream.readexactly(length_of(await stream.readexactly(4)))
    except (asyncio.IncompleteReadError, ConnectionError):
        status = await child.process.wait()
        _log.warning("the worker's process %s ended with status %s", child.process.pid, status)
        raise HanseError(
            ErrorCode.UNAVAILABLE, f"the worker's process ended (status {status}) before it answered",
            hint="a status of -9 mostly means that the machine ran out of memory; see the datapod's log",
        ) from None  # fmt: skip
    answer: dict[str, Any] = json.loads(text)
    return answer
