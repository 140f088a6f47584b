"""Runs that are disturbed at a chosen moment, and the digests that they end in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hanse.hub import Project, Run
from hanse_fabric.errors import HanseError

ROUNDS = 24
WAIT_S = 600


def job(sites: int, *, mode: str | None = None, rounds: int = ROUNDS) -> dict[str, Any]:
    """A job whose model goes through the object store; with masks or ring arithmetic where `mode` says so."""
    masking = {"secure_aggregation": {"mode": mode}} if mode else {}
    return {
        "rounds": rounds,
        "participants": {"minimum": sites, "deadline": 300},
        "model": {"name": "mlp", "hidden": [384, 128]},
        "train": {"epochs": 2, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}},
        "strategy": {"reduction": {"name": "weighted_mean"}, "optimizer": {"name": "adam", "lr": 0.01}},
        "checkpoint_every": 5,
        "seed": 11,
        **masking,
    }


def digest(run: Run) -> str:
    """The final model's digest; fails where the run did."""
    end = time.monotonic() + WAIT_S
    while not refreshed(run).view.ended:
        assert time.monotonic() < end, (
            f"run {run.id} has not ended after {WAIT_S} s: {run.state}, round {run.view.round}"
        )
        time.sleep(0.3)
    assert run.state == "completed", f"run {run.id} {run.state}: {run.view.reason}"
    assert run.view.model_digest is not None
    return run.view.model_digest


def until(true: Callable[[], bool], what: str) -> None:
    """Waits for what has no event."""
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end, f"not within {WAIT_S} s: {what}"
        time.sleep(0.3)


def refreshed(run: Run) -> Run:
    """The run as it is now; waits while the hub does not answer."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return run.refresh()
        except HanseError:
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def disturbed(
    project: Project, body: dict[str, Any], disturbances: list[Callable[[], object]]
) -> tuple[str, list[int]]:
    """Submits a job and disturbs it at equal distances of its rounds, always while it runs.

    Returns:
        The digest of the model, and the rounds that had been finished when each disturbance began.
    """
    run = project.run(body)
    rounds: list[int] = []
    for number, disturb in enumerate(disturbances):
        due = 1 + number * body["rounds"] // (len(disturbances) + 1)
        end = time.monotonic() + WAIT_S
        while refreshed(run).view.round < due and not run.view.ended:
            assert time.monotonic() < end, f"run {run.id} stays in round {run.view.round}"
            time.sleep(0.2)
        assert not run.view.ended, f"run {run.id} {run.state} in round {run.view.round}, before it was disturbed"
        rounds.append(run.view.round)
        disturb()
    return digest(run), rounds
