"""The workers of one agent process: its participants share one worker process, and one more for studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.client.placement import PlacingWorker, ReachablePool
from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.client.process_worker import Process, ProcessWorker
from hanse_datapod.worker.pool.choice import Pool
from hanse_datapod.worker.pool.client import PoolClient
from hanse_datapod.worker.port import Worker
from hanse_schemas.schema import DataSchema


class SharedWorker:
    """One process for training and one for studies. Each is started only if a participant has data for it.
    `participant` gives a worker for each data set. Requests take turns.

    Args:
        code: the site code's file or folder, the same for all.
        participants: how many there will be; one may wait in its work for other processes' participants.
        threads: of the linear algebra of studies.
        device: that is trained on where the job does not say.
        pools: of further workers, which share `pool_folder`.
    """

    def __init__(
        self, code: Path | None = None, *, participants: int = 2, threads: int = 1, device: str = "cpu",
        pools: Sequence[Pool] = (), pool_folder: Path | None = None,
    ) -> None:  # fmt: skip
        self._code, self._alone, self._device = code, participants == 1, device
        self._pools = [] if pool_folder is None else [(pool, PoolClient(pool_folder, pool.name)) for pool in pools]
        self._training = WorkerProcess()
        self._studies = WorkerProcess(studies=True, threads=threads)
        self._used: list[WorkerProcess] = []

    async def start(self) -> None:
        """Start the processes that participants have data for."""
        for process in self._used:
            await process.start()
        for _, client in self._pools:
            await client.start()

    def participant(self, data: DataSettings, schema: DataSchema | None = None) -> Worker:
        """A worker on these data."""
        process = self._studies if data.is_genotypes else self._training
        if process not in self._used:
            self._used.append(process)
        local = self._worker(data, process, schema, self._device)
        if data.is_genotypes or not self._pools:
            return local
        placed = [
            ReachablePool(pool, client, self._worker(data, client, schema, "cuda" if pool.device == "gpu" else "cpu"))
            for pool, client in self._pools
        ]
        return PlacingWorker(local, placed)

    def _worker(self, data: DataSettings, process: Process, schema: DataSchema | None, device: str) -> ProcessWorker:
        return ProcessWorker(data, process, self._code, schema, alone=self._alone, device=device)

    async def close(self) -> None:
        """Stop the processes."""
        for process in self._used:
            await process.close()
