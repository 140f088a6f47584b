"""Runs that are disturbed at a chosen moment, and the digests that they end in."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hanse.hub import Project, Run
from hanse_fabric.errors import HanseError

ROUNDS = 60
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


def disturbed(project: Project, body: dict[str, Any], disturbances: list[Callable[[], object]]) -> tuple[str, str]:
    """Submits a job and disturbs it at equal distances of its rounds, without waiting for one to be over.

    Returns:
        The digest of the model; and for each disturbance the rounds that were done when it began and when it was over.
    """
    run = project.run(body)

    def act(disturb: Callable[[], object], began: int) -> str:
        disturb()
        return f"{began}-{refreshed(project.get_run(run.id)).view.round}"

    with ThreadPoolExecutor(len(disturbances)) as pool:
        under_way = []
        for number, disturb in enumerate(disturbances):
            due = 2 + number * body["rounds"] // len(disturbances)
            until(lambda: refreshed(run).view.round >= due or run.view.ended, f"round {due} of run {run.id}")  # noqa: B023
            assert not run.view.ended, f"run {run.id} {run.state} in round {run.view.round}, before it was disturbed"
            under_way.append(pool.submit(act, disturb, run.view.round))
        rounds = [future.result() for future in under_way]
    return digest(run), ", ".join(rounds)
