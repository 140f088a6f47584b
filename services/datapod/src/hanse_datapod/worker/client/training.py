"""A site's worker that trains: its data and its code, in a process of its own or one that others use too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process import CHECK_LIMIT, WorkerProcess
from hanse_datapod.worker.pool.choice import choose, local_pool
from hanse_datapod.worker.port import (
    TRAINING_KINDS,
    AskSum,
    DataSummary,
    DeviceReport,
    OnProgress,
    WorkOutcome,
    WorkRequest,
    extra_output,
)
from hanse_fabric.messages import TaskKind
from hanse_schemas.resources import resources_of
from hanse_schemas.schema import DataSchema


class Process(Protocol):
    """What answers a worker's requests: a child process (`WorkerProcess`), or a pool of other pods (`PoolClient`)."""

    @property
    def pid(self) -> int | None: ...

    async def start(self) -> None: ...

    async def request(
        self, body: dict[str, Any], *, time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None = None,
    ) -> dict[str, Any]: ...  # fmt: skip

    async def close(self) -> None: ...


class ProcessWorker:
    """A site's worker: one data set, one process (its own, or one that others use too).

    Args:
        data: where the data lie.
        code: the site code's file, or a folder with one `<name>.py` for each name.
        schema: what the data are read by until `check_data` gives the project's; None: whatever they look like.
        process: a process that somebody else stops.
        alone: whether nobody else works in it: who waits there for others keeps nobody from contributing.
        device: `auto`, `cpu`, `cuda` or `cuda:N`, that it trains on where the job does not say.
    """

    def __init__(
        self,
        data: DataSettings,
        code: Path | None = None,
        schema: DataSchema | None = None,
        *,
        process: Process | None = None,
        alone: bool = True,
        device: str = "cpu",
    ) -> None:
        self._data = data.model_dump(mode="json")
        self._code = str(code) if code is not None else None
        self._schema = schema.model_dump(mode="json") if schema is not None else None
        self._owned, self._alone = process is None, alone
        self._process: Process = process or WorkerProcess()
        self._asked, self._device = device, DeviceReport()

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
        return TRAINING_KINDS

    @property
    def device(self) -> str:
        """See `Worker.device`; as the last check of the data has found it."""
        return self.report.label + (f" ({self.report.warning})" if self.report.warning else "")

    @property
    def report(self) -> DeviceReport:
        """The device, as the last check of the data has found it."""
        return self._device

    def require(self, config: Mapping[str, Any]) -> None:
        """See `Worker.require`; where pools are listed too, `PlacingWorker` decides."""
        choose(resources_of(config), (local_pool(self._device),))

    def use(self, schema: DataSchema) -> None:
        """Read data by this schema from now on, without looking at them now."""
        self._schema = schema.model_dump(mode="json")

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
            "wanted": request.wanted,
            # Participants that share a process take turns, so a sum among them would wait for ever.
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
        self.use(schema)
        answer = await self._process.request(
            self._body("check"), time_limit=CHECK_LIMIT, memory_limit=None, on_progress=lambda _fraction, _text: None
        )
        self._device = DeviceReport(**answer["device"])
        return DataSummary(answer["examples"], answer["test_examples"], answer["fingerprint"], self._device)

    async def rest(self) -> None:
        """Nothing: what was read is wanted in the next round."""

    async def close(self) -> None:
        """Stop the process, unless it is shared."""
        if self._owned:
            await self._process.close()

    def _body(self, operation: str) -> dict[str, Any]:
        return {
            "operation": operation, "data": self._data, "code": self._code, "schema": self._schema,
            "device": self._asked,
        }  # fmt: skip
