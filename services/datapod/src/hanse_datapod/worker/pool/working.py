"""A pool's worker: takes requests from the shared folder and has a child process of its own do them, one at a time.

What runs here has no torch: it beats, passes progress and sums on, and kills the child when the request is withdrawn.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import os
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.frames import error_frame, error_of
from hanse_datapod.worker.pool.files import VERSION, PoolFolder, read_json, write_json
from hanse_datapod.worker.pool.heartbeats import BEAT_S
from hanse_datapod.worker.pool.staging import placed
from hanse_datapod.worker.sandbox.terms import Reach, absolute
from hanse_fabric.errors import ErrorCode, HanseError

_LOOK_S, _IDLE_LOOK_S = 0.05, 0.5
_SUM_LOOK_S = 0.02
_log = logging.getLogger(__name__)


class PoolWorker:
    """One worker of a pool.

    Args:
        folder: shared with the agent.
        device: HANSE_DEVICE of this worker, which wins over the request's unless it is `auto`.
        beat_s: seconds from heartbeat to heartbeat.
    """

    def __init__(self, folder: Path, name: str, *, device: str = "auto", beat_s: float = BEAT_S) -> None:
        self._files, self._device, self._beat_s = PoolFolder(folder, name), device, beat_s
        # A new name for each start: requests that an earlier process of this pod took are not continued.
        self.name = f"{socket.gethostname()[:40].replace('@', '-')}-{os.getpid()}-{secrets.token_hex(4)}"
        self._process = WorkerProcess(reach=Reach(write=absolute([self._files.work])))
        self._busy = ""

    @property
    def pid(self) -> int | None:
        """The child's process id, where one runs."""
        return self._process.pid

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; what is under way then is given back at once, for another worker.

        Raises:
            HanseError: NO_SPACE where not even a heartbeat can be written.
        """
        await asyncio.to_thread(self._files.make)
        await self._beat(0)
        await self._process.start()
        beating = asyncio.create_task(self._go_on_beating(), name="heartbeat")
        working = asyncio.create_task(self._work_off(), name="work")
        stopped = asyncio.create_task(stopping.wait(), name="stopping")
        try:
            await asyncio.wait({beating, working, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, beating, stopped):
                task.cancel()
            results = await asyncio.gather(working, beating, stopped, return_exceptions=True)
            (self._files.workers / f"{self.name}.json").unlink(missing_ok=True)
            await self._process.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _go_on_beating(self) -> None:
        for beat in itertools.count(1):
            await asyncio.sleep(self._beat_s)
            await self._beat(beat)

    async def _beat(self, beat: int) -> None:
        body = {"beats": beat, "busy": self._busy, "device": self._device}
        await asyncio.to_thread(write_json, self._files.workers / f"{self.name}.json", body)

    async def _work_off(self) -> None:
        wait = _LOOK_S
        while True:
            request = await asyncio.to_thread(self._take)
            if request is None:
                await asyncio.sleep(wait)
                wait = min(1.5 * wait, _IDLE_LOOK_S)
                continue
            self._busy, wait = request, _LOOK_S
            try:
                await self._answer(request)
            finally:
                self._busy = ""

    def _take(self) -> str | None:
        """Take the oldest request; None: there is none, or others were faster."""
        for path in sorted(self._files.requests.glob("*.json")):
            with suppress(FileNotFoundError):
                path.rename(self._taken(path.stem))
                return path.stem
        return None

    def _taken(self, request: str) -> Path:
        return self._files.taken / f"{request}@{self.name}.json"

    async def _answer(self, request: str) -> None:
        """Do a request and put the answer there; a withdrawn one is dropped."""
        folder = self._files.work / request
        work = asyncio.create_task(self._do(request, folder), name=f"request {request}")
        try:
            while not (await asyncio.wait({work}, timeout=_LOOK_S))[0]:
                if not await asyncio.to_thread(self._taken(request).exists):
                    _log.info("a request was withdrawn", extra={"request": request})
                    return
            answer = work.result()
        except HanseError as error:
            answer = error_frame(error)
        except OSError:  # whose words may name files, and the answer may leave the site
            _log.exception("the disk or the system failed", extra={"request": request})
            answer = _error(ErrorCode.INTERNAL, "the pool's disk or system failed", "see the pool's log")
        except asyncio.CancelledError:
            answer = _error(ErrorCode.UNAVAILABLE, f"worker {self.name} was told to stop", "another one takes the task")
            _put(folder, answer)
            raise
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})
        await asyncio.to_thread(_put, folder, answer)

    async def _do(self, request: str, folder: Path) -> dict[str, Any]:
        asked = await asyncio.to_thread(read_json, self._taken(request))
        if asked is None:
            raise HanseError(ErrorCode.CANCELLED, f"request {request} was withdrawn")
        if asked.get("version") != VERSION:
            raise HanseError(
                ErrorCode.UNKNOWN_SCHEMA,
                f"pool request: version {asked.get('version')!r} is not {VERSION}, which this worker understands",
                hint="have the datapod and its pools run the same release",
            )
        body = placed(asked["body"], folder)
        if self._device != "auto":
            body["device"] = self._device
        numbers = itertools.count()

        def on_progress(fraction: float, text: str) -> None:
            with suppress(FileNotFoundError):  # withdrawn; noticed elsewhere
                write_json(folder / "progress.json", {"fraction": fraction, "text": text})

        async def exchange(key: str, values: bytes) -> bytes:
            return await _summed(folder, next(numbers), key, values)

        return await self._process.request(
            body, time_limit=asked["time_limit"], memory_limit=asked["memory_limit"], on_progress=on_progress,
            exchange=exchange if asked["exchange"] else None,
        )  # fmt: skip


async def _summed(folder: Path, number: int, key: str, values: bytes) -> bytes:
    """Ask the agent, which has the connection, for a sum; its limits end the wait.

    Raises:
        HanseError: what the agent says instead.
    """
    asked = {"key": key, "values": base64.b64encode(values).decode()}
    await asyncio.to_thread(write_json, folder / f"sum-{number}.asked", asked)
    while (told := await asyncio.to_thread(read_json, folder / f"sum-{number}.told")) is None:  # noqa: ASYNC110 - a file of another machine
        await asyncio.sleep(_SUM_LOOK_S)
    if "code" in told:
        raise error_of(told)
    return base64.b64decode(told["values"])


def _put(folder: Path, answer: dict[str, Any]) -> None:
    with suppress(FileNotFoundError):  # withdrawn meanwhile
        write_json(folder / "answer.json", answer)


def _error(code: ErrorCode, message: str, hint: str) -> dict[str, Any]:
    return error_frame(HanseError(code, message, hint=hint))
