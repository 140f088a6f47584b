"""Many participants in one agent process that share one worker process: for benchmarks with hundreds of sites."""

from __future__ import annotations

from pathlib import Path

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.process import ProcessWorker, WorkerProcess
from hanse_fabric.schema import DataSchema


class SharedWorker:
    """One process; `participant` gives a worker of it for each data set. Requests take turns.

    Args:
        code: the site code's file or folder, the same for all.
        participants: how many there will be; one may wait in its work for other processes' participants.
    """

    def __init__(self, code: Path | None = None, *, participants: int = 2) -> None:
        self._code, self._alone = code, participants == 1
        self._process = WorkerProcess()

    async def start(self) -> None:
        """Start the process now."""
        await self._process.start()

    def participant(self, data: DataSettings, schema: DataSchema | None = None) -> ProcessWorker:
        """A worker on these data; its `close` leaves the process to the others."""
        return ProcessWorker(data, self._code, schema, process=self._process, alone=self._alone)

    async def close(self) -> None:
        """Stop the process."""
        await self._process.close()
