"""A site's true worker, built-in trainers, studies and all, in a thread in place of its process."""

from __future__ import annotations

import asyncio
from typing import Any

from hanse_datapod.worker.client.sums import answer_sum
from hanse_datapod.worker.port import AskSum, OnProgress
from hanse_datapod.worker.server.answering import answer
from hanse_datapod.worker.server.studies import StudyServer
from hanse_datapod.worker.server.training import TrainingServer
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.virtual_time import VirtualLoop


class ThreadedProcess:
    """Answers requests as `WorkerProcess` does, without telling progress, which depends on real time.

    Args:
        seconds: of virtual time that a request takes.
        studies: it computes on genotypes; else it trains.
    """

    pid = None

    def __init__(self, clock: Clock, seconds: float, *, studies: bool = False) -> None:
        self._clock, self._seconds = clock, seconds
        self._server = (
            StudyServer(_hear_nothing, give_memory_back=_keep_memory) if studies
            else TrainingServer(_hear_nothing, _say_nothing)
        )  # fmt: skip
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """Nothing is to be started."""

    async def close(self) -> None:
        """Nothing is to be stopped."""

    async def request(
        self, body: dict[str, Any], *, time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        async with self._one_at_a_time:
            await self._clock.sleep(self._seconds)
            return await self._answered(body, time_limit, exchange)

    async def _answered(self, body: dict[str, Any], time_limit: float, exchange: AskSum | None) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        told: list[dict[str, Any]] = []

        def send(frame: dict[str, Any]) -> None:
            if frame["kind"] == "sum":
                assert exchange is not None
                told[:] = [loop.answer(answer_sum(exchange, frame, limit=time_limit))]
            elif frame["kind"] != "progress":
                told[:] = [frame]

        # Which keeps the data, as a process does. Of a request that asks for sums a thread may live on beside the next.
        server = TrainingServer(send, lambda: told[0]) if exchange else self._server
        # A thread only for a worker that asks the loop for sums meanwhile: the loop does all else faster itself.
        await loop.run_in_executor(loop.threads if exchange else None, answer, body, server.do, send)
        done = told[0]
        if done["kind"] == "error":
            raise HanseError(ErrorCode.of(done["code"]), done["message"], hint=done["hint"])
        return done


def _hear_nothing(_progress: dict[str, Any]) -> None:
    """It depends on real time."""


def _keep_memory() -> None:
    """It is the tests' process's, in which a look for garbage takes up to a second."""


def _say_nothing() -> dict[str, Any]:
    raise AssertionError("nobody answers a request that asks nothing")
