"""Masked training with sums in the middle: the step again for the same sites, or the end of the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pairwise_hub import PairwiseHub, pairwise_job
from workflow_hub import MortalBus, at_work, stopped

from hanse_fabric.messages import MaskingMode, Task, TaskKind

NAMES = ("east", "north", "south", "west")
FEDTAN = {
    "model": {"name": "mlp", "batch_norm": True},
    "train": {"algorithm": {"name": "fedtan", "patience": 1}},
    "evaluate": {"every": 0},
}
TERMS = {"minimum": 3, "quorum": 0.7, "deadline": 30, "grace": 0.2}
FAILED = {"outcome": "failed", "reason": "killed by the test", "code": "training-failed"}
REFUSED = {"outcome": "refused", "reason": "beyond the bound", "code": "policy"}


@pytest.fixture
def hub(tmp_path: Path) -> PairwiseHub:
    return PairwiseHub(tmp_path)


def at_training(answer: dict[str, Any], *steps: str) -> Any:
    """Answers so to TRAIN, of the named steps or of all."""
    return lambda task: answer if task.kind is TaskKind.TRAIN and (not steps or task.step in steps) else {}


async def ended(hub: PairwiseHub, south: Any, *, mode: str = "pairwise", retries: int = 2) -> Any:
    async with hub.pairwise(*NAMES), at_work(hub.supervisor()):
        hub.sites["south"].behave = south
        participants = {**TERMS, "retries": retries}
        await hub.submit(pairwise_job(rounds=1, participants=participants, secure_aggregation={"mode": mode}, **FEDTAN))
        return await hub.ended()


@pytest.mark.parametrize("mode", ["pairwise", "ring"])
async def test_after_a_dropout_the_same_sites_begin_a_new_session(hub: PairwiseHub, mode: str) -> None:
    record = await ended(hub, at_training(FAILED, "r1-train"), mode=mode)
    assert (record.state, record.reason) == ("completed", "")
    assert [(one.step, one.participants) for one in hub.sessions] == [("r1-train", NAMES), ("r1-train-s2", NAMES)]
    assert all(one.ring is not None and one.ring.bits == 64 for one in hub.sessions)
    (finished,) = await hub.events("round-finished")
    assert finished.data["participants"] == list(NAMES)
    if mode == MaskingMode.PAIRWISE:
        assert hub.sets == {"r1-train-s2": NAMES}


async def test_without_one_of_them_there_is_no_sum_and_the_run_ends(hub: PairwiseHub) -> None:
    record = await ended(hub, at_training(FAILED))
    assert record.state == "failed"
    assert "of all 4 participants or of none" in record.reason
    assert "killed by the test" in record.reason
    assert [one.participants for one in hub.sessions] == [NAMES] * 3
    assert hub.sets == {}


async def test_a_session_that_one_of_them_does_not_share_in_is_not_begun(hub: PairwiseHub) -> None:
    def south(task: Task) -> dict[str, Any] | None:
        if task.kind is TaskKind.SHARE and task.masking is not None and task.masking.session == "r1-train-s2":
            return None
        return at_training(FAILED, "r1-train")(task)

    record = await ended(hub, south)
    assert record.state == "completed"
    assert [one.step for one in hub.sessions] == ["r1-train", "r1-train-s3"]
    assert {one.participants for one in hub.sessions} == {NAMES}


async def test_a_refusal_is_not_asked_for_again(hub: PairwiseHub) -> None:
    record = await ended(hub, at_training(REFUSED))
    assert record.state == "failed"
    assert "beyond the bound" in record.reason
    assert len(hub.sessions) == 1


@pytest.mark.parametrize("at", range(12, 66, 9))
async def test_a_coordinator_killed_at_any_publication_goes_on_with_the_same_sites(
    hub: PairwiseHub, tmp_path_factory: pytest.TempPathFactory, at: int
) -> None:
    south = at_training(FAILED, "r1-train")
    calm = PairwiseHub(tmp_path_factory.mktemp("calm"))
    expected = await ended(calm, south)
    async with hub.pairwise(*NAMES):
        hub.sites["south"].behave = south
        mortal = MortalBus(hub.broker, at=at, stored=bool(at % 2))
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        await hub.submit(
            pairwise_job(
                rounds=1, participants={**TERMS, "retries": 2}, secure_aggregation={"mode": "pairwise"}, **FEDTAN
            )
        )
        last = asyncio.ensure_future(hub.ended())
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([last, died], return_when=asyncio.FIRST_COMPLETED)
        async with at_work(hub.supervisor()):
            record = await last
        mortal.buried.set()
        await stopped(first, died)
    assert (record.state, record.model_digest) == (expected.state, expected.model_digest)
    assert {one.participants for one in hub.sessions} == {NAMES}
    assert hub.sets == {"r1-train-s2": NAMES}
