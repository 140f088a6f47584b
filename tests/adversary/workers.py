"""A site's true workers, in a thread in place of their process, so that an attack takes a fraction of a second."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_datapod.worker.foreign.settings import ForeignSettings
from hanse_datapod.worker.frames import error_of
from hanse_datapod.worker.port import AskSum, OnProgress
from hanse_datapod.worker.server.answering import answer
from hanse_datapod.worker.server.studies import StudyServer
from hanse_datapod.worker.server.training import TrainingServer

_ALONE = threading.Lock()
"""Sites learn in processes of their own. Here they share torch's generator: two that begin models at once would have
other ones than their seed says."""


class InThread:
    """Answers requests as `WorkerProcess` does; sums in the middle of a task are not for it."""

    pid = None

    def __init__(self, *, studies: bool) -> None:
        self._studies = studies
        self._server: StudyServer | TrainingServer | None = None

    async def start(self) -> None:
        """Nothing is to be started."""

    async def close(self) -> None:
        """Nothing is to be stopped."""

    async def request(
        self, body: dict[str, Any], *, time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        frames: list[dict[str, Any]] = []
        server = self._server or self._new()
        self._server = None  # who gives up a request ends its server, and the data that it keeps, as with a process
        await asyncio.to_thread(_answer_alone, body, server, frames)
        self._server = server
        [done] = frames
        if done["kind"] == "error":
            raise error_of(done)
        return done

    def _new(self) -> StudyServer | TrainingServer:
        if self._studies:
            return StudyServer(_heard, give_memory_back=_keep_memory)
        return TrainingServer(_heard, _nothing)


def on(data: DataSettings, code: Path | None = None, foreign: ForeignSettings | None = None) -> ProcessWorker:
    """The worker for these data: of studies where they are genotypes, else of training."""
    return ProcessWorker(data, InThread(studies=data.is_genotypes), code, foreign=foreign)


def _answer_alone(body: dict[str, Any], server: StudyServer | TrainingServer, frames: list[dict[str, Any]]) -> None:
    with _ALONE:
        answer(body, server.do, frames.append)


def _heard(progress: dict[str, Any]) -> None:
    assert progress["kind"] == "progress"


def _keep_memory() -> None:
    """It is the tests' process's, in which a look for garbage takes up to a second."""


def _nothing() -> dict[str, Any]:
    raise AssertionError("no sum is asked for here")
