"""The workers of one agent process: its participants share one worker process, and one more for studies.

Where pools are listed, each task is done in the pool that fits. The datapod's own worker is one.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hanse_datapod.data.settings import DataSettings, Split
from hanse_datapod.home.folders import scratch_folder, worker_folders
from hanse_datapod.worker.client.process import WorkerProcess
from hanse_datapod.worker.client.process_worker import Process, ProcessWorker, opened
from hanse_datapod.worker.foreign.settings import ForeignSettings
from hanse_datapod.worker.pool.choice import LOCAL, ChosenPool, Pool, choose, local_pool
from hanse_datapod.worker.pool.client import PoolClient
from hanse_datapod.worker.port import (
    TRAINING_KINDS,
    DataSummary,
    OnProgress,
    Worker,
    WorkOutcome,
    WorkRequest,
    require_no_pipeline,
)
from hanse_datapod.worker.sandbox.terms import Reach, SandboxPolicy, absolute, data_files
from hanse_fabric.errors import invalid
from hanse_fabric.messages import TaskKind
from hanse_schemas.resources import resources_of
from hanse_schemas.schema import DataSchema


@dataclass(frozen=True, slots=True)
class ReachablePool:
    """A pool, the way to its workers, and the site's data as they are read there."""

    pool: Pool
    client: PoolClient
    worker: ProcessWorker


class PlacingWorker:
    """A `Worker`. The data are looked at, and first models made, by the datapod's own worker.

    Args:
        local: the datapod's own worker.
        pools: the others.
        apart: whether these alone run site code.
    """

    def __init__(self, local: ProcessWorker, pools: Sequence[ReachablePool], *, apart: bool = False) -> None:
        self._local, self._apart = local, apart
        self._pools = {placed.pool.name: placed for placed in pools}

    kinds = TRAINING_KINDS

    @property
    def device(self) -> str:
        """See `Worker.device`: that of the datapod, and the pools with the numbers of their workers."""
        pools = (f"pool {placed.pool.describe()}: {placed.client.workers()} at work" for placed in self._pools.values())
        return "; ".join((self._local.device, *pools))

    def require(self, config: Mapping[str, Any]) -> None:
        require_no_pipeline(config)
        self._choose(config)

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        if request.kind is TaskKind.INITIALIZE and not self._elsewhere(request.config):
            return await self._local.work(request, on_progress)
        chosen = await asyncio.to_thread(self._choose, request.config)
        if chosen.warning:
            request = replace(request, wanted="cpu")
        placed = self._pools.get(chosen.pool.name)
        outcome = await (self._local if placed is None else placed.worker).work(request, on_progress)
        note = "; ".join(part for part in (chosen.warning, outcome.note) if part)
        return replace(outcome, note=note)

    async def check_data(self, schema: DataSchema, split: Split = "shuffled") -> DataSummary:
        """See `Worker.check_data`; pools' workers read the data by the same schema when they first need them."""
        for placed in self._pools.values():
            placed.worker.use(schema)
        if self._apart and self._local.loads_by_code:
            first = next(iter(self._pools.values()))
            return await first.worker.check_data(schema, split)
        return await self._local.check_data(schema, split)

    async def rest(self) -> None:
        await self._local.rest()

    def _choose(self, config: Mapping[str, Any]) -> ChosenPool:
        own = () if self._elsewhere(config) else (local_pool(self._local.report),)
        return choose(
            resources_of(config), (*own, *(placed.pool for placed in self._pools.values())), alive=self._alive
        )

    def _elsewhere(self, config: Mapping[str, Any]) -> bool:
        return self._apart and bool(config.get("code"))

    def _alive(self, name: str) -> bool:
        return name == LOCAL or self._pools[name].client.workers() > 0


class SharedWorker:
    """One process for training and one for studies. Each is started only if a participant has data for it.
    `participant` gives a worker for each data set. Requests take turns.

    Args:
        code: the site code's file or folder, the same for all.
        participants: how many there will be; one may wait in its work for other processes' participants.
        threads: of the linear algebra of studies.
        device: that is trained on where the job does not say.
        pools: of further workers, which share `pool_folder`.
        sandbox: what the site's policy says of the processes' sandbox.
        foreign: what it says of interpreters for code of other frameworks.
        memory: bytes that a task may use; None: what there is.
        scratch: where files of data larger than memory are made; None: in each participant's home.
    """

    def __init__(
        self, code: Path | None = None, *, participants: int = 2, threads: int = 1, device: str = "cpu",
        pools: Sequence[Pool] = (), pool_folder: Path | None = None, sandbox: SandboxPolicy | None = None,
        foreign: ForeignSettings | None = None, memory: int | None = None, scratch: Path | None = None,
    ) -> None:  # fmt: skip
        if scratch is not None:
            _require_writable(scratch)
        self._memory, self._scratch = memory, scratch
        self._sandbox, self._foreign = sandbox or SandboxPolicy(), foreign or ForeignSettings()
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

    def participant(self, data: DataSettings, home: Path | None = None) -> Worker:
        """A worker on these data.

        Args:
            home: the datapod's, of which it may reach what `worker_folders` says; None: what requests name.

        Raises:
            HanseError: INVALID_INPUT where the data's folder, or one of the system's, holds the home, or where code
                shall run in pools alone and there are none; NO_SPACE.
        """
        process = self._studies if data.is_genotypes else self._training
        process.reach = process.reach.joined(self._reach(data, home))
        if process not in self._used:
            self._used.append(process)
        scratch = self._scratch or (None if home is None else scratch_folder(home))
        if scratch is not None:
            if self._scratch is not None:
                _require_apart(scratch.resolve(), home, self._read(data))
            process.reach = process.reach.joined(Reach(write=absolute([scratch]), policy=process.reach.policy))
        local = self._worker(data, process, self._device, scratch)
        if data.is_genotypes:
            return local
        if self._sandbox.apart and self._code is not None and not self._pools:
            raise invalid("policy.sandbox.apart", True, "a site with pools (HANSE_POOLS), whose workers run its code")
        if not self._pools:
            return local
        placed = [
            ReachablePool(pool, client, self._worker(data, client, "cuda" if pool.device == "gpu" else "cpu"))
            for pool, client in self._pools
        ]
        return PlacingWorker(local, placed, apart=self._sandbox.apart)

    def _reach(self, data: DataSettings, home: Path | None) -> Reach:
        sandbox, read = opened(self._sandbox, self._foreign), self._read(data)
        if home is None:
            return Reach(read, policy=sandbox)
        given, own = worker_folders(home)
        Reach(read, policy=sandbox).require_apart(home)
        return Reach(read | absolute(given), absolute(own), sandbox)

    def _read(self, data: DataSettings) -> frozenset[Path]:
        """What of the site's own the worker reads, and never changes."""
        return absolute((*data_files(data), *opened(self._sandbox, self._foreign).read, self._code))

    def _worker(
        self, data: DataSettings, process: Process, device: str, scratch: Path | None = None
    ) -> ProcessWorker:  # fmt: skip
        return ProcessWorker(
            data, process, self._code, alone=self._alone, device=device, sandbox=self._sandbox, foreign=self._foreign,
            memory=self._memory, scratch=scratch,
        )  # fmt: skip

    async def close(self) -> None:
        """Stop the processes."""
        for process in self._used:
            await process.close()


def _require_writable(scratch: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=scratch).close()
    except OSError as error:
        expected = "a folder that is there, on a disk with room for the data, where this user may write"
        raise invalid("scratch", f"{scratch} ({error.strerror})", expected) from None


def _require_apart(scratch: Path, home: Path | None, read: Iterable[Path]) -> None:
    """Refuse a folder that the worker writes in, where the home's keys lie in it or it lies among them, or where it
    holds what the worker shall only read."""
    own = None if home is None else home.resolve()
    if own is not None and (scratch == own or scratch in own.parents or own in scratch.parents):
        raise invalid("scratch", str(scratch), f"a folder apart from the home {home}; none: one within it is taken")
    for path in sorted(each.resolve() for each in read):
        if path.is_relative_to(scratch):
            raise invalid("scratch", str(scratch), f"a folder without {path.name}, for the worker writes in it")
