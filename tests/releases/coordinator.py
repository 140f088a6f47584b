"""How a coordinator of today takes up a run, and where its records are: the one place that knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from unittest.mock import patch

from hanse_coordinator.records import Buckets, RunRecord
from hanse_coordinator.runs.journal import JournalEntry
from hanse_coordinator.runs.lease import LeaseRecord
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.runs.supervisor import Supervisor
from hanse_coordinator.verbs.durable import DurableVerbs
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.store.port import ObjectStore

__all__ = ["Buckets", "JournalEntry", "LeaseRecord", "RunRecord", "coordinating", "drawing"]

INSTANCE = "coordinator"
"""The name under which the recorded coordinators held their runs: leases of this name are its own at once."""


@asynccontextmanager
async def coordinating(bus: Bus, store: ObjectStore, clock: Clock) -> AsyncIterator[asyncio.Future[None]]:
    """A coordinator at work on every run that is on the bus, while inside."""
    settings = WorkflowSettings(instance=INSTANCE, lease_ttl=60.0)
    supervisor = Supervisor(bus=bus, store=store, buckets=Buckets.on(bus), clock=clock, settings=settings)
    task = asyncio.ensure_future(supervisor.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextmanager
def drawing(seeds: Iterable[str]) -> Iterator[None]:
    """The seeds (hex) of central noise that the coordinator draws, in the stead of a secure generator's."""
    left = iter(seeds)
    with patch.object(DurableVerbs, "secret", lambda _self, _count: bytes.fromhex(next(left))):
        yield
