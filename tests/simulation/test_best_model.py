"""The model of the best evaluation is published, marked and found again, whichever round the run ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clocks import in_virtual_time
from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.subjects import JOURNAL
from hanse_fabric.virtual_time import VirtualClock
from simulation.league import League
from simulation.played import play
from simulation.stories import hub_of

JOB: dict[str, Any] = {
    "rounds": 10, "model": {"name": "linear"}, "checkpoint_every": 0, "seed": 7,
    "participants": {"minimum": 4, "deadline": 600.0}, "stop": {"metric": "loss", "patience": 2}, "keep": "best",
    "strategy": {"optimizer": {"name": "adam", "lr": 0.5}},
}  # fmt: skip
"""A server whose steps are so long that the loss falls and then rises."""


@pytest.mark.parametrize("killed", [False, True])
def test_the_best_model_stays_when_the_run_goes_on_to_worse_ones(tmp_path: Path, killed: bool) -> None:
    played = play(tmp_path, JOB, sites=4, coordinators=2, trouble=_kill_a_coordinator if killed else None)
    versions = played.versions
    best = min(versions, key=lambda version: version.metrics["loss"])
    assert versions[-1].final
    assert best.lineage.round < versions[-1].lineage.round
    assert played.record.best_version == best.version != played.record.model_version
    marked = [version for version in versions if version.best]
    assert marked[-1] == best
    assert [version.metrics["loss"] for version in marked] == sorted(
        (version.metrics["loss"] for version in marked), reverse=True
    )
    assert played.record.reason == (
        f"stopped after round {versions[-1].lineage.round} of 10: "
        f"loss has not improved on {best.metrics['loss']:g} for 2 evaluations"
    )
    if killed:
        assert played.takings == 2


def test_without_the_key_only_the_last_model_is_there(tmp_path: Path) -> None:
    """The control."""
    played = play(tmp_path, {**JOB, "keep": "last"}, sites=4)
    assert [(version.best, version.final) for version in played.versions] == [(False, True)]
    assert played.record.best_version is None


@pytest.mark.parametrize("dies_at", [0, 2, 5], ids=lambda at: f"dies_at_{at}" if at else "nobody_dies")
@in_virtual_time
async def test_a_run_that_is_cancelled_keeps_the_best_that_it_has_come_to(
    clock: VirtualClock, tmp_path: Path, dies_at: int
) -> None:
    """Also where the coordinator that cancels it dies at one of its next publications, and the other one takes over."""
    async with hub_of(clock, tmp_path, *"abcd", coordinators=2) as made:
        await made.submit(**{**JOB, "rounds": 400, "stop": {"metric": "loss"}})
        await made.until(lambda record: record.round >= 9)
        if dies_at:
            (holder,) = {
                entry.body["holder"] for entry in made.published(JOURNAL, JournalEntry) if entry.kind == "lease"
            }
            death = made.group.create_task(made.processes[holder].died(dies_at, stored=False))
        await made.want("cancel")
        record, versions = await made.ended(), await made.versions()
        if dies_at:
            assert death.done(), "nobody died"
            assert made.takings() == 2
    losses = {event.round: event.data["metrics"]["loss"] for event in made.events("round-finished")}
    assert record.state == "cancelled"
    assert 9 <= record.round < 400
    (best,) = [version for version in versions if version.version == record.best_version]
    assert best.lineage.round == min(losses, key=losses.__getitem__) < max(losses)
    assert best.best
    assert not best.deleted
    assert made.store.get(best.key, limit=1 << 24)


async def _kill_a_coordinator(made: League) -> None:
    await made.until(lambda record: record.round >= 4)
    for name in [name for name in made.processes if name.startswith("coordinator")]:
        await made.restart(name)
