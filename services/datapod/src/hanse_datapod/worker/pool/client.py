"""The agent's side of a pool: it writes requests as files, and reads answers like those of its own process."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanse_datapod.worker.client.sums import answer_sum
from hanse_datapod.worker.frames import error_of
from hanse_datapod.worker.pool.files import VERSION, PoolFolder, read_json, write_json
from hanse_datapod.worker.pool.heartbeats import DEAD_S, Heartbeats
from hanse_datapod.worker.pool.staging import fetch, stage
from hanse_datapod.worker.port import AskSum, OnProgress
from hanse_datapod.worker.told import check_frame
from hanse_fabric.errors import ErrorCode, HanseError

_LOOK_S = (0.02, 0.25)
"""Seconds from look to look: the first after there was news, and the most."""


@dataclass(frozen=True, slots=True)
class _RequestState:
    """What is in a request's folder now."""

    answer: dict[str, Any] | None
    progress: dict[str, Any] | None
    sum: dict[str, Any] | None
    taken_by: str | None


class PoolClient:
    """The way to one pool's workers; see `worker.client.process_worker.Process`. Several requests may be under way.

    Args:
        folder: shared with the workers; a pool has a folder of its name within.
        dead_s: seconds after which a worker without heartbeat is given up, by `clock`.
    """

    def __init__(
        self, folder: Path, name: str, *, dead_s: float = DEAD_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._files = PoolFolder(folder, name)
        self._beats = Heartbeats(self._files.workers, dead_s=dead_s, clock=clock)

    @property
    def pid(self) -> int | None:
        """There is no process of this machine."""
        return None

    async def start(self) -> None:
        """Make the folder, and drop what an agent before this one has asked."""
        await asyncio.to_thread(self._start)

    def workers(self) -> int:
        """How many workers are alive, as of the last look; looks by itself, which takes a moment of disk."""
        self._beats.look()
        return self._beats.count()

    async def request(
        self, body: dict[str, Any], *, time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """See `WorkerProcess.request`; the time limit includes the wait for a worker.

        Raises:
            HanseError: as there; UNAVAILABLE where the worker that took the request is dead, or was told to stop: the
                agent asks again, and another one takes it.
        """
        # Names sort by age, so that workers take the oldest first.
        request = f"{time.time_ns():020d}-{secrets.token_hex(8)}"
        ends = time.monotonic() + time_limit
        limits = {"time_limit": time_limit, "memory_limit": memory_limit, "exchange": exchange is not None}
        try:
            await asyncio.to_thread(self._ask, request, body, limits)
            answer = await self._answered(request, ends, time_limit, on_progress, exchange)
            if answer["kind"] == "error":
                raise error_of(answer)
            await asyncio.to_thread(fetch, body, answer, self._files.work / request)
            return answer
        finally:
            # Not awaited, so that a cancelled request is withdrawn from its worker before the agent goes on.
            self._files.forget(request)

    def _start(self) -> None:
        self._files.make()
        self._files.clear()
        self._beats.look()

    def _ask(self, request: str, body: dict[str, Any], limits: dict[str, Any]) -> None:
        self._files.make()
        staged = stage(body, self._files.work / request)
        asked = {"version": VERSION, "id": request, "body": staged, **limits}
        write_json(self._files.requests / f"{request}.json", asked)

    async def _answered(
        self, request: str, ends: float, limit: float, on_progress: OnProgress, exchange: AskSum | None
    ) -> dict[str, Any]:
        wait, told, sums = _LOOK_S[0], None, 0
        while True:
            news = await asyncio.to_thread(self._look, request, sums)
            if news.answer is not None:
                return news.answer
            if news.progress is not None and news.progress != told:
                told, wait = news.progress, _LOOK_S[0]
                on_progress(told["fraction"], told["text"])
            if news.sum is not None and exchange is not None:
                total = await answer_sum(exchange, news.sum, limit=ends - time.monotonic())
                await asyncio.to_thread(write_json, self._files.work / request / f"sum-{sums}.told", total)
                sums, wait = sums + 1, _LOOK_S[0]
            if news.taken_by is not None and not self._beats.alive(news.taken_by):
                raise HanseError(
                    ErrorCode.UNAVAILABLE,
                    f"pool {self._name}: worker {news.taken_by} gives no sign of life, before it answered",
                    hint="the task is given to another; see the pool's pods",
                )
            if time.monotonic() >= ends:
                raise self._too_long(news.taken_by, limit)
            await asyncio.sleep(min(wait, max(0.0, ends - time.monotonic())))
            wait = min(wait * 1.5, _LOOK_S[1])

    def _look(self, request: str, sums: int) -> _RequestState:
        folder = self._files.work / request
        answer = _told(folder / "answer.json")
        if answer is not None:
            return _RequestState(answer, None, None, None)
        taken_by = self._files.taken_by(request)
        # A worker's heartbeat begins before it takes a request.
        self._beats.look(*([] if taken_by is None else [taken_by]))
        if taken_by is not None and not self._beats.alive(taken_by):
            answer = _told(folder / "answer.json")  # a worker that stops in order answers before its heartbeat ends
        return _RequestState(
            answer,
            _told(folder / "progress.json", kind="progress"),
            _told(folder / f"sum-{sums}.asked", kind="sum"),
            taken_by,
        )  # fmt: skip

    def _too_long(self, taken_by: str | None, limit: float) -> HanseError:
        if taken_by is None:
            return HanseError(
                ErrorCode.TIMEOUT,
                f"pool {self._name}: none of its workers took the task within {limit:g} s "
                f"({self._beats.count()} are at work)",
                hint="see the pool's pods, or ask for another device in train.resources",
            )
        return HanseError(
            ErrorCode.TIMEOUT, f"training did not end within {limit:g} s and was stopped",
            hint="fewer epochs, or a longer limit in the site's policy and the job's deadline",
        )  # fmt: skip


def _told(path: Path, **kind: str) -> dict[str, Any] | None:
    """What a worker's file says, of the kind that its name says."""
    body = read_json(path)
    return None if body is None else check_frame(body | kind)
