"""What is asked of sites before a run, and what is made of their answers, those of a release that knows no question
too."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime

import pytest

from hanse.site import cannot
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import FindingCode, Outcome, SiteCheck, SiteFinding, Task
from hanse_schemas.job import check_job
from hanse_workflows.outcomes import Answer, Failure, Gathered
from hanse_workflows.preflight import MOST_ASKED, asked_of, question, said

NOW = datetime(2026, 5, 1, tzinfo=UTC)
FITS = SiteCheck(findings=(SiteFinding(code=FindingCode.FITS),))


def refused_as_unheard_of() -> HanseError:
    """What a site's decoder says of a kind of task that its release does not know."""
    ask = question(check_job({"rounds": 1, "model": {"name": "linear"}}), ("north",))
    task = ask.task("triage", "run000000001", "federated_averaging", "preflight", NOW, NOW)
    body = json.loads(task.model_copy(update=ask.own(task.run, task.step, "north")).encode())
    with pytest.raises(HanseError) as refused:
        Task.decode(json.dumps(body | {"kind": "of-a-later-release"}).encode())
    return refused.value


def test_a_site_that_does_not_know_the_question_does_not_say() -> None:
    error = refused_as_unheard_of()
    old = Failure(participant="old", outcome=Outcome.REFUSED, code=error.code.code, reason=str(error))
    limited = Failure(participant="limited", outcome=Outcome.REFUSED, code="policy", reason="asking.runs")
    answers = (
        Answer(participant="north", payload=base64.b64encode(FITS.encode())),
        Answer(participant="odd", payload=base64.b64encode(b"{}")),
    )
    gathered = Gathered(asked=("limited", "north", "odd", "old", "silent"), answers=answers, failures=(old, limited))
    assert said(gathered) == {
        "limited": "asking.runs", "north": FITS, "odd": "what it says cannot be read: unknown-schema",
        "old": "its release does not know the question", "silent": "it did not answer in time",
    }  # fmt: skip


@pytest.mark.parametrize(("fraction", "rounds"), [(1.0, 10), (0.25, 3)])
def test_a_budget_is_asked_for_the_rounds_that_a_site_takes_part_in(fraction: float, rounds: int) -> None:
    job = check_job({"rounds": 10, "model": {"name": "linear"}, "participants": {"fraction": fraction}})
    assert question(job, tuple("abcdefgh")).config["rounds"] == rounds


def test_what_is_asked_are_the_kinds_of_tasks_that_the_run_will_have() -> None:
    job = check_job({"rounds": 1, "model": {"name": "linear"}, "evaluate": {"every": 0}})
    assert question(job, ("a", "b")).config["kinds"] == ["train"]


def test_of_very_many_sites_some_are_asked_always_the_same() -> None:
    job = check_job({"rounds": 1, "model": {"name": "linear"}, "seed": 4})
    names = tuple(f"site-{number:05}" for number in range(12_000))
    asked = asked_of(job, names)
    assert len(asked) == MOST_ASKED
    assert asked == tuple(sorted(set(asked))) == asked_of(job, names)
    assert asked_of(job, names[:MOST_ASKED]) == names[:MOST_ASKED]


def test_a_site_that_joined_without_a_policy_says_that_it_cannot_say_and_no_pipeline_is_given_the_question() -> None:
    ask = question(check_job({"rounds": 1, "model": {"name": "linear"}}), ("north",))
    refusal = cannot(ask.task("triage", "run000000001", "federated_averaging", "preflight", NOW, NOW))
    assert refusal is not None
    assert "has no policy, so it cannot say" in str(refusal)
