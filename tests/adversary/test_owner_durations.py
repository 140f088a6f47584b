"""How long work took tells how many examples there are: where answers are masked or private, it leaves in nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

from adversary.conftest import Attacked
from adversary.in_memory import tmp_path
from adversary.lying_hub import MODEL, LyingHub, refusals
from adversary.oracle import TERMS
from adversary.pairwise_works import answered, opened
from adversary.stage import Regression
from clocks import in_virtual_time
from hanse_datapod.answers import plain
from hanse_datapod.masking import answer
from hanse_datapod.study import answers as study_answers
from hanse_datapod.worker.client.process_worker import ProcessWorker
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.clock import Clock
from hanse_fabric.messages import Result, TaskKind
from hanse_fabric.subjects import RESULT
from hanse_fabric.telemetry.metrics import prometheus_text
from hanse_fabric.virtual_time import VirtualClock
from hanse_site.answering import result_for
from simulation.cohorts import COHORTS, SCHEMA, Files, study_job
from simulation.stories import hub_of

__all__ = ["tmp_path"]
TOOK = 1234.567
PRIVATE = {"masking": {"required": False}, "privacy": {"required": True}}


class Timed(Regression):
    """A worker that says how long it took."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        return replace(await super().work(request, on_progress), seconds=TOOK)


async def masked(hub: LyingHub) -> dict[str, Result]:
    evaluation = {"kind": TaskKind.EVALUATE, "model": MODEL}
    trained = await hub.ask(*(hub.task(name, model=MODEL) for name in hub.stage.names))
    evaluated = await hub.ask(*(hub.task(name, "r1-evaluate", **evaluation) for name in hub.stage.names))
    return trained | {f"{name} evaluates": result for name, result in evaluated.items()}


async def masked_by_the_others(hub: LyingHub) -> dict[str, Result]:
    _, orders, _ = await opened(hub, "s0", hub.stage.names, hub.stage.run)
    return await answered(hub, "s0", orders, hub.stage.names, hub.stage.run)


async def private(hub: LyingHub) -> dict[str, Result]:
    return await hub.ask(*(hub.task(name, model=MODEL, mode=None, privacy=TERMS) for name in hub.stage.names))


ASKED: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "masked with a compensator": (masked, {}),
    "masked by the others": (masked_by_the_others, {}),
    "private": (private, PRIVATE),
    "private, of a site that does not require it": (private, {"masking": {"required": False}}),
}
ways = pytest.mark.parametrize("how", ASKED)


async def durations_that_left(attacked: Attacked, how: str) -> tuple[set[float], bool]:
    """What signed results say, and whether the number is in any message, object, log of what left, or metric."""
    ask, rules = ASKED[how]
    async with attacked(worker=Timed, **rules) as hub:
        results = await ask(hub)
        assert not refusals(results)
        stored = [hub.stage.store.get(key, limit=1 << 20) for key in hub.stage.store.keys("updates/")]
        own = [(site.home / "outbox.jsonl").read_bytes() for site in hub.stage.sites.values()]
        left = b"\n".join([*(data for _, data in hub.heard), *stored, *own, prometheus_text().encode()])
    return {result.seconds for result in results.values()}, str(TOOK).encode() in left


@ways
async def test_no_duration_leaves_beside_a_masked_or_private_answer(attacked: Attacked, how: str) -> None:
    assert await durations_that_left(attacked, how) == ({0.0}, False)


@ways
@pytest.mark.control("test_no_duration_leaves_beside_a_masked_or_private_answer")
async def test_control_where_durations_are_told_each_signed_result_has_its_own(
    attacked: Attacked, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (answer, plain):
        monkeypatch.setattr(place, "seconds_told", lambda _policy, _task, took: took)
    assert await durations_that_left(attacked, how) == ({TOOK}, True)


class TimedStudy:
    """A cohort's worker that says how long each step took."""

    def __init__(self, worker: ProcessWorker) -> None:
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        return replace(await self._worker.work(request, on_progress), seconds=TOOK)


async def durations_of_a_study(clock: VirtualClock, folder: Path) -> tuple[set[float], bool]:
    """What signed results of a whole study say, and whether the number is in any message."""
    files = Files.written(folder)

    def timed(clock: Clock, number: int) -> Any:
        return TimedStudy(files.worker(clock, number))

    with threadpool_limits(1):
        async with hub_of(clock, folder, *COHORTS, worker=timed, schema=SCHEMA) as made:
            await made.submit(**study_job(test="chi_square", covariates=[]))
            record = await made.ended()
            assert record.state == "completed", record.reason
            results = made.published(RESULT, Result)
            said = any(str(TOOK).encode() in each.data for each in made.network.published)
    return {result.seconds for result in results}, said


@in_virtual_time
async def test_no_duration_leaves_beside_a_step_of_a_study(clock: VirtualClock, tmp_path: Path) -> None:
    assert await durations_of_a_study(clock, tmp_path) == ({0.0}, False)


@in_virtual_time
@pytest.mark.control("test_no_duration_leaves_beside_a_step_of_a_study")
async def test_control_where_steps_of_studies_tell_durations_they_are_read(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def telling(*about: Any, **what: Any) -> Result:
        return result_for(*about, **what | {"seconds": TOOK})

    monkeypatch.setattr(answer, "result_for", telling)
    monkeypatch.setattr(study_answers, "result_for", telling)
    assert await durations_of_a_study(clock, tmp_path) == ({TOOK}, True)
