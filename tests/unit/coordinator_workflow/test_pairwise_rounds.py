"""Rounds in mode pairwise: the bits of ring arithmetic, whoever drops out at whichever step, coordinator included."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pairwise_hub import PairwiseActor, PairwiseHub, pairwise_job
from workflow_hub import PROJECT, RUN, MortalBus, at_work, stopped

from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.subjects import JOURNAL
from hanse_privacy.pairwise.messages import UnmaskAnswer

NAMES = ("east", "north", "south", "west")
TOLERANT = {"minimum": 3, "quorum": 0.7, "grace": 0.2, "deadline": 30}
FAILED = {"outcome": "failed", "reason": "killed by the test"}


@pytest.fixture
def hub(tmp_path: Path) -> PairwiseHub:
    return PairwiseHub(tmp_path)


async def ended(hub: PairwiseHub, behave: dict[str, Any] | None = None, **changes: Any) -> Any:
    """The record of a run in which some behave as they are told."""
    async with hub.pairwise(*NAMES), at_work(hub.supervisor()):
        for name, how in (behave or {}).items():
            hub.sites[name].behave = how
        await hub.submit(pairwise_job(**changes))
        return await hub.ended()


async def ring(folder: Path, behave: dict[str, Any] | None = None, **changes: Any) -> Any:
    return await ended(PairwiseHub(folder), behave, secure_aggregation={"mode": "ring"}, **changes)


def silent_at(*steps: str) -> Any:
    return lambda task: None if task.step in steps else {}


async def test_a_pairwise_run_ends_in_the_bits_of_one_without_masks(
    hub: PairwiseHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    masked, plain = await ended(hub), await ring(tmp_path_factory.mktemp("plain"))
    assert (masked.state, masked.reason) == ("completed", "")
    assert masked.model_digest == plain.model_digest
    assert masked.metrics == plain.metrics == {"train_accuracy": 3.0, "accuracy": 3.0}


async def test_keys_are_advertised_once_a_run_and_every_sum_has_a_session(hub: PairwiseHub) -> None:
    await ended(hub, rounds=2)
    assert set(hub.sets) == {"r1-train", "r1-evaluate", "r2-train", "r2-evaluate"}
    for site in hub.sites.values():
        kinds = [kind for (_, kind), count in site.done.items() for _ in range(count)]
        assert kinds.count("advertise") == 1
        assert kinds.count("share") == kinds.count("unmask") == 4


async def test_who_does_not_share_is_not_in_the_set(hub: PairwiseHub) -> None:
    record = await ended(hub, {"west": silent_at("r1-train-share")}, rounds=1, participants=TOLERANT)
    assert (record.state, record.reason) == ("completed", "")
    assert hub.sets["r1-train"] == NAMES[:3]
    assert ("r1-train", "train") not in hub.sites["west"].done


async def test_the_masks_of_who_drops_out_of_the_masked_step_are_recovered(
    hub: PairwiseHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    behave = {"south": silent_at("r1-train"), "north": silent_at("r2-train", "r2-evaluate")}
    masked = await ended(hub, behave, rounds=2, participants=TOLERANT)
    plain = await ring(tmp_path_factory.mktemp("plain"), behave, rounds=2, participants=TOLERANT)
    assert (masked.state, masked.reason) == ("completed", "")
    assert hub.sets["r1-train"] == ("east", "north", "west")
    assert masked.model_digest == plain.model_digest


async def test_who_drops_out_before_unmasking_is_in_the_sum(
    hub: PairwiseHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    masked = await ended(hub, {"south": silent_at("r1-train-unmask")}, rounds=1, participants=TOLERANT)
    plain = await ring(tmp_path_factory.mktemp("plain"), rounds=1, participants=TOLERANT)
    assert hub.sets["r1-train"] == NAMES
    assert masked.model_digest == plain.model_digest


async def test_a_sum_that_cannot_be_unmasked_is_made_again_in_a_new_session(
    hub: PairwiseHub, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two of four are lost after their updates are in: three would be needed."""

    def lost(task: Task) -> dict[str, Any]:
        return FAILED if task.step.startswith("r1-train-unmask") else {}

    masked = await ended(hub, {"south": lost, "west": lost}, rounds=1)
    plain = await ring(tmp_path_factory.mktemp("plain"), rounds=1)
    assert (masked.state, masked.reason) == ("completed", "")
    assert hub.sets["r1-train-s2"] == NAMES
    assert "r1-train" not in hub.sets
    assert masked.model_digest == plain.model_digest


async def test_four_sites_are_too_few_for_a_second_sum_without_a_refused_one(hub: PairwiseHub) -> None:
    """A sum of the other three would tell the fourth's update, beside the one that was unmasked."""
    hub.refuse["west"] = "its bytes are not those that it signed"
    record = await ended(hub, {}, rounds=1, participants=TOLERANT)
    assert record.state == "failed"
    assert "1 participants are left" in record.reason
    assert "r1-train-s2" not in hub.sets


async def test_false_shares_are_refused_by_name_and_the_others_suffice(hub: PairwiseHub) -> None:
    false = UnmaskAnswer(shares=bytes(33 * 4)).encode()

    def lying(task: Task) -> dict[str, Any]:
        return {"payload": false} if task.kind is TaskKind.UNMASK else {}

    record = await ended(hub, {"west": lying}, rounds=1)
    refused = [event.data for event in await hub.events("refused")]
    assert (record.state, record.reason) == ("completed", "")
    assert {event["participant"] for event in refused} == {"west"}
    assert "is not what" in refused[0]["reason"]


async def test_a_site_that_lost_its_disk_takes_part_again_with_a_new_key(hub: PairwiseHub, tmp_path: Path) -> None:
    async with hub.pairwise(*NAMES), at_work(hub.supervisor()):
        west = hub.sites["west"]
        assert isinstance(west, PairwiseActor)

        def behave(task: Task) -> dict[str, Any]:
            if task.step == "r2-train-share":
                west.pairwise = west.started(tmp_path / "new disk")
                return {"outcome": "refused", "reason": "no such key"}
            return {}

        west.behave = behave
        await hub.submit(pairwise_job(rounds=3, participants=TOLERANT))
        record = await hub.ended()
    assert (record.state, record.reason) == ("completed", "")
    assert hub.sets["r2-train"] == NAMES[:3]
    assert hub.sets["r3-train"] == NAMES
    assert [step for (step, kind) in west.done if kind == "advertise"] == [
        "r1-train-advertise",
        "r2-evaluate-advertise",
    ]


async def test_large_payloads_are_not_in_the_journal_and_leave_the_bus_with_the_run(hub: PairwiseHub) -> None:
    await ended(hub, rounds=2)
    for record in await hub.bus.snapshot(JOURNAL.stream, JOURNAL.of(project=PROJECT, run=RUN)):
        entry = JournalEntry.decode(record.data)
        if entry.step.endswith(("-share", "-unmask")):
            assert all("payload" not in answer for answer in entry.body.get("answers", []))


async def test_a_threshold_that_the_members_cannot_have_fails_the_run_with_the_reason(hub: PairwiseHub) -> None:
    record = await ended(hub, rounds=1, secure_aggregation={"mode": "pairwise", "threshold": 2})
    assert record.state == "failed"
    assert "threshold: 2 is not more than half of the 4 participants" in record.reason


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(2, 110, 9))
async def test_a_coordinator_killed_at_any_publication_of_a_pairwise_run_changes_nothing_but_time(
    hub: PairwiseHub, tmp_path_factory: pytest.TempPathFactory, at: int, stored: bool
) -> None:
    expected = await ring(tmp_path_factory.mktemp("calm"), rounds=1)
    async with hub.pairwise(*NAMES):
        mortal = MortalBus(hub.broker, at=at, stored=stored)
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        await hub.submit(pairwise_job(rounds=1))
        finished = asyncio.ensure_future(hub.ended())
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([finished, died], return_when=asyncio.FIRST_COMPLETED)
        async with at_work(hub.supervisor()):
            record = await finished
        mortal.buried.set()
        await stopped(first, died)
    assert (record.state, record.reason, record.model_digest) == ("completed", "", expected.model_digest)
    assert all(set(site.done.values()) == {1} for site in hub.sites.values())


SEVEN = tuple(f"site-{number}" for number in range(7))
HALF = {"minimum": 3, "quorum": 0.5, "grace": 0.2, "deadline": 30}


async def ended_of_seven(hub: PairwiseHub, how: Any) -> Any:
    """Five of seven are the threshold, four the quorum; three behave as they are told."""
    async with hub.pairwise(*SEVEN), at_work(hub.supervisor()):
        for name in SEVEN[4:]:
            hub.sites[name].behave = how
        await hub.submit(pairwise_job(rounds=1, participants=HALF))
        return await hub.ended()


async def test_where_fewer_share_than_the_threshold_those_who_did_begin_another_session(hub: PairwiseHub) -> None:
    record = await ended_of_seven(hub, silent_at("r1-train-share"))
    assert (record.state, record.reason) == ("completed", "")
    assert hub.sets["r1-train-m2"] == SEVEN[:4]
    assert hub.sets["r1-evaluate"] == SEVEN


async def test_where_fewer_answer_than_the_threshold_those_who_did_make_another_sum(hub: PairwiseHub) -> None:
    def lost(task: Task) -> dict[str, Any]:
        return FAILED if task.kind is TaskKind.TRAIN else {}

    record = await ended_of_seven(hub, lost)
    assert (record.state, record.reason) == ("completed", "")
    assert "r1-train" not in hub.sets
    assert hub.sets["r1-train-s2"] == SEVEN[:4]


async def test_too_few_who_share_fail_the_run_by_name(hub: PairwiseHub) -> None:
    record = await ended(
        hub, {name: lambda task: FAILED if task.kind is TaskKind.SHARE else {} for name in NAMES[:2]},
        rounds=1, participants=TOLERANT,
    )  # fmt: skip
    assert record.state == "failed"
    assert "2 of 4 participants" in record.reason
