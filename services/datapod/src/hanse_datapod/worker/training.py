"""A site's worker that trains: its data and its code, in a process of its own or one that others use too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.port import TRAINED, DataSummary, OnProgress, WorkOutcome, WorkRequest, extra_output
from hanse_datapod.worker.process import CHECK_LIMIT, WorkerProcess
from hanse_fabric.messages import TaskKind
from hanse_fabric.schema import DataSchema


class ProcessWorker:
    """A site's worker: one data set, one process (its own, or one that others use too).

    Args:
        data: where the data lie.
        code: the site code's file, or a folder with one `<name>.py` for each name.
        schema: what the data are read by until `check_data` gives the project's; None: whatever they look like.
        process: a process that somebody else stops.
        alone: whether nobody else works in it: who waits there for others keeps nobody from contributing.
    """

    def __init__(
        self,
        data: DataSettings,
        code: Path | None = None,
        schema: DataSchema | None = None,
        *,
        process: WorkerProcess | None = None,
        alone: bool = True,
    ) -> None:
        self._data = data.model_dump(mode="json")
        self._code = str(code) if code is not None else None
        self._schema = schema.model_dump(mode="json") if schema is not None else None
        self._owned, self._alone = process is None, alone
        self._process = process or WorkerProcess()

    async def start(self) -> None:
        """Start the process now, so that torch loads while the agent joins."""
        await self._process.start()

    @property
    def pid(self) -> int | None:
        """The process's id, where one runs."""
        return self._process.pid

    @property
    def kinds(self) -> frozenset[TaskKind]:
        """See `Worker.kinds`."""
        return TRAINED

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        """See `Worker.work`."""
        body = self._body("work") | {
            "kind": request.kind.value,
            "config": request.config,
            "seed": request.seed,
            "round": request.round,
            "model": str(request.model) if request.model is not None else None,
            "output": str(request.output),
            "state": str(request.state),
            "extras": {name: str(path) for name, path in request.extras.items()},
            "trained": request.trained,
            # Participants that share a process take turns: each would wait in it for the others.
            "exchange": request.exchange is not None and self._alone,
        }
        answer = await self._process.request(
            body, time_limit=request.time_limit, memory_limit=request.memory_limit, on_progress=on_progress,
            exchange=request.exchange,
        )  # fmt: skip
        return WorkOutcome(
            update=request.output if answer["update"] else None,
            examples=answer["examples"],
            metrics=answer["metrics"],
            seconds=answer["seconds"],
            code_digest=answer["code_digest"],
            extras={name: extra_output(request.output, name) for name in answer["extras"]},
            info=answer["info"],
            note=answer["note"],
        )

    async def check_data(self, schema: DataSchema) -> DataSummary:
        """See `Worker.check_data`."""
        self._schema = schema.model_dump(mode="json")
        answer = await self._process.request(
            self._body("check"), time_limit=CHECK_LIMIT, memory_limit=None, on_progress=lambda _fraction, _text: None
        )
        return DataSummary(answer["examples"], answer["test_examples"], answer["fingerprint"])

    async def rest(self) -> None:
        """Nothing: what was read is wanted in the next round."""

    async def close(self) -> None:
        """Stop the process, unless it is shared."""
        if self._owned:
            await self._process.close()

    def _body(self, operation: str) -> dict[str, Any]:
        return {"operation": operation, "data": self._data, "code": self._code, "schema": self._schema}
