"""How often a round crosses the link to its sites, in virtual time: all else takes none."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_fabric.virtual_time import VirtualClock
from simulation.network import Weather
from simulation.stories import completed, hub_of, job_of
from simulation.trainer import Trainer

AWAY_S = 0.05


@pytest.mark.parametrize(
    ("job", "most"), [({}, 2.2), ({"secure_aggregation": {"mode": "pairwise"}}, 4.2)], ids=["plain", "pairwise"]
)
@in_virtual_time
async def test_each_step_of_a_round_is_one_round_trip(
    clock: VirtualClock, tmp_path: Path, job: dict[str, Any], most: float
) -> None:
    """Plain: train, evaluate. Masked pairwise each of them has one after it; secrets for the next one come beside the
    answers."""
    far = Weather(latency_s=0.0, away_s=AWAY_S)
    async with hub_of(
        clock, tmp_path, "north", "south", "west", weather=far, worker=lambda clock, n: Trainer(clock, n, 0.0)
    ) as made:
        await completed(made, job_of(rounds=4, **job))
        ends = [event.at.timestamp() for event in made.events("round-finished")]
    trips = [(later - earlier) / (2 * AWAY_S) for earlier, later in itertools.pairwise(ends)]
    assert len(trips) == 3
    assert max(trips) < most, trips
