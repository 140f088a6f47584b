"""What a run has made stays as long as its workflow may name it, and no longer than the run, whoever dies meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.clock import Clock
from hanse_fabric.messages import TaskKind
from installed_package import install
from simulation.league import PROJECT, RUN, League
from simulation.played import play
from simulation.trainer import Trainer, write

JOB: dict[str, Any] = {
    "rounds": 4, "model": {"name": "linear"}, "checkpoint_every": 0,
    "strategy": {"optimizer": {"name": "sgd", "momentum": 0.5}}, "participants": {"minimum": 3, "deadline": 600.0},
}  # fmt: skip

TWICE = """
from hanse_workflows import Workflow, first_model, reduce
from hanse_workflows.round_asks import training
from hanse_workflows.round_end import RoundEnds
from hanse_workflows.round_state import RoundState
from hanse_workflows.rounds import train


async def twice(run):
    '''Trains two times from one model, which is in no registry, and reduces the answers once more each time.'''
    model = await first_model(run)
    everybody = await run.participants("p")
    for number in (1, 2):
        trained = await train(run, None, training(run.job, everybody, number, model), RoundState())
        await reduce(run, f"r{number}-again", round=number, answers=trained.answers, model=model, needed=3)
    await RoundEnds(run, None).end(run.job.rounds, everybody, trained, RoundState())


workflow = Workflow(twice)
"""


class Wide(Trainer):
    """With a model that is too large to be in a message."""

    def __init__(self, clock: Clock, number: int) -> None:
        super().__init__(clock, number)
        self._number = number

    def _work(self, request: WorkRequest) -> WorkOutcome:
        if request.kind is TaskKind.EVALUATE:
            return WorkOutcome(None, 1, {"loss": 0.0}, self._seconds)
        write(request, np.full(100_000, self._number + request.round))
        return WorkOutcome(request.output, 1, {"loss": 0.0}, self._seconds)


def stored(made: League) -> set[str]:
    """Keys of what the run has in the store."""
    return {key for kind in ("models", "updates", "masks") for key in made.store.keys(f"{kind}/{PROJECT}/{RUN}/")}


def wide(folder: Path, job: dict[str, Any], seen: list[League], **changes: Any) -> None:
    async def look(made: League) -> None:
        seen.append(made)
        if "trouble" in changes:
            await changes["trouble"](made)

    play(folder, job, sites=3, worker=Wide, **{**changes, "trouble": look})


def test_a_workflow_trains_again_from_a_model_and_reduces_answers_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {"hanse.workflows": {"twice": "twice:workflow"}}
    monkeypatch.syspath_prepend(install(tmp_path / "site", "twice", {"twice": TWICE}, entries))
    seen: list[League] = []

    async def allow(made: League) -> None:
        made.policy = made.policy.model_copy(update={"workflows": ("twice",)})
        for number in range(3):
            await made.restart(f"site-{number}")

    wide(tmp_path, JOB | {"workflow": "twice"}, seen, trouble=allow)
    (left,) = stored(seen[0])
    assert left.startswith(f"models/{PROJECT}/{RUN}/r2-reduce-")


@pytest.mark.parametrize("masked", [False, True])
def test_the_end_of_a_run_leaves_what_was_published_alone(tmp_path: Path, masked: bool) -> None:
    seen: list[League] = []
    masks = {"secure_aggregation": {"mode": "compensator"}, "strategy": {}} if masked else {}
    wide(tmp_path, JOB | masks, seen)
    (left,) = stored(seen[0])
    assert left.startswith(f"models/{PROJECT}/{RUN}/r4-reduce-")


def test_a_coordinator_removes_what_the_one_before_died_with(tmp_path: Path) -> None:
    left: list[set[str]] = []

    async def crash(made: League) -> None:
        await made.until(lambda record: record.round == 1)
        really, made.store.delete = made.store.delete, lambda _: None  # type: ignore[assignment, method-assign]
        await made.until(lambda record: record.round == 2)
        await made.processes["coordinator-0"].crash()
        before = stored(made)
        made.store.delete = really  # type: ignore[method-assign]
        made.processes["coordinator-0"].start(made.group)
        await made.until(lambda record: record.round == 4)
        left.extend([before, before & stored(made)])

    seen: list[League] = []
    wide(tmp_path, JOB | {"rounds": 5}, seen, trouble=crash)
    before, after = left
    assert len([key for key in before if key.startswith("updates/")]) >= 3
    assert not [key for key in after if key.startswith("updates/")]
