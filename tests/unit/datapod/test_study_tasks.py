"""Steps of a study at a site: side by side, dropped when nobody waits, hidden, and forgotten with their run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from hanse_datapod.answers.delivery import outbox_entries
from hanse_datapod.home.folders import TaskFolders
from hanse_datapod.home.journal import TaskJournal
from hanse_datapod.home.outbox import verify_log
from hanse_datapod.study.lanes import StudyLanes
from hanse_datapod.study.tasks import FORGET
from hanse_fabric.errors import ErrorCode, unfit
from hanse_fabric.messages import HiddenFailure, MaskingMode, Outcome, Task, TaskKind
from hanse_fabric.tensors.file import decode_tensors
from hanse_privacy.masks.stream import MaskStream, Purpose
from hanse_site import OpenTask, SiteLink
from unit.datapod.masked_actors import opened
from unit.datapod.site_actors import Site, task
from unit.datapod.study_actors import COUNTS, RUN, Cohort, masked_step, plan, study_policy, study_step

STEPS = [f"c{number:04}-counts" for number in range(6)]


@pytest.fixture
async def cohort(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path / "site", worker=Cohort(), policy=study_policy())
    yield made
    await made.stop()


def worker_of(site: Site) -> Cohort:
    assert isinstance(site.worker, Cohort)
    return site.worker


async def test_all_open_steps_of_a_run_are_computed_and_none_supersedes_another(cohort: Site) -> None:
    for step in STEPS:
        await cohort.give(masked_step(step))
    await cohort.start()
    results = await cohort.results(len(STEPS))
    assert sorted(result.step for result, _ in results) == STEPS
    assert {(result.outcome, result.reason) for result, _ in results} == {(Outcome.DONE, "")}
    assert worker_of(cohort).stopped == []


async def test_two_steps_are_under_way_at_once_and_no_more(cohort: Site) -> None:
    worker = worker_of(cohort)
    worker.hold = asyncio.Event()
    await cohort.start()
    for step in STEPS:
        await cohort.give(masked_step(step))
    await asyncio.wait_for(worker.both.wait(), 60)
    worker.hold.set()
    await cohort.results(len(STEPS))
    assert worker.most_at_once == 2


async def test_the_answer_of_a_step_is_its_arrays_under_the_mask_of_the_sealed_seed(cohort: Site) -> None:
    await cohort.start()
    given = masked_step()
    await cohort.give(given)
    [(result, _)] = await cohort.results(1)
    assert result.seed is not None
    _, arrays = decode_tensors(await cohort.update_of(result))
    # In the file's order: floats before integers.
    elements = np.concatenate([arrays["sums"].ravel(), arrays["counts"].ravel()])
    mask = np.zeros_like(elements)
    MaskStream(opened(given, result.seed).seed, Purpose.UPDATE).add_to(mask, 0)
    plain = (elements - mask).view(np.int64)
    assert np.allclose(plain[:6] * 2.0**-45, COUNTS["sums"], rtol=0, atol=2.0**-46)
    assert np.array_equal(plain[6:], COUNTS["counts"].ravel())
    assert not np.any(elements.view(np.int64)[6:] == COUNTS["counts"].ravel())
    assert (result.examples, result.metrics) == (0, {})


async def test_the_list_of_snps_leaves_unmasked_and_does_not_tell_how_many_people_there_are(cohort: Site) -> None:
    await cohort.start()
    await cohort.give(study_step())
    [(result, _)] = await cohort.results(1)
    assert (result.outcome, result.examples, result.tally) == (Outcome.DONE, 0, None)
    _, arrays = decode_tensors(await cohort.update_of(result))
    assert np.array_equal(arrays["counts"], COUNTS["counts"])


async def test_a_step_that_was_closed_while_it_waited_is_dropped(cohort: Site) -> None:
    worker = worker_of(cohort)
    worker.hold = asyncio.Event()
    await cohort.start()
    first, second, closed, last = (masked_step(step) for step in STEPS[:4])
    await cohort.give(first)
    await cohort.give(second)
    await asyncio.wait_for(worker.both.wait(), 60)
    for each in (closed, last):
        await cohort.give(each)
    await cohort.close_step(closed)
    worker.hold.set()
    answered = [result.step for result, _ in await cohort.results(3)]
    assert sorted(answered) == [first.step, second.step, last.step]
    assert len(worker.requests) == 3


async def test_a_step_that_is_opened_again_in_its_session_is_answered_with_the_same_bytes(cohort: Site) -> None:
    await cohort.start()
    await cohort.give(masked_step("c0001-counts", session="c0001"))
    [(first, _)] = await cohort.results(1)
    await cohort.give(masked_step("c0001-counts-2", session="c0001"))
    again = (await cohort.results(2))[1][0]
    assert (again.step, again.update, again.tally) == ("c0001-counts-2", first.update, first.tally)
    assert len(worker_of(cohort).requests) == 1


async def test_a_restarted_site_sends_the_answers_that_it_had_and_computes_the_rest(cohort: Site) -> None:
    steps = [masked_step(step) for step in STEPS[:3]]
    await cohort.start()
    await cohort.give(steps[0])
    [(_, first)] = await cohort.results(1)
    worker_of(cohort).hold = asyncio.Event()
    for each in steps[1:]:
        await cohort.give(each)
    await asyncio.wait_for(worker_of(cohort).both.wait(), 60)
    await cohort.stop()
    assert len(worker_of(cohort).stopped) == 2
    worker_of(cohort).hold = None
    cohort.forget_hub()
    await cohort.start()
    for each in steps:
        await cohort.give(each)
    answers = {result.step: data for result, data in await cohort.results(3)}
    assert answers[STEPS[0]] == first
    assert len(worker_of(cohort).requests) == 5


async def test_the_end_of_a_run_removes_its_folder_and_its_tasks_and_lets_the_worker_rest(cohort: Site) -> None:
    worker = worker_of(cohort)
    await cohort.start()
    await cohort.give(masked_step(STEPS[0]))
    await cohort.results(1)
    folder = cohort.home / "studies" / RUN
    assert (folder / "components").exists()
    worker.hold = asyncio.Event()
    worker.began.clear()
    await cohort.give(masked_step(STEPS[1]))
    await asyncio.wait_for(worker.began.wait(), 60)
    await cohort.give(study_step("forget", function="forget"))
    await cohort.give(masked_step("other", run="b" * 12))
    await asyncio.wait_for(worker.rested.wait(), 60)
    worker.hold.set()
    answered = [result.step for result, _ in await cohort.results(2)]
    assert answered == [STEPS[0], "other"]
    assert [request.state for request in worker.stopped] == [folder]
    assert not folder.exists()
    assert not list((cohort.home / "work").glob(f"{RUN}.*"))


async def test_a_step_whose_worker_process_dies_is_computed_again_and_answered_once(cohort: Site) -> None:
    worker_of(cohort).deaths = 2
    await cohort.start()
    await cohort.give(masked_step())
    [(result, _)] = await cohort.results(1)
    assert result.outcome is Outcome.DONE
    assert len(worker_of(cohort).requests) == 3


async def test_a_masked_step_on_faulty_files_is_refused_with_a_fixed_code_and_the_site_logs_why(
    cohort: Site, caplog: pytest.LogCaptureFixture
) -> None:
    worker_of(cohort).error = unfit("ward.cov, line 7: AGE: expected a number", "x'y", code=ErrorCode.INVALID_INPUT)
    await cohort.start()
    await cohort.give(masked_step())
    [(result, _)] = await cohort.results(1)
    unserved = HiddenFailure.UNFIT
    assert (result.outcome, result.code, result.reason) == (Outcome.REFUSED, unserved.value, unserved.text)
    assert "ward.cov, line 7: AGE: expected a number [found: x'y]" in str([vars(record) for record in caplog.records])


@pytest.mark.parametrize(
    ("given", "people", "said"),
    [
        (masked_step(), 9, "too few by the site's policy"),
        (masked_step(rings=plan(entries={"counts": plan().default})), 40, "arrays sums either a ring"),
        (task("train"), 40, "workflows: federated_averaging is asked"),
        (masked_step(rings=plan(refuse_out_of_range=False)), 40, "neither weighted nor clipped"),
        (masked_step(peers=2), 40, "studies.minimum_cohorts: a study of 2 is asked, allowed: at least 3"),
    ],
)
async def test_a_step_that_may_not_be_answered_is_refused_and_nothing_of_it_leaves(
    cohort: Site, given: Task, people: int, said: str
) -> None:
    worker_of(cohort).examples = people
    await cohort.start()
    await cohort.give(given)
    [(result, _)] = await cohort.results(1)
    assert result.outcome is Outcome.REFUSED
    assert said in result.reason
    assert str(people) not in result.reason
    assert (result.update, result.tally, result.seed) == (None, None, None)
    assert not list((cohort.home / "work").glob("*")) if (cohort.home / "work").exists() else True


async def test_a_site_that_trains_refuses_a_study_and_the_other_way_round(tmp_path: Path) -> None:
    site = Site(tmp_path / "site", policy=study_policy(workflows=["federated_averaging", "association_study"]))
    site.worker.kinds = frozenset({task().kind})
    await site.start()
    await site.give(masked_step())
    [(result, _)] = await site.results(1)
    await site.stop()
    assert result.code == "schema-mismatch"
    assert "genotypes" in result.reason
    assert site.worker.requests == []


async def test_every_answer_is_in_the_outbox_log_before_it_leaves(cohort: Site) -> None:
    await cohort.start()
    given = [masked_step(step) for step in STEPS[:3]]
    for each in given:
        await cohort.give(each)
    await cohort.results(3)
    await cohort.stop()
    assert verify_log(cohort.home).broken is None
    log = (cohort.home / "outbox.jsonl").read_text()
    journal = TaskJournal(cohort.home)
    for each in given:
        finished = journal.find(each.id)
        assert finished is not None
        assert all(item.digest in log for item in outbox_entries(each, finished, cohort.home / "none"))
    journal.close()


async def test_tasks_of_the_masking_protocol_are_answered_while_a_step_computes(cohort: Site) -> None:
    worker = worker_of(cohort)
    worker.hold = asyncio.Event()
    await cohort.start()
    for step in STEPS[:3]:
        await cohort.give(masked_step(step))
    await asyncio.wait_for(worker.both.wait(), 60)
    await cohort.give(masked_step("keys", mode=MaskingMode.PAIRWISE, kind=TaskKind.ADVERTISE, config={}))
    [(result, _)] = await cohort.results(1)
    assert (result.step, result.outcome) == ("keys", Outcome.DONE)
    worker.hold.set()
    assert len(await cohort.results(4)) == 4


async def test_the_next_step_begins_while_the_agent_asks_whether_former_steps_are_closed(
    cohort: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these looks takes over a second, for a copy of the stream may be behind."""
    never, looked = asyncio.Event(), asyncio.Event()
    done = [masked_step(f"c{number:04}-counts") for number in range(8)]

    async def slow(link: SiteLink, given: Task) -> bool:
        if given.id in answered:
            looked.set()
            await never.wait()
        return True

    answered: set[str] = set()
    monkeypatch.setattr(SiteLink, "is_open", slow)
    await cohort.start()
    for number, each in enumerate(done, start=1):
        await cohort.give(each)
        await cohort.results(number)
        answered.add(each.id)
    await asyncio.wait_for(looked.wait(), 60)
    for number in (8, 9, 10):  # more than there are lanes
        await cohort.give(masked_step(f"c{number:04}-counts"))
    assert len(await cohort.results(11)) == 11


async def test_steps_that_stay_open_are_not_asked_about_again_with_each_answer(
    cohort: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, asked = [f"c{number:04}-counts" for number in range(40)], 0

    async def counted(_link: SiteLink, _task: Task) -> bool:
        nonlocal asked
        asked += 1
        return True

    monkeypatch.setattr(SiteLink, "is_open", counted)
    await cohort.start()
    for number, step in enumerate(steps, start=1):
        await cohort.give(masked_step(step))
        await cohort.results(number)
    # Each before it begins, and then those at hand at some 8, 16 and 32; with each answer it would be some 800.
    assert asked <= 3 * len(steps)


async def test_runs_that_end_one_after_the_other_do_not_put_the_next_look_at_closed_steps_off(tmp_path: Path) -> None:
    lanes = StudyLanes(None, None, TaskFolders(tmp_path), None, lanes=1)
    worth: list[int] = []
    for number in range(20):
        each = masked_step(f"c{number:04}-counts")
        lanes._handed_in[each.id] = each
        ended = study_step("end", function=FORGET).model_copy(update={"run": f"other-{number}"})
        await lanes.offer(OpenTask(ended, {}, 0, 0.0))
        worth.append(lanes._worth_a_look)
    assert set(worth) == {8}
