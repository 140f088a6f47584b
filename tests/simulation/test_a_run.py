"""A run from its submission to its end, undisturbed: what it tells, what it leaves, and how it is reduced."""

from __future__ import annotations

from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_coordinator.verbs.reduction_jobs import ReductionLimits
from hanse_fabric.messages import JobKind, ReduceJob
from hanse_fabric.subjects import JOB, REDUCED, RESULT, TASK, UPDATE
from hanse_fabric.virtual_time import VirtualClock
from hanse_learning.server.strategy import Strategy
from hanse_reduction.arithmetic import Arithmetic, Processor
from simulation.played import Played, play
from simulation.stories import answers, completed, ended, hub_of, job_of

NAMES = ("north", "south")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return play(tmp_path_factory.mktemp("run"), job_of(rounds=3, evaluate={"every": 2}), sites=NAMES)


def test_a_version_is_published_every_round_and_nobody_is_asked_twice(run: Played) -> None:
    assert (run.record.state, run.record.round, run.record.model_version) == ("completed", 3, 3)
    assert set(answers(run.made).values()) == {1}


def test_a_run_leaves_nothing_on_the_bus_but_its_record_journal_and_models(run: Played) -> None:
    for subject in (TASK, RESULT, REDUCED, UPDATE):
        assert run.made.on_bus(subject) == []


def test_events_tell_the_story_in_order(run: Played) -> None:
    told = [(event.kind, event.round) for event in run.made.events("state", "round-started", "round-finished")]
    rounds = [(kind, number) for number in (1, 2, 3) for kind in ("round-started", "round-finished")]
    assert told[:7] == [("state", 0), *rounds]


def test_a_finished_round_tells_the_bytes_of_its_models_and_updates(run: Played) -> None:
    first, second, _ = (event.data["bytes"] for event in run.made.events("round-finished"))
    assert all(sent["up"] > 0 for sent in (first, second))
    # Two sites are sent the round's model to train, and in the second round its new model to evaluate, too.
    assert second["down"] > first["down"] > 0
    assert first["down"] % 2 == 0


def test_a_round_is_one_trace_over_its_tasks(run: Played) -> None:
    traces = {
        TASK.parse(task.subject)["step"]: task.headers["traceparent"].split("-")[1] for task in run.made.said(TASK)
    }
    assert traces["r2-train"] == traces["r2-evaluate"] != traces["r1-train"]


def test_progress_of_sites_is_passed_on_to_those_who_watch(run: Played) -> None:
    assert {event.data["participant"] for event in run.made.events("progress")} == set(NAMES)


@in_virtual_time
async def test_early_stopping_ends_a_run_at_its_target(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        record = await ended(made, job_of(rounds=9, stop={"metric": "loss", "mode": "min", "target": 1.0}))
    assert record.state == "completed"
    assert record.reason.startswith(f"stopped after round {record.round} of 9: loss ")
    assert 0 < record.round < 9


@in_virtual_time
async def test_a_stop_metric_that_no_site_reports_fails_the_run_and_names_those_reported(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES) as made:
        record = await ended(made, job_of(stop={"metric": "auc", "mode": "max", "target": 0.2}))
    assert record.state == "failed"
    assert "'auc'" in record.reason
    assert "loss" in record.reason


CLIPPED = {"reduction": {"name": "norm_clipping", "norm": 1.0}}


@pytest.mark.parametrize(
    ("strategy", "kinds"),
    [
        ({}, [JobKind.OPEN, JobKind.SHARD, JobKind.CLOSE]),
        (CLIPPED, [JobKind.OPEN, JobKind.MEASURE, JobKind.SHARD, JobKind.CLOSE]),
    ],
    ids=["plain", "measured"],
)
def test_a_large_reduction_is_opened_measured_where_the_strategy_measures_sharded_and_closed_to_the_same_bits(
    strategy: dict[str, object], kinds: list[JobKind], tmp_path: Path
) -> None:
    job = job_of(rounds=1, strategy=strategy)
    whole = play(tmp_path / "whole", job, sites=NAMES)
    cut = play(tmp_path / "cut", job, sites=NAMES, reduce=ReductionLimits(whole_bytes=1))
    asked = [each.kind for each in cut.made.published(JOB, ReduceJob) if each.step == "r1-reduce"]
    assert asked == kinds
    assert cut.record.model_digest == whole.record.model_digest


WARNING = "HANSE_REDUCE_DEVICE is cuda, but torch sees no such device: the processor is used"


class Gpu(Processor):
    """Computes as the processor does, and says that it is another."""

    @property
    def label(self) -> str:
        return "cuda:0 X"

    def takes(self, strategy: Strategy) -> bool:
        return True


@pytest.mark.parametrize(
    ("arithmetic", "device", "warnings"),
    [(Gpu(), ("cuda:0 X",), []), (Processor(WARNING), None, [WARNING])],
    ids=["device", "fallback"],
)
def test_the_device_is_in_the_lineage_and_a_fallback_is_told_once(
    tmp_path: Path, arithmetic: Arithmetic, device: tuple[str, ...] | None, warnings: list[str]
) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *NAMES, arithmetic=arithmetic) as made:
            await completed(made, job_of(rounds=2))
            assert {version.lineage.reduced_on for version in await made.versions()} == {device}
        assert [event.data["warning"] for event in made.events("note") if "warning" in event.data] == warnings

    clock.run(story())
