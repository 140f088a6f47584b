"""Who counts in a round: quorum, deadline and grace; late, forged, failed and unusable answers; the silent, named."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from pathlib import Path

import pytest
from workflow_hub import PROJECT, RUN, Hub, at_work, job_of

from clocks import in_virtual_time
from hanse_coordinator.verbs.collector import Collector
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages import ObjectRef, Outcome, Result, TaskKind
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.job import EarlyStop
from hanse_workflows.answers import Terms
from hanse_workflows.metrics import EarlyStopping, summarize
from hanse_workflows.outcomes import Answer

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
async def test_a_step_with_its_quorum_closes_after_the_grace(clock: VirtualClock) -> None:
    collector = collector_of("a", "b", needed=1)
    closed = await closing(collector, clock, grace=10.0)
    collector.take(result_of("a"))
    await clock.sleep(9.0)
    assert not closed.done()
    await clock.sleep(2.0)
    assert closed.done()


@in_virtual_time
async def test_a_step_without_its_quorum_closes_at_the_deadline(clock: VirtualClock) -> None:
    collector = collector_of("a", "b", needed=2)
    closed = await closing(collector, clock, grace=0.0)
    collector.take(result_of("a"))
    await clock.sleep(99.0)
    assert not closed.done()
    await clock.sleep(2.0)
    assert closed.done()


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


async def test_a_run_fails_at_a_missed_quorum_and_names_the_silent(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].behave = lambda task: None if task.step.startswith("r1-train") else {}
        await hub.submit(job_of(participants={"deadline": 1.5, "retries": 1}))
        record = await hub.ended()
    assert record.state == "failed"
    assert "quorum" in record.reason
    assert "south silent" in record.reason
    assert hub.sites["north"].done["r1-train", "train"] == 1
    assert ("r1-train-a2", "train") not in hub.sites["north"].done


async def test_a_silent_site_is_asked_again_and_the_others_are_not(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].behave = lambda task: None if task.step == "r1-train" else {}
        await hub.submit(job_of(rounds=1, participants={"deadline": 2.0, "retries": 2}))
        assert (await hub.ended()).state == "completed"
    assert hub.sites["south"].done["r1-train-a2", "train"] == 1
    assert ("r1-train-a2", "train") not in hub.sites["north"].done


async def test_a_site_that_refuses_is_named_with_its_reason_and_not_asked_again(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].behave = lambda task: (
            {"outcome": Outcome.REFUSED, "update": None, "code": "policy", "reason": "workflows: not allowed here"}
            if task.kind is TaskKind.TRAIN
            else {}
        )
        await hub.submit(job_of())
        record = await hub.ended()
    assert record.state == "failed"
    assert "south refused (workflows: not allowed here)" in record.reason
    assert sum(1 for _, kind in hub.sites["south"].done if kind == "train") == 1


async def test_a_run_goes_on_without_a_silent_site_when_the_quorum_allows(hub: Hub) -> None:
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].behave = lambda task: None if task.kind is TaskKind.TRAIN else {}
        await hub.submit(job_of(participants={"quorum": 0.6, "grace": 0.01}))
        assert (await hub.ended()).state == "completed"
        finished = (await hub.events("round-finished"))[0]
    assert finished.data["participants"] == ["east", "north"]


async def test_a_late_result_is_refused_and_counted(hub: Hub) -> None:
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].behave = lambda task: None if task.step == "r1-train" else {}
        hub.sites["east"].behave = lambda task: None if task.step == "r2-train" else {}
        hub.sites["north"].behave = lambda task: None if task.step == "r2-train" else {}
        await hub.submit(job_of(rounds=2, participants={"quorum": 0.6, "grace": 0.01}))
        await hub.event("task-answered", step="r2-train", participant="south")
        south = hub.sites["south"]
        await south.send(south.signed(result_of("south")))
        late = await hub.event("late-result", participant="south")
        assert (late.data["count"], late.data["step"]) == (1, "r1-train")
        await hub.want("cancel")
        await hub.ended()
    assert any(entry["detail"].get("reason") == "late: step closed" for entry in await hub.audits())


async def test_a_forged_signature_is_refused_and_does_not_count(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].key = SigningKey.create()
        await hub.submit(job_of(rounds=1, participants={"deadline": 2.0, "retries": 0}))
        refused = await hub.event("refused", participant="south", code="tampered")
        assert "signature" in refused.data["reason"]
        record = await hub.ended()
    assert record.state == "failed"
    assert "south silent" in record.reason


async def test_a_site_that_answers_twice_with_different_bytes_is_refused_and_its_first_answer_counts(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        north, south, asked = hub.sites["north"], hub.sites["south"], []
        north.behave = lambda task: asked.append(task) if task.step == "r1-train" else {}
        await hub.submit(job_of(rounds=1))
        await hub.event("task-answered", step="r1-train", participant="south")
        [first] = [result for result in south._answered.values() if result.step == "r1-train"]
        await south.send(first)
        await south.send(south.signed(first.model_copy(update={"examples": 10_000})))
        refused = await hub.event("refused", participant="south", code="conflict")
        assert "another than the site's first answer" in refused.data["reason"]
        north.behave = lambda _: {}
        await north.receive(asked[0])
        assert (await hub.ended()).state == "completed"
        assert len(await hub.events("refused")) == 1
        heard = [event.data for event in await hub.events("task-answered") if event.data["step"] == "r1-train"]
    assert [(answer["participant"], answer["examples"]) for answer in heard] == [("south", 10), ("north", 10)]
    assert any(entry["action"] == "result.refuse" for entry in await hub.audits())


async def test_a_refused_update_is_left_out_when_the_quorum_still_holds(hub: Hub) -> None:
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        hub.refuse["south"] = "digest: does not match"
        await hub.submit(job_of(rounds=2, participants={"quorum": 0.6}))
        assert (await hub.ended()).state == "completed"
        finished = (await hub.events("round-finished"))[0]
        refused = await hub.events("refused")
    assert finished.data["participants"] == ["east", "north"]
    assert {event.data["reason"] for event in refused} == {"digest: does not match"}
    assert any(entry["action"] == "update.refuse" for entry in await hub.audits())


async def test_a_run_fails_when_too_few_usable_updates_remain(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.refuse["south"] = "digest: does not match"
        await hub.submit(job_of())
        record = await hub.ended()
    assert record.state == "failed"
    assert "south: digest: does not match" in record.reason


async def test_a_run_without_enough_participants_fails_at_its_patience(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    async with hub.running("north"), at_work(hub.supervisor()):
        await hub.submit(job_of(participants={"patience": 0.05}))
        record = await hub.ended()
    assert record.state == "failed"
    assert "1 present (north)" in record.reason


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
    assert verdicts[:4] == ["", "", "", ""]
    assert "has not improved on 0.8 for 2 evaluations" in verdicts[4]
