"""What the operator sees of runs: open steps and whom they wait for, while they do and no longer; so many at most."""

from __future__ import annotations

import itertools

import pytest

from hanse_coordinator import refusals
from hanse_coordinator.refusals import begin_counting, count_refusal
from hanse_coordinator.watching.vitals import MOST_NAMED, MOST_RUNS, Backlog, RunVitals, Vitals, count_bytes
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import ObjectRef
from hanse_fabric.telemetry import catalogue
from hanse_fabric.telemetry.metrics import Metric
from hanse_workflows.outcomes import Answer


class Seconds:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def shown(metric: Metric, project: str) -> dict[tuple[str, ...], float]:
    """The series of a project, by their other labels."""
    return {
        tuple(value for name, value in labels.items() if name != "project"): value
        for _, labels, value in metric.samples()
        if labels.get("project") == project
    }


def test_an_open_step_shows_its_age_and_after_some_seconds_whom_it_waits_for(clock: Seconds) -> None:
    board, run, waiting = Vitals(clock), RunVitals("v1", "r", clock), ["north", "south"]
    run.round = 3
    with board.watching(run):
        with run.phase("train", "r3-train", lambda: waiting):
            clock.now += 4
            board.set_gauges()
            assert shown(catalogue.RUN_STEP, "v1") == {("r", "train"): 4}
            assert shown(catalogue.RUN_WAITING, "v1") == {("r",): 2}
            assert shown(catalogue.RUN_ROUND, "v1") == {("r",): 3}
            assert shown(catalogue.WAITED_FOR, "v1") == {}
            clock.now += 6
            waiting.remove("north")
            board.set_gauges()
            assert shown(catalogue.WAITED_FOR, "v1") == {("r", "south"): 10}
            assert shown(catalogue.RUN_IDLE, "v1") == {("r",): 0}, "somebody has answered"
            clock.now += 30
            board.set_gauges()
            assert shown(catalogue.RUN_IDLE, "v1") == {("r",): 30}
        board.set_gauges()
        assert shown(catalogue.RUN_STEP, "v1") == shown(catalogue.WAITED_FOR, "v1") == {}
    board.set_gauges()
    for metric in (catalogue.RUN_ROUND, catalogue.RUN_IDLE, catalogue.RUN_WAITING, catalogue.RUN_STEP):
        assert shown(metric, "v1") == {}, "a run that has left leaves no series"


def test_a_steps_duration_is_counted_by_its_phase_also_where_it_fails(clock: Seconds) -> None:
    run = RunVitals("v2", "r", clock)

    def counted() -> float:
        return next(
            (
                v
                for n, labels, v in catalogue.PHASE_SECONDS.samples()
                if n.endswith("_sum") and labels["phase"] == "odd"
            ),
            0.0,
        )

    before = counted()

    def fail() -> None:
        with run.phase("odd", "s"):
            clock.now += 7
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert counted() - before == 7
    assert run.look(clock.now).step is None


def test_of_steps_side_by_side_the_oldest_is_shown(clock: Seconds) -> None:
    run = RunVitals("v3", "r", clock)
    with run.phase("study", "a", lambda: ["north"]):
        clock.now += 5
        with run.phase("compute", "b", lambda: ["north", "south"]):
            clock.now += 1
            look = run.look(clock.now)
            assert look.step == ("study", 6)
            assert look.missing == {"north": 6, "south": 1}
            assert look.named() == {"north": 6}


def test_names_and_runs_are_so_many_at_most(clock: Seconds) -> None:
    board = Vitals(clock)
    runs = [RunVitals("v4", f"r{number:03}", clock) for number in range(MOST_RUNS + 5)]
    names = [f"site-{number:03}" for number in range(500)]
    with runs[0].phase("train", "s", lambda: names):
        watching = [board.watching(run) for run in runs]
        for each in watching:
            each.__enter__()
        runs[0].look(clock.now)
        board.set_gauges()
        clock.now += 60
        board.set_gauges()
        assert shown(catalogue.RUN_WAITING, "v4")[("r000",)] == 500, "their number is always told"
        assert len(shown(catalogue.WAITED_FOR, "v4")) == MOST_NAMED
        assert len(shown(catalogue.RUN_IDLE, "v4")) == MOST_RUNS
        for each in watching:
            each.__exit__(None, None, None)
    board.set_gauges()


def test_a_queue_is_what_was_asked_for_and_not_answered_and_is_shown_empty_too(clock: Seconds) -> None:
    backlog = Backlog()
    backlog.set_gauges(["aggregators"], clock)
    assert catalogue.QUEUE_DEPTH.value(queue="aggregators") == 0
    with backlog.waiting("aggregators", clock):
        clock.now += 9
        with backlog.waiting("aggregators", clock), backlog.waiting("exchanges", clock):
            clock.now += 1
            backlog.set_gauges(["aggregators"], clock)
            assert catalogue.QUEUE_DEPTH.value(queue="aggregators") == 2
            assert catalogue.QUEUE_OLDEST.value(queue="aggregators") == 10
            assert catalogue.QUEUE_OLDEST.value(queue="exchanges") == 1
    backlog.set_gauges(["aggregators"], clock)
    assert catalogue.QUEUE_DEPTH.value(queue="aggregators") == catalogue.QUEUE_OLDEST.value(queue="aggregators") == 0


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_named", set())
    monkeypatch.setattr(catalogue.REFUSED, "_values", {})
    monkeypatch.setattr(catalogue.REFUSALS, "_values", {})


@pytest.mark.usefixtures("fresh")
def test_refusals_are_counted_by_reason_and_by_whose_they_were() -> None:
    begin_counting()
    assert catalogue.REFUSALS.value(what="update", code="tampered") == 0
    assert len(list(catalogue.REFUSALS.samples())) == len(refusals.WHAT) * len(ErrorCode), "each is shown from zero on"
    count_refusal("update", "tampered", "triage", "east")
    count_refusal("task", "what a site made up", "triage", "east")
    count_refusal("request", "forbidden")
    assert catalogue.REFUSALS.value(what="update", code="tampered") == 1
    assert catalogue.REFUSALS.value(what="task", code="other") == 1, "a site cannot make series"
    assert shown(catalogue.REFUSED, "triage") == {("east", "update", "tampered"): 1, ("east", "task", "other"): 1}


@pytest.mark.usefixtures("fresh")
def test_participants_beyond_the_most_are_counted_together() -> None:
    for number in range(refusals.MOST_NAMED + 50):
        count_refusal("result", "tampered", "many", f"site-{number}")
    count_refusal("result", "tampered", "many", "site-0")
    series = list(catalogue.REFUSED.samples())
    assert len(series) == refusals.MOST_NAMED + 1
    assert shown(catalogue.REFUSED, refusals.OTHERS) == {(refusals.OTHERS, "result", "tampered"): 50}
    assert catalogue.REFUSED.value(project="many", participant="site-0", what="result", code="tampered") == 2
    assert sum(value for _, _, value in series) == refusals.MOST_NAMED + 51


def test_a_gauges_series_are_replaced_together_and_have_all_labels() -> None:
    for values in itertools.permutations([("p", "a"), ("p", "b")], 1):
        catalogue.PARTICIPANTS.replace({(f"replaced-{values[0][0]}", values[0][1]): 1})
    assert shown(catalogue.PARTICIPANTS, "replaced-p") == {("b",): 1}
    with pytest.raises(ValueError, match="hanse_participants"):
        catalogue.PARTICIPANTS.replace({("p",): 1})
    catalogue.PARTICIPANTS.replace({})


def test_a_closed_steps_bytes_are_counted_by_direction_and_by_what_carried_them() -> None:
    def shown_bytes() -> dict[tuple[str, str], float]:
        rows = catalogue.STEP_BYTES.samples()
        return {(labels["direction"], labels["carrier"]): value for _, labels, value in rows}

    before = shown_bytes()
    small = ObjectRef(digest="a" * 64, size=10)
    large = ObjectRef(digest="b" * 64, size=1000, key="models/p/large")
    answers = [
        Answer(participant="north", examples=1, update=small, tally=small),
        Answer(participant="south", examples=1, update=large, extras={"control": small}),
    ]
    count_bytes([large, small] * 3, answers)
    grown = {series: value - before.get(series, 0) for series, value in shown_bytes().items()}
    assert grown == {("down", "store"): 3000, ("down", "bus"): 30, ("up", "bus"): 30, ("up", "store"): 1000}
