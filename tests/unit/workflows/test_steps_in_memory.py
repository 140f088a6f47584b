"""A workflow's steps in memory: a key is used once, for one question, with an outcome that can be told again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode
from hanse_workflows import RunFailure, Verbs, Workflow, first_model, gather, reduce
from hanse_workflows.memory import Journal, conduct
from hanse_workflows.round_asks import training
from unit.workflows.memory_sites import job_of, sites


async def careless(run: Verbs) -> None:
    """Trains at two sites of one round under the same keys."""
    model = await first_model(run)
    for name in await run.participants("r1-participants"):
        asked = replace(training(run.job, (name,), 1, model), needed=1)
        answers = (await gather(run, "r1-train", asked)).answers
        model = (await reduce(run, "r1-reduce", round=1, answers=answers, model=model, needed=1)).model


def test_a_key_that_is_used_twice_ends_the_run() -> None:
    with pytest.raises(RunFailure, match="step r1-train: the workflow has used this key already") as raised:
        conduct(job_of(workflow="careless"), sites(), workflow=Workflow(careless))
    assert raised.value.code is ErrorCode.STEP_CHANGED


def test_another_job_over_the_journal_of_a_run_is_told_apart() -> None:
    journal = Journal()
    conduct(job_of(), sites(), journal=journal)
    with pytest.raises(RunFailure, match="the run's journal has it with fingerprint") as raised:
        conduct(job_of(seed=8), sites(), journal=journal)
    assert raised.value.code is ErrorCode.STEP_CHANGED


@pytest.mark.parametrize("key", ["R1", "r1_train", "", "r" * 65, "r1\n"])
def test_a_key_that_a_hub_would_not_take_is_refused(key: str) -> None:
    async def conduct_it(run: Verbs) -> None:
        await run.participants(key)

    with pytest.raises(RunFailure, match="a key has 1 to 64 lower-case letters, digits and hyphens"):
        conduct(job_of(), sites(), workflow=Workflow(conduct_it))


@pytest.mark.parametrize(
    ("outcome", "said"), [(5, "its outcome is int; give a mapping"), (None, "its outcome is NoneType"), ([1], "list")]
)
def test_an_outcome_that_is_no_mapping_is_refused(outcome: Any, said: str) -> None:
    async def once(run: Verbs) -> None:
        async def do() -> Any:
            return outcome

        await run.once("mine", {}, do)

    with pytest.raises(RunFailure, match=f"step mine: .*{said}"):
        conduct(job_of(), sites(), workflow=Workflow(once))


def test_a_step_whose_work_is_no_async_function_is_refused() -> None:
    async def once(run: Verbs) -> None:
        await run.once("mine", {}, dict)  # type: ignore[arg-type]

    with pytest.raises(RunFailure, match="step mine: what does it gives dict at once; it is to be an async function"):
        conduct(job_of(), sites(), workflow=Workflow(once))


@pytest.mark.parametrize("outcome", [{"pair": (1, 2)}, {"by": {1: 2}}, {"loss": float("inf")}, {"names": {"a"}}])
def test_an_outcome_that_a_replay_would_read_otherwise_is_refused(outcome: dict[str, Any]) -> None:
    async def once(run: Verbs) -> None:
        async def do() -> dict[str, Any]:
            return outcome

        await run.once("mine", {}, do)

    with pytest.raises(RunFailure, match="step mine: its outcome is not the same after a replay"):
        conduct(job_of(), sites(), workflow=Workflow(once))


@pytest.mark.parametrize("asked", [{"rate": float("nan")}, {"what": object()}, {"mixed": {1, "a"}}])
def test_a_question_without_a_fingerprint_is_refused(asked: dict[str, Any]) -> None:
    async def once(run: Verbs) -> None:
        await run.once("mine", asked, NotImplemented)

    with pytest.raises(RunFailure, match="what a step asks has no fingerprint: "):
        conduct(job_of(), sites(), workflow=Workflow(once))


def test_a_site_that_was_never_enrolled_is_an_error_that_names_it() -> None:
    async def stranger(run: Verbs) -> None:
        await gather(
            run, "r1-train", replace(training(run.job, ("site-0", "nobody"), 1, await first_model(run)), needed=1)
        )

    with pytest.raises(
        RunFailure, match="step r1-train: it asks 'nobody', and nobody of that name was ever enrolled here"
    ) as raised:
        conduct(job_of(), sites(), workflow=Workflow(stranger))
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_a_run_that_leaves_nothing_says_so_at_its_end() -> None:
    async def looks_around(run: Verbs) -> None:
        await run.participants("r1-participants")

    told: list[Any] = []
    made = conduct(
        job_of(),
        sites(),
        workflow=Workflow(looks_around),
        told=lambda _kind, _round, data: told.append(data.get("reason")),
    )
    assert made.model is None
    assert [str(each).partition(":")[0] for each in told] == [
        "the workflow has ended without a model or another result"
    ]


def test_a_run_that_leaves_a_model_says_nothing_of_the_kind() -> None:
    told: list[str] = []
    conduct(job_of(), sites(), told=lambda _kind, _round, data: told.append(str(data)))
    assert not [each for each in told if "without a model" in each]


@pytest.mark.parametrize("how", ["note", "audit"])
def test_a_number_that_is_not_finite_is_told_to_nobody_and_ends_the_run(how: str) -> None:
    async def tells(run: Verbs) -> None:
        told = {"loss": {"north": float("nan")}}
        run.note("judged", "r1", round=1, **told) if how == "note" else run.audit("judged", "r1", **told)

    with pytest.raises(RunFailure, match=r"judged r1: loss has a number that is not finite \(\{'north': nan\}\)"):
        conduct(job_of(), sites(), workflow=Workflow(tells))
