"""Names that a hub chooses, and names that it is not told: a task's id and a run's under which something else is asked
than was counted, other projects of a site, and files of its disk.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, lying_hub, refusals
from adversary.stage import Regression, staged
from adversary.test_hub_preflight import asked
from adversary.works import MOVED
from hanse_datapod.agent import admission
from hanse_datapod.home import runs
from hanse_datapod.home.works import Works
from hanse_datapod.masking import answer, remembered
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import HiddenFailure, Outcome, Result, TaskKind
from servers import NatsServer

FEW: dict[str, Any] = {"asking": {"evaluations": 2, "questions": 2}}
SITE = "site-0"


async def evaluated(hub: LyingHub, step: str, session: str, model: Any) -> Result:
    return (await hub.ask(hub.task(SITE, step, kind=TaskKind.EVALUATE, model=model, session=session)))[SITE]


def forget(hub: LyingHub, *steps: str) -> None:
    """What the site's journal does with answers whose deadline is over, once others have come."""
    _, journal, _ = hub.stage.sites[SITE]._open
    for step in steps:
        journal.forget(hub.task(SITE, step).id)


async def models_evaluated(hub: LyingHub) -> list[Result]:
    """Models that the site was asked of under the ids of those that it has evaluated, after it has forgotten them."""
    for number in (1, 2):
        assert (await evaluated(hub, f"e{number}", f"s{number}", MODEL * number)).outcome is Outcome.DONE
    forget(hub, "e1", "e2")
    return [await evaluated(hub, f"e{number}", f"again{number}", MODEL * (number + 2)) for number in (1, 2)]


async def test_other_models_are_counted_under_the_ids_of_those_that_were(attacked: Attacked) -> None:
    async with attacked(**FEW) as hub:
        heard = await models_evaluated(hub)
    assert [answer.outcome for answer in heard] == [Outcome.REFUSED] * 2
    assert all("asking.evaluations" in answer.reason for answer in heard)


@pytest.mark.control("test_other_models_are_counted_under_the_ids_of_those_that_were")
async def test_control_where_a_tasks_id_is_counted_the_site_evaluates_more_models_than_its_policy_lets(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "question_of", lambda task: task.id)
    async with attacked(**FEW) as hub:
        heard = await models_evaluated(hub)
    assert [answer.outcome for answer in heard] == [Outcome.DONE] * 2


async def asked_by_one_run(hub: LyingHub) -> list[Result]:
    """What is said to other questions than were counted, which the same run asks in steps of other names."""
    questions = [asked(hub, SITE, 1).model_copy(update={"id": f"{number:032x}"}) for number in range(4)]
    configs = [question.config | {"rounds": number + 1} for number, question in enumerate(questions)]
    tasks = [
        question.model_copy(update={"step": f"preflight{number}", "config": config})
        for number, (question, config) in enumerate(zip(questions, configs, strict=True))
    ]
    return [(await hub.ask(task))[SITE] for task in tasks]


async def test_other_questions_are_counted_under_the_name_of_a_run_that_was(attacked: Attacked) -> None:
    async with attacked(**FEW) as hub:
        heard = await asked_by_one_run(hub)
    assert [bool(answer.payload) for answer in heard] == [True, True, False, False]
    assert "asking.questions" in heard[-1].reason


@pytest.mark.control("test_other_questions_are_counted_under_the_name_of_a_run_that_was")
async def test_control_where_a_runs_name_is_counted_it_is_told_all_that_it_asks(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "question_of", lambda task: task.run)
    async with attacked(**FEW) as hub:
        assert all(answer.payload for answer in await asked_by_one_run(hub))


@pytest.mark.no_attack("the bus")
async def test_a_task_that_comes_again_after_a_kill_is_counted_once(attacked: Attacked) -> None:
    async with attacked(**FEW, masking={"required": False}, minimum_participants=1) as hub:
        for _ in range(4):
            task = hub.task(SITE, "e1", kind=TaskKind.EVALUATE, model=MODEL, mode=None)
            assert (await hub.ask(task))[SITE].outcome is Outcome.DONE
            forget(hub, "e1")
        other = hub.task(SITE, "e2", kind=TaskKind.EVALUATE, model=-MODEL, mode=None)
        assert (await hub.ask(other))[SITE].outcome is Outcome.DONE


@asynccontextmanager
async def two_projects(server: NatsServer, folder: Path) -> AsyncIterator[tuple[LyingHub, LyingHub]]:
    """Of the same sites with the same data, whose homes share a memory."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    rules: dict[str, Any] = {"masking": {"memory": folder / "memory"}}
    async with (
        staged(server, folder / "one", **rules) as one, staged(server, folder / "two", **rules) as two,
        lying_hub(one) as first, lying_hub(two) as second,
    ):  # fmt: skip
        yield first, second


async def told_to_another_project(server: NatsServer, folder: Path, model: Any) -> tuple[str, Result]:
    """(the first project's name, what the second is answered), after the first had an answer by `MODEL`."""
    async with two_projects(server, folder) as (first, second):
        assert not refusals(await first.ask(first.task(SITE, model=MODEL)))
        answer = (await second.ask(second.task(SITE, model=model)))[SITE]
        return first.stage.project, answer


@pytest.mark.parametrize("model", [MODEL, MOVED], ids=["the same work", "a near answer"])
async def test_no_project_is_told_the_name_of_another(nats_server: NatsServer, tmp_path: Path, model: Any) -> None:
    name, answer = await told_to_another_project(nats_server, tmp_path, model)
    assert answer.outcome is Outcome.REFUSED
    assert name not in answer.encode().decode()


@pytest.mark.parametrize("model", [MODEL, MOVED], ids=["the same work", "a near answer"])
@pytest.mark.control("test_no_project_is_told_the_name_of_another")
async def test_control_where_messages_tell_what_was_found_its_name_is_told(
    nats_server: NatsServer, tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HanseError, "__str__", lambda self: self.whole)
    name, answer = await told_to_another_project(nats_server, tmp_path, model)
    assert name in answer.reason


async def test_that_an_answer_is_near_to_another_projects_is_told_in_fixed_words(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    _, answer = await told_to_another_project(nats_server, tmp_path, MOVED)
    assert (answer.code, answer.reason) == (HiddenFailure.UNFIT.value, HiddenFailure.UNFIT.text)


@pytest.mark.control("test_that_an_answer_is_near_to_another_projects_is_told_in_fixed_words")
async def test_control_where_what_a_tag_says_is_told_the_hub_hears_that_it_is_near(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "of_the_data", lambda _task: nullcontext())
    _, answer = await told_to_another_project(nats_server, tmp_path, MOVED)
    assert answer.code == ErrorCode.CONFLICT.code
    assert "this work was done for another project" in answer.reason


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


FAILURES: dict[str, Exception] = {
    "the disk": sqlite3.OperationalError("disk I/O error"),
    "full": sqlite3.OperationalError("database or disk is full"),
    "no space": OSError(errno.ENOSPC, "No space left on device"),
    "the system": OSError(errno.EIO, "Input/output error"),
}
PLACES: dict[str, tuple[Any, str]] = {"before the work": (runs, "one"), "after it": (Works, "_insert")}
failed = pytest.mark.parametrize("error", FAILURES)
placed = pytest.mark.parametrize("place", PLACES)


async def told_of_the_disk(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch, place: str, error: str
) -> tuple[str, bytes]:
    """The home of a site whose memory cannot be written, and all that is heard of it."""
    async with attacked(asking={"runs": 5}) as hub:
        monkeypatch.setattr(*PLACES[place], failing(FAILURES[error]))
        answer = (await hub.ask(hub.task(SITE, model=MODEL)))[SITE]
        assert answer.outcome is not Outcome.DONE
        return str(hub.stage.sites[SITE].home), b"\n".join(data for _, data in hub.heard)


@failed
@placed
async def test_an_error_of_the_disk_names_no_file_and_says_nothing_in_its_own_words(
    attacked: Attacked, place: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, left = await told_of_the_disk(attacked, monkeypatch, place, error)
    assert home.encode() not in left
    assert FAILURES[error].args[-1].encode() not in left


@failed
@placed
@pytest.mark.control("test_an_error_of_the_disk_names_no_file_and_says_nothing_in_its_own_words")
async def test_control_where_messages_tell_what_was_found_a_path_or_the_systems_words_leave(
    attacked: Attacked, place: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HanseError, "__str__", lambda self: self.whole)
    home, left = await told_of_the_disk(attacked, monkeypatch, place, error)
    assert home.encode() in left or FAILURES[error].args[-1].encode() in left


PATIENT = "patient J. Doe, born 1943"


class Naming(Regression):
    """A worker whose site code names a metric by what it finds in the data."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        made = await super().work(request, on_progress)
        return replace(made, metrics={**made.metrics, PATIENT: 1.0})


KEPT_BACK: dict[str, Any] = {"worker": Naming, "outputs": {"metrics": ["accuracy"]}}


async def told_beside_masked_answers(hub: LyingHub) -> list[bool]:
    """Whether the site names its metric: to a hub that asks for another, for it, and for one that there is not."""
    said = []
    for number, asked_for in enumerate(["loss", PATIENT, PATIENT.replace("1943", "1944")]):
        task = hub.task(SITE, model=MODEL * number, plan=hub.plan(metrics=[asked_for]), step=f"r{number}-train")
        said.append((await hub.ask(task))[SITE].reason.count("patient"))
    return [bool(count) for count in said]


async def test_which_metrics_a_site_has_made_is_not_told_beside_a_masked_answer(attacked: Attacked) -> None:
    async with attacked(**KEPT_BACK) as hub:
        assert await told_beside_masked_answers(hub) == [False, True, True]  # what the hub has said itself


@pytest.mark.control("test_which_metrics_a_site_has_made_is_not_told_beside_a_masked_answer")
async def test_control_where_what_was_made_is_named_what_code_found_in_the_data_is_told(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "_kept_back", lambda policy, _masking, outcome: policy.metrics(outcome.metrics))
    async with attacked(**KEPT_BACK) as hub:
        assert await told_beside_masked_answers(hub) == [True, True, True]
