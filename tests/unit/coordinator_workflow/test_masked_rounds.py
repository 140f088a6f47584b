"""Rounds whose answers are masked: the same model as without masks, and never a sum of a part of a set."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from masked_hub import KEY_BYTES, MaskedHub, masked_job
from workflow_hub import MortalBus, at_work, stopped

from hanse_fabric.messages import JobKind, Task, TaskKind
from hanse_workflows.masking.masked_sums import apart

NAMES = ("east", "north", "south", "west")


@pytest.fixture
def hub(tmp_path: Path) -> MaskedHub:
    return MaskedHub(tmp_path)


async def ended(hub: MaskedHub, **changes: Any) -> Any:
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        await hub.submit(masked_job(**changes))
        return await hub.ended()


async def test_a_masked_run_ends_in_the_bits_of_one_without_masks(
    hub: MaskedHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    masked = await ended(hub)
    plain = await ended(MaskedHub(tmp_path_factory.mktemp("plain")), secure_aggregation={"mode": "ring"})
    assert (masked.state, masked.reason) == ("completed", "")
    assert masked.model_digest == plain.model_digest
    assert masked.metrics == plain.metrics == {"train_accuracy": 3.0, "accuracy": 3.0}


async def test_one_set_of_a_session_is_asked_for_and_evaluations_are_tallies_alone(hub: MaskedHub) -> None:
    await ended(hub, rounds=2)
    assert set(hub.sums) == {"r1-train", "r1-evaluate", "r2-train", "r2-evaluate"}
    assert set(hub.sums.values()) == {NAMES}
    assert set(hub.asked.values()) == {1}
    assert hub.kinds.count(JobKind.TALLY) == 2


async def test_tasks_name_the_compensators_key_the_session_and_a_ring_for_all_who_are_asked(hub: MaskedHub) -> None:
    seen: list[Task] = []
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        for site in hub.sites.values():
            site.behave = lambda task: seen.append(task) or {}  # type: ignore[func-returns-value]
        await hub.submit(masked_job(rounds=1))
        await hub.ended()
    masked = [task.masking for task in seen if task.kind is not TaskKind.INITIALIZE]
    assert len(masked) == 8
    for masking in masked:
        assert masking is not None
        assert (masking.compensator, masking.minimum, masking.ring.participants) == (KEY_BYTES, 3, 4)
    assert all(task.masking is None for task in seen if task.kind is TaskKind.INITIALIZE)


async def test_who_drops_out_before_the_set_is_fixed_costs_nothing(hub: MaskedHub) -> None:
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        hub.sites["west"].behave = lambda task: None if task.step == "r1-train" else {}
        await hub.submit(masked_job(rounds=1, participants={"minimum": 3, "quorum": 0.7, "grace": 0.1, "deadline": 30}))
        record = await hub.ended()
    assert record.state == "completed"
    assert hub.sums["r1-train"] == ("east", "north", "south")
    assert hub.asked["r1-train"] == 1


MANY = ("amber", "bell", "cape", "dune", "east", "north", "south", "west")


async def refused_run(hub: MaskedHub, **changes: Any) -> Any:
    async with hub.masked(*MANY), at_work(hub.supervisor()):
        participants = {"minimum": 3, "quorum": 0.4, "grace": 0.1, "deadline": 30}
        await hub.submit(masked_job(rounds=1, participants=participants, **changes))
        return await hub.ended()


async def test_a_seed_that_is_refused_has_the_step_done_again_under_new_masks_without_it(hub: MaskedHub) -> None:
    hub.spoiled.add("west")
    hub.minimum = 3
    record = await refused_run(hub)
    assert (record.state, record.reason) == ("completed", "")
    assert hub.sums["r1-train-s2"] == MANY[:-1]
    assert "r1-train" not in hub.sums


async def test_two_sums_of_a_step_never_differ_by_fewer_than_the_minimum(hub: MaskedHub) -> None:
    """Else an aggregator that refuses a good update would learn it, from the sums with and without."""
    hub.refuse["west"] = "its bytes are not those that it signed"
    record = await refused_run(hub)
    assert (record.state, record.reason) == ("completed", "")
    with_it, without = set(hub.sums["r1-train"]), set(hub.sums["r1-train-s2"])
    assert "west" in with_it
    assert "west" not in without
    assert len(with_it - without) == 3


async def test_a_step_whose_sums_are_refused_twice_ends_the_run(hub: MaskedHub) -> None:
    hub.refuse = dict.fromkeys(MANY, "so says the aggregator")
    record = await refused_run(hub)
    assert record.state == "failed"
    assert len([name for name in hub.sums if name.startswith("r1-train")]) <= 2


async def test_ring_arithmetic_without_masks_has_nothing_to_hide(hub: MaskedHub) -> None:
    hub.refuse["west"] = "its bytes are not those that it signed"
    record = await refused_run(hub, secure_aggregation={"mode": "ring"})
    assert (record.state, record.reason) == ("completed", "")


@given(
    given_names=st.sets(st.sampled_from(MANY), min_size=1),
    left=st.sets(st.sampled_from(MANY)),
    by=st.integers(1, 5),
    seed=st.integers(0, 9),
)
def test_apart_drops_no_more_than_it_must(given_names: set[str], left: set[str], by: int, seed: int) -> None:
    first, rest = tuple(sorted(given_names)), tuple(sorted(left))
    kept = apart(first, rest, by, seed)
    assert set(kept) <= left
    assert len(given_names - set(kept)) >= min(by, len(given_names))
    assert len(kept) >= len(left) - by
    assert kept == apart(first, rest, by, seed)


async def test_a_run_fails_rather_than_sum_fewer_than_the_minimum(hub: MaskedHub) -> None:
    hub.spoiled.update({"west", "south"})
    record = await ended(hub, rounds=1)
    assert record.state == "failed"
    assert "2 participants are left" in record.reason
    assert "south, west" in record.reason
    assert hub.sums == {}


async def test_a_refusal_that_is_nobodys_seed_ends_the_run_with_the_compensators_reason(hub: MaskedHub) -> None:
    hub.minimum = 5
    record = await ended(hub, rounds=1)
    assert record.state == "failed"
    assert "4 are fewer than 5" in record.reason


async def test_a_plain_answer_in_a_masked_step_is_a_failure_that_names_the_field(hub: MaskedHub) -> None:
    async with hub.masked(*NAMES), at_work(hub.supervisor()):
        hub.sites["west"].behave = lambda task: {"examples": 10} if task.kind is TaskKind.TRAIN else {}
        participants = {"minimum": 3, "quorum": 0.7, "deadline": 30}
        await hub.submit(masked_job(rounds=1, participants=participants))
        record = await hub.ended()
        failed = [event.data for event in await hub.events("task-answered") if event.data["outcome"] == "failed"]
    assert record.state == "completed"
    assert hub.sums["r1-train"] == ("east", "north", "south")
    assert "in clear" in failed[0]["reason"]


async def test_without_a_compensator_the_run_says_so(hub: MaskedHub) -> None:
    async with hub.running("north", "south", "west"), at_work(hub.supervisor()):
        await hub.submit(masked_job(rounds=1))
        record = await hub.ended()
    assert record.state == "failed"
    assert "no compensator has announced itself" in record.reason


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 56, 3))
async def test_a_coordinator_killed_at_any_publication_of_a_masked_run_changes_nothing_but_time(
    hub: MaskedHub, tmp_path_factory: pytest.TempPathFactory, at: int, stored: bool
) -> None:
    expected = await ended(MaskedHub(tmp_path_factory.mktemp("calm")), rounds=1)
    async with hub.masked(*NAMES):
        mortal = MortalBus(hub.broker, at=at, stored=stored)
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        await hub.submit(masked_job(rounds=1))
        finished = asyncio.ensure_future(hub.ended())
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([finished, died], return_when=asyncio.FIRST_COMPLETED)
        async with at_work(hub.supervisor()):
            record = await finished
        mortal.buried.set()
        await stopped(first, died)
    assert (record.state, record.reason, record.model_digest) == ("completed", "", expected.model_digest)
    assert set(hub.sums.values()) == {NAMES}
    assert all(set(site.done.values()) == {1} for site in hub.sites.values())
