"""Association studies as runs: many computations at once, done again after any death, by all cohorts or not at all."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from study_hub import CHUNKS, COHORTS, ITERATIONS, StudyHub, conduct, expected, study_job
from workflow_hub import PROJECT, RUN, MortalBus, at_work, stopped

from hanse_coordinator.records import RunRecord
from hanse_coordinator.verbs.failures import Fenced, Paused, RunFailure, reason_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ObjectRef, Task
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES
from hanse_fabric.subjects import JOURNAL, TASK

COMPUTATIONS = 2 + CHUNKS * ITERATIONS + 1


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyHub:
    monkeypatch.setattr("hanse_genomics.study.conduct", conduct)
    return StudyHub(tmp_path)


async def made(hub: StudyHub, record: RunRecord) -> list[int]:
    """The results that are kept."""
    assert record.state == "completed", record.reason
    ref = ObjectRef.model_validate(record.outputs["results"])
    assert ref.key is not None
    values: list[int] = json.loads(await asyncio.to_thread(hub.store.get, ref.key, limit=10_000))
    return values


async def test_a_study_is_conducted_with_chunks_under_way_at_once(hub: StudyHub) -> None:
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        await hub.submit(study_job())
        assert await made(hub, await hub.ended()) == expected()
    assert len(hub.reduced) == COMPUTATIONS
    assert set(hub.sums.values()) == {COHORTS}
    events = await hub.events("progress")
    assert sorted(event.data["done"] for event in events) == list(range(CHUNKS))


async def test_what_is_kept_are_the_outputs_and_nothing_else(hub: StudyHub) -> None:
    rest = f"models/{PROJECT}/{RUN}/samples/sum"
    hub.store.put(rest, b"of a former step")
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        await hub.submit(study_job())
        record = await hub.ended()
    assert sorted(record.outputs) == ["results", "summary"]
    kept = {body["key"] for body in record.outputs.values()}
    assert set(hub.store.keys(f"models/{PROJECT}/{RUN}/")) == kept


@pytest.mark.parametrize("allowed", ["few_cohorts", "few_samples"])
async def test_that_every_site_allowed_what_the_owner_dares_is_in_the_audit(hub: StudyHub, allowed: str) -> None:
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        await hub.submit(study_job(study={"test": "trend", "in_flight": 3, allowed: True}))
        await hub.ended()
        told = [entry for entry in await hub.audits() if entry["action"] == "study.allow"]
    rest = dict.fromkeys(("few_cohorts", "few_samples"), False)
    assert [entry["detail"] for entry in told] == [rest | {allowed: True, "cohorts": 3, "sites": list(COHORTS)}]


async def test_a_site_that_does_not_allow_it_ends_the_study_and_no_agreement_is_in_the_audit(hub: StudyHub) -> None:
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        refusal = {"outcome": "refused", "code": "policy", "reason": "studies.few_samples: not here"}
        hub.sites["north"].behave = lambda task: refusal if task.step == "samples" else {}
        await hub.submit(study_job(study={"test": "trend", "few_samples": True}))
        record = await hub.ended()
        actions = {entry["action"] for entry in await hub.audits()}
    assert "north refused (studies.few_samples: not here)" in record.reason
    assert "study.allow" not in actions


async def test_the_sites_are_told_that_a_study_is_over(hub: StudyHub) -> None:
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        await hub.submit(study_job())
        await hub.ended()
        records = await hub.bus.snapshot(TASK.stream, TASK.wildcard(project=PROJECT))
    tasks = [Task.decode(record.data) for record in records]
    assert [(task.participant, task.config) for task in tasks] == [(name, {"step": "forget"}) for name in COHORTS]


@pytest.mark.parametrize("stored", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 150, 10))
async def test_a_coordinator_killed_at_any_publication_of_a_study_changes_nothing_but_time(
    hub: StudyHub, at: int, stored: bool
) -> None:
    async with hub.masked(*COHORTS):
        mortal = MortalBus(hub.broker, at=at, stored=stored)
        first = asyncio.ensure_future(hub.supervisor(mortal).run())
        await hub.submit(study_job())
        ended = asyncio.ensure_future(hub.ended())
        died = asyncio.ensure_future(mortal.dead.wait())
        await asyncio.wait([ended, died], return_when=asyncio.FIRST_COMPLETED)
        async with at_work(hub.supervisor()):
            assert await made(hub, await ended) == expected()
        mortal.buried.set()
        await stopped(first, died)
    assert set(hub.reduced.values()) == {1}
    assert set(hub.sums.values()) == {COHORTS}
    for site in hub.sites.values():
        assert {count for (_, kind), count in site.done.items() if kind == "study"} == {1}


async def test_a_cohort_that_refuses_ends_the_study_with_its_reason(hub: StudyHub) -> None:
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        refusal = {"outcome": "refused", "code": "policy", "reason": "studies: not here"}
        hub.sites["north"].behave = lambda task: refusal if task.step == "c2-add-0" else {}
        await hub.submit(study_job())
        record = await hub.ended()
    assert record.state == "failed"
    assert "north refused (studies: not here)" in record.reason
    assert not record.outputs


async def test_a_site_whose_files_are_wrong_is_not_asked_again(hub: StudyHub) -> None:
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        wrong = {"outcome": "failed", "code": "invalid-input", "reason": "x.cov, line 3: AGE is no number"}
        hub.sites["south"].behave = lambda task: wrong if task.step.startswith("samples") else {}
        await hub.submit(study_job())
        record = await hub.ended()
    assert "AGE is no number" in record.reason
    assert {step for (step, _) in hub.sites["south"].done if step.startswith("samples")} == {"samples"}


async def test_an_answer_that_was_tampered_with_is_asked_for_again_from_all(hub: StudyHub) -> None:
    hub.tampered["c1-add-0-made"] = "east"
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        await hub.submit(study_job())
        assert await made(hub, await hub.ended()) == expected()
    assert hub.sums["c1-add-0"] == hub.sums["c1-add-0-s2"] == COHORTS
    assert any(audit["action"] == "update.refuse" for audit in await hub.audits())


async def test_a_study_whose_answers_never_fit_fails_and_says_whose(hub: StudyHub) -> None:
    for attempt in ("", "-s2", "-s3"):
        hub.tampered[f"samples{attempt}-made"] = "east"
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        await hub.submit(study_job())
        record = await hub.ended()
    assert record.reason.startswith("tampered: step samples")
    assert "east: other bytes" in record.reason


async def test_a_seed_that_does_not_open_is_drawn_again(hub: StudyHub) -> None:
    hub.spoiled.add("north")

    def unspoil(task: Task) -> dict[str, Any]:
        if task.step == "samples-s2":
            hub.spoiled.clear()
        return {}

    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        hub.sites["north"].behave = unspoil
        await hub.submit(study_job())
        assert await made(hub, await hub.ended()) == expected()
    assert "samples" not in hub.sums


async def test_a_study_pauses_between_computations_and_goes_on(hub: StudyHub) -> None:
    paused = asyncio.Event()

    def behave(task: Task) -> dict[str, Any] | None:
        if task.step == "c3-add-0":
            paused.set()
        return {}

    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        hub.sites["east"].behave = behave
        await hub.submit(study_job())
        await paused.wait()
        await hub.want("pause")
        assert (await hub.until(lambda record: record.state == "paused")).outputs == {}
        await hub.want("run")
        assert await made(hub, await hub.ended()) == expected()
    assert set(hub.reduced.values()) == {1}


async def test_a_cancelled_study_leaves_no_object(hub: StudyHub) -> None:
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        hub.sites["east"].behave = lambda task: None if task.step == "c1-add-1" else {}
        await hub.submit(study_job())
        await hub.event("task-answered", step="c1-add-1")
        await hub.want("cancel")
        assert (await hub.ended()).state == "cancelled"
    assert list(hub.store.keys("models/")) == []


async def test_journal_entries_of_a_study_are_small(hub: StudyHub) -> None:
    async with hub.masked(*COHORTS), at_work(hub.supervisor()):
        await hub.submit(study_job())
        await hub.ended()
    sizes = [
        len(record.data) for record in await hub.bus.snapshot(JOURNAL.stream, JOURNAL.of(project=PROJECT, run=RUN))
    ]
    assert max(sizes) < MAX_MESSAGE_BYTES // 256


def test_of_several_ends_the_decisive_one_is_told() -> None:
    fenced, failed = Fenced("r"), RunFailure(ErrorCode.QUORUM, "too few")
    broken = HanseError(ErrorCode.UNAVAILABLE, "away")
    assert reason_of(BaseExceptionGroup("", [Paused(), failed, fenced])) is fenced
    assert reason_of(BaseExceptionGroup("", [broken, ExceptionGroup("", [Paused(), failed])])) is failed
    pause = Paused()
    assert reason_of(BaseExceptionGroup("", [pause, broken])) is broken
    assert reason_of(BaseExceptionGroup("", [pause])) is pause
