"""A hub that asks a site for a run's first model after the site has trained: no mask is on it, for it is to be made of
the job's seed alone. A team's own loop, though, may give the model that it has, as if it were a new one.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.stage import Array, Regression
from hanse_datapod.pipeline.worker import PipelineWorker
from hanse_fabric.messages import Outcome, TaskKind
from hanse_fabric.tensors.file import decode_tensors

TARGET = "site-0"


def looping() -> Any:
    """Makes a site's worker, by its number: a loop that holds one model, trains it, and gives it for a first one."""

    def worker(index: int) -> PipelineWorker:
        made, data = PipelineWorker([], 40 + index, hides=True), Regression(index)

        def loop() -> None:
            own = {"weight": np.zeros(len(MODEL), np.float32)}
            while (task := made.next_task()) is not None:
                if task.kind == "train":
                    given = task.model["weight"].astype(np.float64)
                    own = {"weight": (given + data.update(given)).astype(np.float32)}
                task.push(own, 40, {})

        threading.Thread(target=loop, daemon=True).start()
        return made

    return worker


async def targets_update(hub: LyingHub) -> tuple[Array | None, str]:
    """The update of the target, which has answered under masks, by what it gives for a first model then."""
    await hub.ask(*(hub.task(name, model=MODEL) for name in hub.stage.names))
    task = hub.task(TARGET, "init", kind=TaskKind.INITIALIZE, mode=None, round=0)
    answer = (await hub.ask(task))[TARGET]
    if answer.outcome is not Outcome.DONE:
        return None, answer.reason
    given = decode_tensors(await hub.file(answer, answer.update))[1]["weight"]
    return given.astype(np.float64) - MODEL, ""


def as_it_is(update: Array | None) -> bool:
    assert update is not None
    return bool(np.abs(update - Regression(0).update(MODEL)).max() < 1e-6)


async def end(hub: LyingHub) -> None:
    for site in hub.stage.sites.values():
        site.worker.end()


async def test_a_loop_that_has_trained_under_masks_is_asked_for_no_first_model(attacked: Attacked) -> None:
    async with attacked(worker=looping()) as hub:
        update, why = await targets_update(hub)
        await end(hub)
        assert update is None
        assert "this site's own loop has trained" in why


@pytest.mark.control("test_a_loop_that_has_trained_under_masks_is_asked_for_no_first_model")
async def test_control_where_a_loop_may_be_asked_for_one_its_update_is_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PipelineWorker, "_trained", property(lambda _: False, lambda *_: None), raising=False)
    async with attacked(worker=looping()) as hub:
        update, why = await targets_update(hub)
        await end(hub)
        assert as_it_is(update), why
