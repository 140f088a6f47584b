"""A site's worker for studies: its genotypes, in a process without torch, its own or one that others use too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process import CHECK_LIMIT, WorkerProcess
from hanse_datapod.worker.port import STUDY_KINDS, DataSummary, OnProgress, WorkOutcome, WorkRequest
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import TaskKind
from hanse_schemas.schema import DataSchema

REST_LIMIT = 60.0


class StudyWorker:
    """Computes the steps of studies.

    Args:
        data: where the genotypes lie.
        threads: of the linear algebra.
        process: a process that somebody else stops.
    """

    def __init__(self, data: DataSettings, *, threads: int = 1, process: WorkerProcess | None = None) -> None:
        self._data = data.model_dump(mode="json")
        self._owned = process is None
        self._process = process or WorkerProcess(studies=True, threads=threads)

    async def start(self) -> None:
        """Start the process now, so that its libraries load while the agent joins."""
        await self._process.start()

    @property
    def pid(self) -> int | None:
        """The process's id, where one runs."""
        return self._process.pid

    @property
    def kinds(self) -> frozenset[TaskKind]:
        """See `Worker.kinds`."""
        return STUDY_KINDS

    @property
    def device(self) -> str:
        """See `Worker.device`."""
        return "cpu"

    def require(self, config: Mapping[str, Any]) -> None:
        """See `Worker.require`: studies need no device."""

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        """See `Worker.work`; `request.config` has study, step and settings."""
        body = self._body("work") | {
            "config": request.config,
            "output": str(request.output),
            "state": str(request.state),
            "extras": {name: str(path) for name, path in request.extras.items()},
        }
        answer = await self._process.request(
            body, time_limit=request.time_limit, memory_limit=request.memory_limit, on_progress=on_progress
        )
        return WorkOutcome(
            update=request.output, examples=answer["examples"], metrics={}, seconds=answer["seconds"]
        )  # fmt: skip

    async def check_data(self, schema: DataSchema) -> DataSummary:
        """See `Worker.check_data`."""
        answer = await self._process.request(
            self._body("check") | {"schema": schema.model_dump(mode="json")},
            time_limit=CHECK_LIMIT, memory_limit=None, on_progress=lambda _fraction, _text: None,
        )  # fmt: skip
        return DataSummary(answer["examples"], 0, answer["fingerprint"])

    async def rest(self) -> None:
        """Have the process forget what it has read of studies: it may be much."""
        if self._process.pid is None:
            return
        with suppress(HanseError):  # a process that has died holds nothing to forget
            await self._process.request(
                self._body("rest"), time_limit=REST_LIMIT, memory_limit=None, on_progress=lambda _fraction, _text: None
            )

    async def close(self) -> None:
        """Stop the process, unless it is shared."""
        if self._owned:
            await self._process.close()

    def _body(self, operation: str) -> dict[str, Any]:
        return {"operation": operation, "data": self._data}
