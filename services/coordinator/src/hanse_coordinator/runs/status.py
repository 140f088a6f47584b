"""The run's record as people read it: state, round, metrics, model. Written behind the workflow, newest values only."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from hanse_coordinator.watching.notices import Notices
from hanse_fabric.clock import Clock
from hanse_schemas.http.runs import FINAL_STATES

if TYPE_CHECKING:
    from hanse_coordinator.records import RunRecord
    from hanse_coordinator.runs.journal import Journal
    from hanse_fabric.records import Bucket, Entry

_EVERY_S = 0.2
"""Rounds may be quicker than people read: between writes of a record that is not final."""


class RunStatus:
    """Gathers changes to a run's record and writes them, coalesced, while `write` runs."""

    def __init__(
        self, runs: Bucket[RunRecord], clock: Clock, notices: Notices, *, project: str, run: str, epoch: int,
        journal: Journal | None = None,
    ) -> None:  # fmt: skip
        self._runs, self._clock, self._notices, self._journal = runs, clock, notices, journal
        self._tokens = {"project": project, "run": run}
        self._epoch = epoch
        self._state = ""
        self._stored: Entry[RunRecord] | None = None
        self._fields: dict[str, Any] = {}
        self._changed = asyncio.Event()

    @property
    def fields(self) -> dict[str, Any]:
        """All that was reported by this coordinator, JSON values."""
        return dict(self._fields)

    def progressed(self, **fields: Any) -> None:
        """Note new values of: state, round, metrics, version, digest, best (a version), reason, outputs,
        cohorts. None leaves a value as it was."""
        state = fields.get("state")
        if state is not None and state != self._state:
            self._state = state
            self._notices.event("state", f"{state}/{self._epoch}", state=state)
        names = {"version": "model_version", "digest": "model_digest", "best": "best_version"}
        self._fields |= {names.get(name, name): value for name, value in fields.items() if value is not None}
        self._changed.set()

    async def write(self) -> None:
        """Write changes as they come, some together, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.store(self._fields)
            await self._clock.sleep(_EVERY_S)

    async def store(self, fields: dict[str, Any]) -> Entry[RunRecord]:
        """Write these values into the record, unless it is final already."""
        now = self._clock.now()
        written = {} if self._journal is None else {"journal": self._journal.size}

        def alter(record: RunRecord) -> RunRecord:
            if record.state in FINAL_STATES:
                return record
            return record.model_copy(update={**fields, **written, "updated_at": now})

        self._stored = await self._runs.change(alter, self._stored, **self._tokens)
        return self._stored
