"""Sites that may die at their work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_schemas.schema import DataSchema
from simulation.league import League
from simulation.network import Death
from simulation.trainer import Trainer


class Mortal(Trainer):
    """A site's worker, at whose work the site may die: before it, when all is charged, or after it, unanswered."""

    death: Death

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        last = await self.death.before()
        outcome = await super().work(request, on_progress)
        if last:
            await self.death.now()
        return outcome


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sites of all leagues, of which each worker is mortal."""
    add_site = League.add_site

    async def add(made: League, name: str, worker: Mortal, schema: DataSchema) -> None:
        await add_site(made, name, worker, schema)
        worker.death = made.processes[name].death

    monkeypatch.setattr(League, "add_site", add)
