"""Removing a run that has ended, with all that the hub has for it: objects, messages, its journal, and last its record.

What stays: versions that the registry has, with their lineage; the audit; what compensators and sites remember of works
that they answered. A removal that was interrupted is repeated by whoever asks again, for the record goes last.
"""

from __future__ import annotations

from hanse_coordinator.records import Buckets, RunRecord
from hanse_coordinator.verbs.ending import purge_past
from hanse_coordinator.verbs.objects import RunObjects
from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.records import Entry
from hanse_fabric.store.port import ObjectStore
from hanse_schemas.http.runs import FINAL_STATES


async def remove_run(bus: Bus, store: ObjectStore, buckets: Buckets, entry: Entry[RunRecord]) -> None:
    """Remove a run.

    Raises:
        HanseError: CONFLICT for one that has not ended; UNAVAILABLE or TIMEOUT of the bus or the store: ask again.
    """
    record = entry.value
    project, run = record.project, record.run
    if record.state not in FINAL_STATES:
        raise HanseError(
            ErrorCode.CONFLICT, f"run {run} is {record.state}: only a run that has ended is removed",
            hint="cancel it first, or wait for its end",
        )  # fmt: skip
    objects = RunObjects(store, project)
    versions = await buckets.models.list(project=project)
    await objects.abort_uploads(run)
    await objects.clear(run, but={version.value.key for version in versions})
    await purge_past(bus, project, run, study=record.job.study is not None)
    # Not by its revision: a coordinator that ends a run writes its record once more, and it has ended all the same.
    await buckets.runs.delete(project=project, run=run)
