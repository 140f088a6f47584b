"""Association studies as runs of the true services: many computations at once, done again after any death, by all
cohorts or not at all; the same bytes in memory, in simulation and in a rehearsal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from clocks import in_virtual_time
from hanse_coordinator.records import RunRecord
from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.messages import MaskAnswer, ObjectRef, Outcome, Result, StudyJob, Task
from hanse_fabric.messages.base import MAX_MESSAGE_BYTES
from hanse_fabric.subjects import JOB, JOURNAL, MASK_ANSWER, RESULT, TASK
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.virtual_time import VirtualClock
from hanse_genomics.rehearsal import rehearse
from hanse_schemas.job import check_job
from hanse_schemas.study import Study
from hanse_workflows.memory import conduct
from simulation.cohorts import COHORTS, SCHEMA, SECTION, CohortInMemory, Files, study_job
from simulation.faults import fails, refuses, seals_nothing, silent, tampers
from simulation.league import PROJECT, RUN, League
from simulation.stories import answers, completed, ended, hub_of, outcomes_when_killed


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.written(tmp_path_factory.mktemp("cohorts"))


@pytest.fixture
def there(files: Files) -> dict[str, Any]:
    """How the league of the cohorts is made."""
    return {"worker": files.worker, "schema": SCHEMA}


@pytest.fixture(scope="module")
def in_memory(files: Files) -> dict[str, bytes]:
    """What the study keeps where it is conducted in memory."""
    with threadpool_limits(1):
        made = conduct(check_job(study_job()), {name: CohortInMemory(files, name) for name in COHORTS})
    return dict(made.outputs)


def kept(made: League, record: RunRecord) -> dict[str, bytes]:
    """What the run has kept in the store."""
    refs = {name: ObjectRef.model_validate(body) for name, body in record.outputs.items()}
    return {name: made.store.get(str(ref.key), limit=1 << 24) for name, ref in refs.items()}


def sums(made: League) -> dict[str, tuple[str, ...]]:
    return {one.session: one.participants for one in made.published(MASK_ANSWER, MaskAnswer) if one.sum is not None}


def steps(made: League) -> list[str]:
    """The steps that a study has asked of the cohorts, in order."""
    asked = [task.step for task in made.published(TASK, Task) if task.participant == COHORTS[0]]
    return [step for step in asked if not step.endswith(("-share", "-unmask", "-advertise"))]


def test_a_study_in_memory_has_the_bits_of_its_rehearsal(
    files: Files, in_memory: dict[str, bytes], tmp_path: Path
) -> None:
    study = Study.model_validate(SECTION)
    with threadpool_limits(1):
        expected = rehearse(study, {name: files.cohort(name, study) for name in COHORTS}, tmp_path)
    found = decode_tensors(in_memory["results"])[1]
    assert found.keys() == expected.results.keys()
    for column, values in expected.results.items():
        assert np.array_equal(found[column].view(np.uint8), np.ascontiguousarray(values).view(np.uint8)), column


@pytest.mark.parametrize("mode", ["compensator", "pairwise"])
def test_a_study_keeps_the_same_bytes_in_memory_and_on_a_hub_whose_coordinator_is_killed_at_any_publication(
    there: dict[str, Any], in_memory: dict[str, bytes], tmp_path: Path, mode: str
) -> None:
    def told(made: League, record: RunRecord) -> object:
        assert set(answers(made).values()) == {1}
        assert mode == "pairwise" or set(sums(made).values()) == {COHORTS}
        return tuple(sorted(kept(made, record).items()))

    every = {"compensator": 131, "pairwise": 301}[mode]
    with threadpool_limits(1):
        killed = outcomes_when_killed(tmp_path, COHORTS, study_job(mode), every=every, told=told, known=True, **there)
    assert len(killed) > 1
    assert set(killed) == {tuple(sorted(in_memory.items()))}


@in_virtual_time
async def test_cautious_cohorts_whose_sums_all_have_the_same_members_mask_many_chunks_side_by_side(
    clock: VirtualClock, tmp_path: Path, there: dict[str, Any], in_memory: dict[str, bytes]
) -> None:
    """Each answer ended the sums under way that were not unmasked yet, and such a study failed."""
    rules = {"masking": {"required": True}}
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *COHORTS, rules=rules, **there) as made:
            record = await completed(made, study_job("pairwise", chunk=100))
            assert {result.outcome for result in made.published(RESULT, Result)} == {Outcome.DONE}
            found = kept(made, record)
    assert found["results"] == in_memory["results"]


@in_virtual_time
async def test_a_study_of_chunks_at_once_leaves_its_outputs_small_entries_in_its_journal_and_sites_that_forget(
    clock: VirtualClock, tmp_path: Path, there: dict[str, Any]
) -> None:
    async with hub_of(clock, tmp_path, *COHORTS, **there) as made:
        made.store.put(f"models/{PROJECT}/{RUN}/samples/sum", b"of a former step")
        record = await completed(made, study_job())
        await clock.sleep(1)
        on_bus = [name.split(".")[-1] for name in made.on_bus(TASK)]
        left = [path for name in COHORTS for path in (made.folder / name / "studies").glob("*")]
    assert not left, "a site that is there hears of the end at once, not when it next gives a sign of life"
    assert sorted(record.outputs) == ["results", "summary"]
    assert set(made.store.keys(f"models/{PROJECT}/{RUN}/")) == {body["key"] for body in record.outputs.values()}
    assert max(len(entry.encode()) for entry in made.published(JOURNAL, JournalEntry)) < MAX_MESSAGE_BYTES // 64
    assert made.events("progress")
    last = made.published(TASK, Task)[-len(COHORTS) :]
    assert [(task.participant, task.config) for task in last] == [(name, {"step": "forget"}) for name in COHORTS]
    assert len(on_bus) == len(COHORTS)
    chunk = [step.split("-")[0] for step in steps(made) if step.startswith("c0")]
    assert len(set(chunk)) > 1
    assert chunk != sorted(chunk), "one chunk was done after the other"


@pytest.mark.parametrize("allowed", ["few_samples"])
def test_that_every_site_allowed_what_the_owner_dares_is_in_the_audit(
    tmp_path: Path, there: dict[str, Any], allowed: str
) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *COHORTS, rules={"studies": {allowed: True}}, **there) as made:
            await completed(made, study_job(**{allowed: True}))
        rest = dict.fromkeys(("few_cohorts", "few_samples"), False)
        [told] = made.audits("study.allow")
        assert told.detail == rest | {allowed: True, "cohorts": 3, "sites": list(COHORTS)}

    clock.run(story())


@in_virtual_time
async def test_a_site_that_does_not_allow_it_ends_the_study_and_no_agreement_is_in_the_audit(
    clock: VirtualClock, tmp_path: Path, there: dict[str, Any]
) -> None:
    async with hub_of(clock, tmp_path, *COHORTS, **there) as made:
        record = await ended(made, study_job(few_samples=True))
    assert "studies.few_samples" in record.reason
    assert "refused" in record.reason
    assert made.audits("study.allow") == []


@in_virtual_time
async def test_a_cohort_that_refuses_ends_the_study_with_its_reason(
    clock: VirtualClock, tmp_path: Path, there: dict[str, Any]
) -> None:
    async with hub_of(clock, tmp_path, *COHORTS, **there) as made:
        made.let("north", refuses("c*", reason="studies: not here"))
        record = await ended(made, study_job())
    assert record.state == "failed"
    assert "north refused (studies: not here)" in record.reason
    assert not record.outputs


@in_virtual_time
async def test_a_site_whose_files_are_wrong_is_not_asked_again(
    clock: VirtualClock, tmp_path: Path, there: dict[str, Any]
) -> None:
    async with hub_of(clock, tmp_path, *COHORTS, **there) as made:
        made.let("south", fails("samples*", code="invalid-input", reason="x.cov, line 3: AGE is no number"))
        record = await ended(made, study_job())
    assert "AGE is no number" in record.reason
    assert [step for step in steps(made) if step.startswith("samples")] == ["samples"]


@pytest.mark.parametrize("fault", [tampers("samples"), seals_nothing("samples")], ids=["tampered", "sealed for nobody"])
def test_an_answer_that_cannot_be_summed_is_asked_for_again_from_all(
    tmp_path: Path, there: dict[str, Any], in_memory: dict[str, bytes], fault: Any
) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *COHORTS, **there) as made:
            made.let("east", fault)
            record = await completed(made, study_job())
            assert kept(made, record) == in_memory
        assert [step for step in steps(made) if step.startswith("samples")] == ["samples", "samples-s2"]
        assert sums(made)["samples-s2"] == COHORTS
        assert made.audits("update.refuse") or "samples" not in sums(made)

    with threadpool_limits(1):
        clock.run(story())


@in_virtual_time
async def test_a_study_whose_answers_never_fit_fails_and_says_whose(
    clock: VirtualClock, tmp_path: Path, there: dict[str, Any]
) -> None:
    async with hub_of(clock, tmp_path, *COHORTS, **there) as made:
        made.let("east", tampers("samples*"))
        record = await ended(made, study_job())
    assert record.reason.startswith("tampered: step samples")
    assert "east: " in record.reason


@in_virtual_time
async def test_a_study_pauses_between_computations_and_goes_on(
    clock: VirtualClock, tmp_path: Path, there: dict[str, Any], in_memory: dict[str, bytes]
) -> None:
    with threadpool_limits(1):
        async with hub_of(clock, tmp_path, *COHORTS, **there) as made:
            await made.submit(**study_job())
            await made.event("task-answered", step="samples")
            await made.want("pause")
            paused = await made.until(lambda record: record.state == "paused")
            before = len(steps(made))
            await clock.sleep(1_000)
            assert (paused.outputs, len(steps(made))) == ({}, before)
            await made.want("run")
            assert kept(made, await made.ended()) == in_memory
    assert set(answers(made).values()) == {1}
    jobs = [job.id for job in made.published(JOB, StudyJob)]
    assert len(jobs) == len(set(jobs))


@in_virtual_time
async def test_a_cancelled_study_leaves_no_object(clock: VirtualClock, tmp_path: Path, there: dict[str, Any]) -> None:
    async with hub_of(clock, tmp_path, *COHORTS, **there) as made:
        made.let("east", silent("c*"))
        await made.submit(**study_job())
        await made.event("task-answered", participant="north", step="c00000-logistic-0")
        await made.want("cancel")
        assert (await made.ended()).state == "cancelled"
        assert list(made.store.keys("models/")) == []
