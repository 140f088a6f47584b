"""A site's worker on one data set: it trains, or computes on genotypes, in a process that others use too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from hanse_datapod.data.settings import DataSettings, Split
from hanse_datapod.worker.foreign.settings import ForeignSettings
from hanse_datapod.worker.pool.choice import choose, local_pool
from hanse_datapod.worker.port import (
    STUDY_KINDS,
    TRAINING_KINDS,
    AskSum,
    DataSummary,
    DeviceReport,
    OnProgress,
    WorkOutcome,
    WorkRequest,
    require_no_pipeline,
)
from hanse_datapod.worker.sandbox.terms import SandboxPolicy
from hanse_datapod.worker.told import outcome_of, summary_of
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import TaskKind
from hanse_schemas.resources import resources_of
from hanse_schemas.schema import DataSchema

_CHECK_LIMIT, _REST_LIMIT = 3600.0, 60.0


class Process(Protocol):
    """What answers a worker's requests: a child process (`WorkerProcess`), or a pool of other pods (`PoolClient`)."""

    @property
    def pid(self) -> int | None: ...

    async def request(
        self, body: dict[str, Any], *, time_limit: float, memory_limit: int | None, on_progress: OnProgress,
        exchange: AskSum | None = None,
    ) -> dict[str, Any]: ...  # fmt: skip


def opened(sandbox: SandboxPolicy, foreign: ForeignSettings) -> SandboxPolicy:
    """The sandbox's terms, with the folders of the interpreters that the site names."""
    return sandbox.model_copy(update={"read": (*sandbox.read, *foreign.folders())})


class ProcessWorker:
    """A `Worker` on one data set: of studies where these are genotypes, else of training.

    Args:
        data: where the data lie.
        process: that does it, which somebody else starts and stops.
        code: the site code's file, or a folder with one `<name>.py` for each name.
        alone: whether nobody else works in it: who waits there for others keeps nobody from contributing.
        device: `auto`, `cpu`, `cuda` or `cuda:N`, that it trains on where the job does not say.
        sandbox: what the site's policy says of the process's sandbox.
        foreign: what it says of interpreters for code of other frameworks.
        memory: bytes that its work may use, by which data are read into memory or a file; None: what there is.
        scratch: where files of data larger than memory are made; None: where the process has its temporary files.
    """

    def __init__(
        self,
        data: DataSettings,
        process: Process,
        code: Path | None = None,
        *,
        alone: bool = True,
        device: str = "cpu",
        sandbox: SandboxPolicy | None = None,
        foreign: ForeignSettings | None = None,
        memory: int | None = None,
        scratch: Path | None = None,
    ) -> None:
        self.kinds: frozenset[TaskKind] = STUDY_KINDS if data.is_genotypes else TRAINING_KINDS
        self._settings, self._data = data, data.model_dump(mode="json")
        self._code = str(code) if code is not None else None
        self._schema: dict[str, Any] | None = None  # until it is known, data are read as what they look like
        self._process, self._alone = process, alone
        self._memory, self._scratch = memory, None if scratch is None else str(scratch)
        self._wanted_device, self._device = device, DeviceReport()
        foreign = foreign or ForeignSettings()
        self._sandbox = opened(sandbox or SandboxPolicy(), foreign).model_dump(mode="json")
        self._foreign = foreign.model_dump(mode="json")

    @property
    def device(self) -> str:
        """See `Worker.device`; as the last check of the data has found it."""
        return self.report.label + (f" ({self.report.warning})" if self.report.warning else "")

    @property
    def report(self) -> DeviceReport:
        """The device, as the last check of the data has found it."""
        return self._device

    @property
    def loads_by_code(self) -> bool:
        """Whether the data are what the site code's `load` gives."""
        return bool(self._data["kind"] == "code")

    def require(self, config: Mapping[str, Any]) -> None:
        """See `Worker.require`. Where pools are listed too, `PlacingWorker` decides."""
        require_no_pipeline(config)
        choose(resources_of(config), (local_pool(self._device),))

    def use(self, schema: DataSchema) -> None:
        """Read data by this schema from now on, without looking at them now."""
        self._schema = schema.model_dump(mode="json")

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        body = self._body("work", request.split) | {
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
            "processes": request.processes,
            "memory_limit": request.memory_limit,
            # Participants that share a process take turns, so a sum among them would wait for ever.
            "exchange": request.exchange is not None and self._alone,
        }
        answer = await self._process.request(
            body, time_limit=request.time_limit, memory_limit=request.memory_limit, on_progress=on_progress,
            exchange=request.exchange,
        )  # fmt: skip
        return outcome_of(answer, request.output)

    async def check_data(self, schema: DataSchema, split: Split = "shuffled") -> DataSummary:
        self.use(schema)
        summary = summary_of(await self._ask("check", _CHECK_LIMIT, split))
        self._device = summary.device
        return summary

    async def rest(self) -> None:
        """See `Worker.rest`. What was read for training is wanted in the next round."""
        if self.kinds is STUDY_KINDS and self._process.pid is not None:
            with suppress(HanseError):  # a process that has died holds nothing to forget
                await self._ask("rest", _REST_LIMIT)

    async def _ask(self, operation: str, limit: float, split: Split = "shuffled") -> dict[str, Any]:
        return await self._process.request(
            self._body(operation, split), time_limit=limit, memory_limit=None, on_progress=lambda _fraction, _text: None
        )

    def _body(self, operation: str, split: Split) -> dict[str, Any]:
        data = self._data
        if split != self._settings.split:
            data = self._settings.model_copy(update={"split": split}).model_dump(mode="json")
        return {
            "operation": operation, "data": data, "code": self._code, "schema": self._schema,
            "device": self._wanted_device, "sandbox": self._sandbox, "foreign": self._foreign,
            "memory": self._memory, "scratch": self._scratch,
        }  # fmt: skip
