"""Which answers a step waits for: until all are there, or grace or deadline are over. The first of a site counts."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta

import pytest

from clocks import in_virtual_time
from hanse_coordinator.verbs.collector import Collector
from hanse_fabric.messages import ObjectRef, Outcome, Result, TaskKind
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.job import EarlyStop
from hanse_workflows.answers import Terms
from hanse_workflows.metrics import EarlyStopping, summarize
from hanse_workflows.outcomes import Answer

PROJECT, RUN = "triage", "run000000001"
TERMS = Terms(TaskKind.EVALUATE, PROJECT, RUN, 1000)
TASK_ID = "0" * 32


def result_of(name: str, **changes: object) -> Result:
    body = {"task": TASK_ID, "project": PROJECT, "run": RUN, "step": "r1-train", "participant": name,
            "outcome": Outcome.DONE, "examples": 5}  # fmt: skip
    return Result.model_validate(body | changes)


async def closing(collector: Collector, clock: VirtualClock, *, grace: float | None) -> asyncio.Task[None]:
    deadline = clock.now() + timedelta(seconds=100)
    closed = asyncio.create_task(collector.closed(clock, deadline, grace))
    await settled()
    return closed


async def settled() -> None:
    """Let every task come to its next wait."""
    for _ in range(20):
        await asyncio.sleep(0)


def collector_of(*names: str, needed: int) -> Collector:
    return Collector(dict.fromkeys(names, TASK_ID), needed=needed, terms=TERMS)


@in_virtual_time
async def test_a_step_closes_as_soon_as_all_have_answered(clock: VirtualClock) -> None:
    collector = collector_of("a", "b", needed=2)
    closed = await closing(collector, clock, grace=None)
    collector.take(result_of("a"))
    collector.take(result_of("b", outcome="failed", code="training-failed"))
    await asyncio.wait_for(closed, 60)


@in_virtual_time
async def test_beyond_the_quorum_a_site_that_rests_is_not_waited_for(clock: VirtualClock) -> None:
    resting = {"c"}
    terms = Terms(TaskKind.EVALUATE, PROJECT, RUN, 1000)
    collector = Collector(dict.fromkeys("abc", TASK_ID), needed=2, terms=terms, rests=resting.__contains__)
    closed = await closing(collector, clock, grace=None)
    collector.take(result_of("a"))
    await clock.sleep(50.0)
    assert not closed.done(), "b is at work, and the quorum is not there"
    collector.take(result_of("b"))
    await settled()
    assert closed.done()
    assert collector.missing() == ["c"]
    # Another pauses while the step is open; one without whom there is no quorum is waited for, as it may go on.
    for needed, closes in ((1, True), (2, False)):
        resting.clear()
        collector = Collector(dict.fromkeys("ab", TASK_ID), needed=needed, terms=terms, rests=resting.__contains__)
        closed = await closing(collector, clock, grace=None)
        collector.take(result_of("a"))
        await clock.sleep(30.0)
        assert not closed.done()
        resting.add("b")
        await clock.sleep(3.0)
        assert closed.done() is closes
        closed.cancel()


@pytest.mark.parametrize(
    ("needed", "grace", "closes_s"), [(1, 10.0, 10.0), (2, 0.0, 100.0)], ids=["with its quorum", "without it"]
)
@in_virtual_time
async def test_a_step_closes_after_the_grace_with_its_quorum_and_at_the_deadline_without_it(
    clock: VirtualClock, needed: int, grace: float, closes_s: float
) -> None:
    collector = collector_of("a", "b", needed=needed)
    closed = await closing(collector, clock, grace=grace)
    collector.take(result_of("a"))
    await clock.sleep(closes_s - 1)
    assert not closed.done()
    await clock.sleep(2.0)
    assert closed.done()


@in_virtual_time
async def test_a_step_of_all_stays_open_for_others_to_say_that_they_waited_in_vain(clock: VirtualClock) -> None:
    terms = Terms(TaskKind.TRAIN, PROJECT, RUN, 1000)
    collector = Collector(dict.fromkeys("abc", TASK_ID), needed=3, terms=terms)
    deadline = clock.now() + timedelta(seconds=100)
    closed = asyncio.create_task(collector.closed(clock, deadline, None, spare=20.0))

    async def told(name: str, seconds: float) -> None:
        collector.take(result_of(name, outcome="failed", code="quorum", reason="exchange l0-mean: not all", examples=0))
        await clock.sleep(seconds)

    await told("a", 15.0)
    assert not closed.done()
    await told("b", 6.0)
    assert closed.done()
    assert set(collector.failures) == {"a", "b"}


def update_of(**changes: object) -> ObjectRef:
    return ObjectRef.model_validate({"digest": "a" * 64, "size": 10} | changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"update": None}, "update: none given"),
        ({"examples": 0, "update": update_of()}, "examples: 0"),
        ({"update": update_of(size=1001)}, "1001 bytes are more than the 1000"),
        ({"update": update_of(key="updates/other/run/x")}, "update.key: 'updates/other/run/x' is not"),
        ({"update": update_of(inline=base64.b64encode(b"x"))}, "update: given inline"),
    ],
)
def test_an_answer_that_cannot_be_reduced_is_a_failure_that_says_why(changes: dict[str, object], named: str) -> None:
    collector = Collector({"a": TASK_ID}, needed=1, terms=Terms(TaskKind.TRAIN, PROJECT, RUN, 1000))
    collector.take(result_of("a", **changes))
    assert named in collector.failures["a"].reason


def test_the_first_answer_counts() -> None:
    collector = collector_of("a", needed=1)
    collector.take(result_of("a", examples=1))
    assert collector.take(result_of("a", examples=2)) is None
    assert collector.answers["a"].examples == 1


def test_metrics_are_means_weighted_by_examples_with_the_worst_site_beside() -> None:
    answers = [
        Answer(participant="a", examples=30, metrics={"accuracy": 0.9}),
        Answer(participant="b", examples=10, metrics={"accuracy": 0.5}),
    ]
    metrics = summarize(answers)
    assert metrics.overall == {"accuracy": pytest.approx(0.8), "accuracy_min": 0.5}
    assert metrics.sites == {"a": {"accuracy": 0.9}, "b": {"accuracy": 0.5}}


def test_early_stopping_counts_evaluations_without_gain() -> None:
    stopping = EarlyStopping(EarlyStop(metric="loss", mode="min", patience=2, min_delta=0.1))
    verdicts = [stopping.observe({"loss": loss}) for loss in (1.0, 0.95, 0.8, 0.75, 0.74)]
    assert [verdict.stop for verdict in verdicts[:4]] == ["", "", "", ""]
    assert "has not improved on 0.8 for 2 evaluations" in verdicts[4].stop


def test_the_best_evaluation_is_the_best_of_all_however_little_the_gain() -> None:
    stopping = EarlyStopping(EarlyStop(metric="loss", patience=9, min_delta=0.1))
    best = [stopping.observe({"loss": loss}).best for loss in (1.0, 0.95, 0.95, 0.97, 0.94, 2.0)]
    assert best == [True, True, False, False, True, False]
    assert not EarlyStopping(None).observe({"loss": 1.0}).best
