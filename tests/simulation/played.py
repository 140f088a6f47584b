"""A run in the league, from its submission to its end, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hanse_coordinator.records import RunRecord
from hanse_fabric.messages import ModelVersion
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.schema import DataSchema
from simulation.league import OPEN, League, MakeWorker, league
from simulation.network import QUICK, Weather


@dataclass
class Played:
    """What came of a simulation.

    Attributes:
        seconds: of virtual time.
        lost: messages that the network lost.
        takings: how often a coordinator took up the run.
        messages: subjects of all that is on the bus, in order, stream by stream.
        model: the newest version.
        versions: all of them, the newest last.
        made: the league as it was at the end.
    """

    job: dict[str, Any]
    record: RunRecord
    seconds: float
    lost: int
    takings: int
    messages: list[str]
    model: dict[str, np.ndarray]
    versions: list[ModelVersion]
    made: League


def play(
    folder: Path,
    job: dict[str, Any],
    *,
    sites: int | Sequence[str] = 10,
    coordinators: int = 1,
    seed: int = 0,
    weather: Weather = QUICK,
    trouble: Callable[[League], Awaitable[None]] | None = None,
    worker: MakeWorker | None = None,
    schema: DataSchema = OPEN,
    **more: Any,
) -> Played:
    """Simulate a run from its submission to its completion.

    Args:
        trouble: acts beside the run; it is cut short where the run ends first.
        worker: makes a site's, by its number; None: `Trainer`.
        schema: of the project's data.
        more: as for `league`.
    """
    clock = VirtualClock()

    async def main() -> Played:
        simulation = league(
            clock, folder, sites=sites, coordinators=coordinators, weather=weather, seed=seed, worker=worker,
            schema=schema, **more,
        )  # fmt: skip
        async with simulation as made:
            acting = made.group.create_task(_act(made, trouble))
            await made.submit(**job)
            record = await made.ended()
            acting.cancel()
            if record.state != "completed":
                raise RuntimeError(f"the run {record.state}: {record.reason}")
            return Played(
                job,
                record,
                clock.monotonic(),
                made.network.lost,
                made.takings(),
                made.messages(),
                await made.model(),
                await made.versions(),
                made,
            )

    return clock.run(main())


async def _act(made: League, trouble: Callable[[League], Awaitable[None]] | None) -> None:
    if trouble is not None:
        await trouble(made)
