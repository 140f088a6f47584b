"""Training with sums in the middle: all who were asked, or the step again with those who are left."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from workflow_hub import Hub, MortalBus, at_work, job_of, stopped

from clocks import in_virtual_time
from hanse_coordinator.verbs.collector import Collector
from hanse_fabric.messages import Outcome, Result, Task, TaskKind
from hanse_fabric.virtual_time import VirtualClock
from hanse_schemas.job import Job
from hanse_workflows.answers import Terms
from hanse_workflows.gathering import patience_of, remaining
from hanse_workflows.outcomes import Answer, Failure, Gathered

FAILED = {"outcome": "failed", "code": "training-failed", "reason": "diverged", "update": None, "examples": 0}
IN_VAIN = {"outcome": "failed", "code": "quorum", "reason": "exchange l0-mean: not all", "update": None, "examples": 0}
TASK_ID = "0" * 32


def fedtan(**changes: Any) -> Job:
    model = {"name": "mlp", "batch_norm": True, **changes.pop("model", {})}
    train = {"algorithm": {"name": "fedtan", "patience": 1}}
    participants = {"quorum": 0.5}
    return job_of(model=model, train=train, evaluate={"every": 0}, participants=participants, **changes)


async def test_all_take_part_in_one_session_a_round(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(fedtan(rounds=2))
        assert (await hub.ended()).state == "completed"
    assert [(one.step, one.participants) for one in hub.sessions] == [
        ("r1-train", ("north", "south")),
        ("r2-train", ("north", "south")),
    ]


async def test_a_failure_of_one_is_another_session_of_the_others_at_once(hub: Hub) -> None:
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        # The others are in the middle of a sum that will never be made.
        broken = {"south": FAILED, "north": None, "east": None}
        for name, site in hub.sites.items():
            site.behave = lambda task, name=name: broken[name] if task.step == "r1-train" else {}  # type: ignore[misc]
        await hub.submit(fedtan(rounds=1))
        assert (await hub.ended()).state == "completed"
        (finished,) = await hub.events("round-finished")
        assert finished.data["participants"] == ["east", "north"]
        assert (await hub.event("exchange-broken")).data["left"] == ["east", "north"]
    assert [(one.step, one.participants) for one in hub.sessions] == [
        ("r1-train", ("east", "north", "south")),
        ("r1-train-a2", ("east", "north")),
    ]
    assert {task[0] for task in hub.sites["south"].done} <= {"r0-initialize", "r1-train"}


async def test_answers_of_a_broken_session_are_not_used(hub: Hub) -> None:
    """East had all its sums, and then south died."""
    asked: list[Task] = []

    def east(task: Task) -> dict[str, Any]:
        asked.append(task)
        return {}

    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        hub.sites["east"].behave = east
        hub.sites["south"].behave = lambda task: FAILED if task.kind is TaskKind.TRAIN else {}
        await hub.submit(fedtan(rounds=1))
        assert (await hub.ended()).state == "completed"
    trained = [task for task in asked if task.kind is TaskKind.TRAIN]
    assert [(task.step, task.peers) for task in trained] == [("r1-train", 3), ("r1-train-a2", 2)]
    assert trained[0].seed == trained[1].seed


async def test_too_few_left_end_the_run_with_who_and_why(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].behave = lambda task: FAILED if task.kind is TaskKind.TRAIN else {}
        await hub.submit(fedtan(rounds=1))
        ended = await hub.ended()
    assert ended.state == "failed"
    assert "1 of 2 participants are left" in (ended.reason or "")
    assert "south failed (diverged)" in (ended.reason or "")


async def test_where_too_few_are_left_all_are_asked_again(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        hub.sites["south"].behave = lambda task: FAILED if task.step == "r1-train" else {}
        await hub.submit(fedtan(rounds=1))
        assert (await hub.ended()).state == "completed"
    assert [one.step for one in hub.sessions] == ["r1-train", "r1-train-a2"]
    assert {one.participants for one in hub.sessions} == {("north", "south")}


async def broken_once(hub: Hub) -> str:
    """A run whose first round's sums were broken by south; what it says at its end."""
    hub.sites["south"].behave = lambda task: FAILED if task.kind is TaskKind.TRAIN and task.round == 1 else {}
    await hub.submit(fedtan(rounds=2))
    record = await hub.ended()
    return f"{record.state} {record.reason} {record.model_digest}"


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(10, 52, 3))
async def test_a_coordinator_killed_at_any_publication_goes_on_with_the_same_sites(
    hub: Hub, tmp_path_factory: pytest.TempPathFactory, at: int, stored: bool
) -> None:
    names = ("east", "north", "south")
    calm = Hub(tmp_path_factory.mktemp("calm"))
    async with calm.running(*names), at_work(calm.supervisor()):
        expected = await broken_once(calm)
    async with hub.running(*names):
        mortal = MortalBus(hub.broker, at=at, stored=stored)
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        ended = asyncio.ensure_future(broken_once(hub))
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([ended, died], return_when=asyncio.FIRST_COMPLETED)
        async with at_work(hub.supervisor()):
            assert await ended == expected
        mortal.buried.set()
        await stopped(first, died)
    assert expected.startswith("completed")
    wanted = {(one.step, one.participants) for one in calm.sessions}
    assert {(one.step, one.participants) for one in hub.sessions} == wanted


async def test_rounds_with_frozen_statistics_are_plain_rounds(hub: Hub) -> None:
    state = [{"layers": "statistics", "keep": "frozen", "from_round": 2}]
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(fedtan(rounds=3, model={"state": state}))
        assert (await hub.ended()).state == "completed"
    assert [one.step for one in hub.sessions] == ["r1-train"]


@pytest.mark.parametrize(
    ("model", "train", "patience"),
    [
        ({"batch_norm": True}, {"algorithm": "fedtan"}, 60.0),
        ({"batch_norm": False}, {"algorithm": "fedtan"}, None),
        ({"batch_norm": True}, {"algorithm": {"name": "fedavg"}}, None),
        ({"batch_norm": True}, {}, None),
    ],
)
def test_only_batch_statistics_are_summed(model: dict[str, Any], train: dict[str, Any], patience: float | None) -> None:
    assert patience_of(job_of(model={"name": "mlp"} | model, train=train), 1) == patience


def test_the_silent_are_who_the_others_waited_for_unless_somebody_failed() -> None:
    def gathered(answers: str, **codes: str) -> Gathered:
        return Gathered(
            asked=tuple("abcd"), answers=tuple(Answer(participant=name) for name in answers),
            failures=tuple(Failure(participant=n, outcome=Outcome.FAILED, code=c) for n, c in codes.items()),
        )  # fmt: skip

    assert remaining(gathered("", a="quorum", b="quorum", c="quorum")) == ("a", "b", "c")
    assert remaining(gathered("a", b="training-failed")) == ("a", "c", "d")
    assert remaining(gathered("", a="quorum", b="training-failed")) == ("a", "c", "d")
    assert remaining(gathered("abc")) == ("a", "b", "c")
    assert remaining(gathered("", a="quorum", b="quorum", c="quorum", d="quorum")) == ("a", "b", "c", "d")


@in_virtual_time
async def test_a_step_of_all_stays_open_for_others_to_say_that_they_waited_in_vain(clock: VirtualClock) -> None:
    terms = Terms(TaskKind.TRAIN, "triage", "run000000001", 1000)
    collector = Collector(dict.fromkeys("abc", TASK_ID), needed=3, terms=terms)
    deadline = clock.now() + timedelta(seconds=100)
    closed = asyncio.create_task(collector.closed(clock, deadline, None, spare=20.0))

    async def told(name: str, seconds: float) -> None:
        body = {"task": TASK_ID, "project": "triage", "run": "run000000001", "step": "r1-train", "participant": name}
        collector.take(Result.model_validate(body | IN_VAIN))
        await clock.sleep(seconds)

    await told("a", 15.0)
    assert not closed.done()
    await told("b", 6.0)
    assert closed.done()
    assert set(collector.failures) == {"a", "b"}
