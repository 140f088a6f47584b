"""The workers of one agent process: its participants share one worker process, and one more for studies."""

from __future__ import annotations

from pathlib import Path

from hanse_datapod.data.settings import DataSettings
from hanse_datapod.worker.port import Worker
from hanse_datapod.worker.process import WorkerProcess
from hanse_datapod.worker.studying import StudyWorker
from hanse_datapod.worker.training import ProcessWorker
from hanse_fabric.schema import DataSchema


class SharedWorker:
    """One process for training and one for studies, of which those are started that a participant has data for;
    `participant` gives a worker for each data set. Requests take turns.

    Args:
        code: the site code's file or folder, the same for all.
        participants: how many there will be; one may wait in its work for other processes' participants.
        threads: of the linear algebra of studies.
    """

    def __init__(self, code: Path | None = None, *, participants: int = 2, threads: int = 1) -> None:
        self._code, self._alone = code, participants == 1
        self._training = WorkerProcess()
        self._studies = WorkerProcess(studies=True, threads=threads)
        self._used: list[WorkerProcess] = []

    async def start(self) -> None:
        """Start what is used now."""
        for process in self._used:
            await process.start()

    def participant(self, data: DataSettings, schema: DataSchema | None = None) -> Worker:
        """A worker on these data; its `close` leaves the process to the others."""
        process = self._studies if data.is_genotypes else self._training
        if process not in self._used:
            self._used.append(process)
        if data.is_genotypes:
            return StudyWorker(data, process=process)
        return ProcessWorker(data, self._code, schema, process=process, alone=self._alone)

    async def close(self) -> None:
        """Stop the processes."""
        for process in self._used:
            await process.close()
