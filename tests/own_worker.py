"""A site's worker that has a process of its own, as a datapod's participants together have one."""

from __future__ import annotations

from pathlib import Path

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_schemas.schema import DataSchema


class OwnWorker(ProcessWorker):
    """A worker, and its process, which `close` stops."""

    def __init__(
        self, data: DataSettings, code: Path | None = None, schema: DataSchema | None = None,
        memory: int | None = None, scratch: Path | None = None,
    ) -> None:  # fmt: skip
        self.process = WorkerProcess(studies=data.is_genotypes)
        super().__init__(data, self.process, code, memory=memory, scratch=scratch)
        if schema is not None:
            self.use(schema)

    @property
    def pid(self) -> int | None:
        return self.process.pid

    async def start(self) -> None:
        await self.process.start()

    async def close(self) -> None:
        await self.process.close()
