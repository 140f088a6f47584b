"""A site's worker where pools are listed: each task is done in the pool that fits. The datapod's own worker is one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_datapod.worker.pool.choice import LOCAL, ChosenPool, Pool, choose, local_pool
from hanse_datapod.worker.pool.client import PoolClient
from hanse_datapod.worker.port import TRAINING_KINDS, DataSummary, OnProgress, WorkOutcome, WorkRequest
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
    """

    def __init__(self, local: ProcessWorker, pools: Sequence[ReachablePool]) -> None:
        self._local = local
        self._pools = {placed.pool.name: placed for placed in pools}

    kinds = TRAINING_KINDS

    @property
    def device(self) -> str:
        """See `Worker.device`: that of the datapod, and the pools with the numbers of their workers."""
        pools = (f"pool {placed.pool.describe()}: {placed.client.workers()} at work" for placed in self._pools.values())
        return "; ".join((self._local.device, *pools))

    def require(self, config: Mapping[str, Any]) -> None:
        self._choose(config)

    async def work(self, request: WorkRequest, on_progress: OnProgress) -> WorkOutcome:
        if request.kind is TaskKind.INITIALIZE:
            return await self._local.work(request, on_progress)
        chosen = await asyncio.to_thread(self._choose, request.config)
        if chosen.warning:
            request = replace(request, wanted="cpu")
        placed = self._pools.get(chosen.pool.name)
        outcome = await (self._local if placed is None else placed.worker).work(request, on_progress)
        note = "; ".join(part for part in (chosen.warning, outcome.note) if part)
        return replace(outcome, note=note)

    async def check_data(self, schema: DataSchema) -> DataSummary:
        """See `Worker.check_data`; pools' workers read the data by the same schema when they first need them."""
        for placed in self._pools.values():
            placed.worker.use(schema)
        return await self._local.check_data(schema)

    async def rest(self) -> None:
        await self._local.rest()

    def _choose(self, config: Mapping[str, Any]) -> ChosenPool:
        pools = (local_pool(self._local.report), *(placed.pool for placed in self._pools.values()))
        return choose(resources_of(config), pools, alive=self._alive)

    def _alive(self, name: str) -> bool:
        return name == LOCAL or self._pools[name].client.workers() > 0
