"""Rounds whose sums carry distributed noise: the sum always has the noise that was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from masked_hub import MaskedHub, masked_job
from workflow_hub import at_work

from hanse_fabric.messages import Outcome, Task, TaskKind
from hanse_schemas.job import Job
from hanse_workflows.masking.protocols import plan_of

NAMES = ("east", "north", "south", "west")


@pytest.fixture
def hub(tmp_path: Path) -> MaskedHub:
    return MaskedHub(tmp_path)


def noisy_job(*, quorum: float = 1.0, colluding: int = 0, **privacy: Any) -> Job:
    section = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "distributed-gamma"}
    section |= {"noise_multiplier": 1.0, "colluding": colluding} | privacy
    participants = {"minimum": 3, "quorum": quorum, "grace": 0.1, "deadline": 30}
    return masked_job(rounds=1, weighting="uniform", participants=participants, privacy=section)


async def played(hub: MaskedHub, job: Job) -> tuple[Any, list[Task]]:
    """How the run ended, and the training tasks of it."""
    seen: list[Task] = []
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        for site in hub.sites.values():
            before = site.behave
            site.behave = lambda task, before=before: seen.append(task) or before(task)  # type: ignore[func-returns-value,misc]
        await hub.submit(job)
        record = await hub.ended()
    return record, [task for task in seen if task.kind is TaskKind.TRAIN]


async def test_sites_are_told_how_many_share_the_noise_and_the_step_waits_for_enough_of_them(hub: MaskedHub) -> None:
    record, tasks = await played(hub, noisy_job(quorum=0.5, colluding=1))
    assert (record.state, record.reason) == ("completed", "")
    assert {(task.privacy.active, task.privacy.attempt) for task in tasks if task.privacy} == {(4, 1)}
    assert len(hub.sums["r1-train"]) >= 3


async def test_after_a_refusal_the_noise_is_shared_by_those_who_are_left(hub: MaskedHub) -> None:
    hub.spoiled.add("west")
    record, tasks = await played(hub, noisy_job(quorum=0.7))
    assert record.state == "completed"
    by_session = {task.masking.session: task.privacy for task in tasks if task.masking}
    assert {key: (terms.active, terms.attempt) for key, terms in by_session.items() if terms} == {
        "r1-train": (4, 1), "r1-train-s2": (3, 2),
    }  # fmt: skip
    assert hub.sums["r1-train-s2"] == ("east", "north", "south")


async def test_who_drops_out_with_a_share_has_the_others_share_the_noise_anew(hub: MaskedHub) -> None:
    """Three of four answer: enough for the quorum, too few for shares of four of which none may be missing."""
    seen: list[Task] = []

    def refuses(task: Task) -> dict[str, Any]:
        return {"outcome": Outcome.REFUSED, "code": "policy", "reason": "no"} if task.kind is TaskKind.TRAIN else {}

    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        for site in hub.sites.values():
            site.behave = lambda task: seen.append(task) or {}  # type: ignore[func-returns-value]
        hub.sites["west"].behave = refuses
        await hub.submit(noisy_job(quorum=0.7))
        record = await hub.ended()
    assert (record.state, record.reason) == ("completed", "")
    assert "r1-train" not in hub.sums
    assert hub.sums["r1-train-s2"] == ("east", "north", "south")
    assert {task.privacy.active for task in seen if task.step == "r1-train-s2" and task.privacy} == {3}


def test_the_ring_has_room_for_the_noise() -> None:
    quiet, loud = noisy_job(), noisy_job(noise_multiplier=1e4)
    assert quiet.secure_aggregation is not None
    rings = [
        plan_of(job, quiet.secure_aggregation, 4).default for job in (masked_job(weighting="uniform"), quiet, loud)
    ]
    assert rings[0].tail == 0 < rings[1].tail < rings[2].tail
    assert rings[0].fraction > rings[2].fraction
