"""Records and journals that nobody can read: each service starts and goes on, and a run whose journal is damaged fails
by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.subjects import JOURNAL, SUBJECTS, Subject
from hanse_fabric.virtual_time import VirtualClock
from simulation.faults import silent
from simulation.league import PROJECT, RUN
from simulation.stories import completed, hub_of, job_of

RUBBISH = b'{"stream":"HANSE_PROGRESS","seq":7}'
OTHER_RUN = "rubbish00000"
BUCKETS = [row for row in SUBJECTS if row.pattern.startswith("$KV.")]
_TOKENS = {"project": PROJECT, "run": OTHER_RUN, "version": "7777"}


def place(row: Subject) -> str:
    """A key of a bucket, in the project that runs where it names one."""
    return row.of(**{name: _TOKENS.get(name, "rubbish") for name in row.tokens})


@pytest.mark.parametrize(
    "rows",
    [BUCKETS[first::4] for first in range(4)],
    ids=lambda rows: " ".join(row.pattern.split(".")[1] for row in rows),
)
@in_virtual_time
async def test_a_damaged_record_stops_no_service(clock: VirtualClock, tmp_path: Path, rows: list[Subject]) -> None:
    async with hub_of(clock, tmp_path, "north", "south", "west") as made:
        for row in rows:
            await made.owner.publish(place(row), RUBBISH)
        for name in ("coordinator-0", "aggregator-0", "compensator", "registry"):
            await made.restart(name)
        await completed(made, job_of(rounds=2, secure_aggregation={"mode": "compensator", "minimum": 3}))
        assert [version.version for version in await made.versions()] == [1, 2]


@in_virtual_time
async def test_a_run_whose_journal_is_damaged_fails_by_name_and_the_next_one_is_conducted(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, "north", "south") as made:
        await made.owner.publish(JOURNAL.of(project=PROJECT, run=OTHER_RUN), RUBBISH)
        await made.submit(OTHER_RUN, **job_of())
        damaged = await made.ended(OTHER_RUN)
        assert damaged.state == "failed"
        assert f"journal.{PROJECT}.{OTHER_RUN}: entry 1 of the journal cannot be read" in damaged.reason
        await completed(made, job_of())
        assert (await made.ended(RUN)).state == "completed"


@in_virtual_time
async def test_a_run_whose_journal_has_two_outcomes_of_a_step_fails_by_name(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, "north", "south") as made:
        made.let("north", silent("r2-train"))
        await made.submit(**job_of())
        await made.event("task-answered", step="r2-train")
        await made.processes["coordinator-0"].crash()
        [closed] = [entry for entry in made.published(JOURNAL, JournalEntry) if entry.step == "r1-reduce"]
        other = closed.model_copy(update={"body": closed.body | {"participants": ["north"]}})
        await made.owner.publish(JOURNAL.of(project=PROJECT, run=RUN), other.encode())
        made.processes["coordinator-0"].start(made.group)
        failed = await made.ended()
    assert failed.state == "failed"
    assert "of the journal are both of step r1-reduce, closed, and differ" in failed.reason
