"""The model of the best evaluation is published, marked and found again, whichever round the run ends with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulation.league import League
from simulation.played import play

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


async def _kill_a_coordinator(made: League) -> None:
    await made.until(lambda record: record.round == 4)
    for name in [name for name in made.processes if name.startswith("coordinator")]:
        await made.restart(name)
