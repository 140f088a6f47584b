"""Sites show life at the pace that the hub names: a killed one is away within a minute, and no round waits for it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_coordinator.boards import Sighting
from hanse_coordinator.doors import pace_of
from hanse_fabric.messages import Presence, Task, TaskKind
from hanse_fabric.subjects import PRESENCE, TASK
from hanse_fabric.virtual_time import VirtualClock
from simulation.stories import completed, hub_of, job_of

SEEN = datetime(2026, 7, 1, tzinfo=UTC)
THREE = ("east", "north", "south")


@in_virtual_time
async def test_a_killed_site_is_asked_by_no_round_that_begins_a_minute_later(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *THREE) as made:
        await clock.sleep(45)  # it has heard the pace, and said it
        await made.processes["south"].crash()
        killed = clock.now().timestamp()
        job = job_of(rounds=12, participants={"minimum": 2, "quorum": 0.5, "grace": 10.0, "deadline": 60.0})
        await completed(made, job)
        tasks = [task for task in made.published(TASK, Task) if task.kind is TaskKind.TRAIN]
    asked = [task.issued_at.timestamp() - killed for task in tasks if task.participant == "south"]
    others = [task.issued_at.timestamp() - killed for task in tasks if task.participant == "north"]
    assert asked, "the first rounds cannot know"
    assert max(asked) < 60 < max(others)
    assert len(others) == 12


@in_virtual_time
async def test_sites_show_life_as_often_as_the_hub_asks(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *THREE) as made:
        await clock.sleep(125)
        shown = [sign for sign in made.published(PRESENCE, Presence) if sign.participant == "east"]
    assert [sign.every for sign in shown[:3]] == [60.0, 20.0, 20.0]
    between = [(later.sent_at - sign.sent_at).total_seconds() for sign, later in pairwise(shown[1:])]
    assert between
    assert all(19 < seconds < 22 for seconds in between)


@pytest.mark.parametrize(("sites", "pace"), [(0, 20.0), (1000, 20.0), (2000, 40.0), (3000, 60.0), (100_000, 60.0)])
def test_the_pace_of_many_sites_is_slower_and_never_slower_than_a_minute(sites: int, pace: float) -> None:
    assert pace_of(sites) == pace


@pytest.mark.parametrize(("every", "away_after"), [(20.0, 55), (60.0, 165), (None, 165)])
def test_a_site_is_away_when_it_has_missed_two_signs_of_the_pace_that_it_named(
    every: float | None, away_after: int
) -> None:
    sign = Presence(project="triage", participant="east", version="0.1.0", sent_at=SEEN, every=every)
    sighting = Sighting(sign, SEEN, None)
    assert sighting.is_current(SEEN + timedelta(seconds=away_after))
    assert not sighting.is_current(SEEN + timedelta(seconds=away_after + 1))
