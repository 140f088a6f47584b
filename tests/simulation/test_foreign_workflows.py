"""Workflows of packages: a key that is used twice, an exception and an exit each end their run, in words."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from clocks import in_virtual_time
from hanse_fabric.virtual_time import VirtualClock
from hanse_workflows.fingerprint import VERSION, fingerprint
from installed_package import install
from simulation.faults import silent
from simulation.stories import completed, ended, heard, hub_of, job_of

NAMES = ("north", "south")
OFFERED = ("raising", "leaving", "forgetful", "unawaited", "bare", "infinite", "stranger", "idle")
RULES = {"workflows": ["careless", *OFFERED], "minimum_participants": 1}


@pytest.fixture
def careless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workflow that trains at two sites in one round under the same keys."""
    entries = {"hanse.workflows": {"careless": "careless:workflow", **{name: f"careless:{name}" for name in OFFERED}}}
    monkeypatch.syspath_prepend(install(tmp_path / "site", "careless", {"careless": CARELESS}, entries))


CARELESS = """
from dataclasses import replace

from hanse_workflows import Workflow, first_model, gather, reduce
from hanse_workflows.round_asks import training


async def trains_twice_in_a_round(run):
    model = await first_model(run)
    for name in await run.participants("r1-participants"):
        asked = replace(training(run.job, (name,), 1, model), needed=1)
        answers = (await gather(run, "r1-train", asked)).answers
        model = (await reduce(run, "r1-reduce", round=1, answers=answers, model=model, needed=1)).model


async def divides(run):
    await run.participants("r1-participants")
    return 1 / 0


async def leaves(run):
    raise SystemExit("enough")


passes = []


async def asks_otherwise_at_each_pass(run):
    passes.append(run.run)

    async def decide():
        return {"decided": True}

    await run.once("r1-decide", {"pass": len(passes)}, decide)
    model = await first_model(run)
    there = await run.participants("r1-participants")
    await gather(run, "r1-train", training(run.job, there, 1, model))


async def forgets_to_wait(run):
    there = run.participants("r1-participants")
    await gather(run, "r1-train", training(run.job, there, 1, None))


async def records_a_number(run):
    async def count():
        return 5

    await run.once("r1-count", {}, count)


async def tells_what_is_no_number(run):
    run.note("note", "r1/loss", round=1, losses=[0.5, float("inf")])


async def asks_a_stranger(run):
    model = await first_model(run)
    await gather(run, "r1-train", replace(training(run.job, ("north", "nobody"), 1, model), needed=1))


async def looks_around(run):
    await run.participants("r1-participants")


stranger, idle = Workflow(asks_a_stranger), Workflow(looks_around)
unawaited, bare, infinite = Workflow(forgets_to_wait), Workflow(records_a_number), Workflow(tells_what_is_no_number)
workflow, raising, leaving = Workflow(trains_twice_in_a_round), Workflow(divides), Workflow(leaves)
forgetful = Workflow(asks_otherwise_at_each_pass)
"""


@pytest.mark.usefixtures("careless")
@in_virtual_time
async def test_a_key_that_is_used_twice_ends_the_run_with_both_fingerprints(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES, rules=RULES) as made:
        record = await ended(made, job_of(workflow="careless"))
    assert record.state == "failed"
    assert record.reason.startswith("step-changed: step r1-train: the workflow has used this key already")
    first, second = (word.strip(",") for word in record.reason.split() if word.startswith(f"{VERSION}."))
    assert first != second
    assert "r1-train" not in heard(made, "south"), "the second site was asked under the first one's key"


@pytest.mark.usefixtures("careless")
@in_virtual_time
async def test_a_key_that_asks_for_something_else_at_the_next_pass_ends_the_run_with_both_fingerprints(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with hub_of(clock, tmp_path, *NAMES, rules=RULES) as made:
        made.let("north", silent("r1-train"))
        await made.submit(**job_of(workflow="forgetful"))
        await made.event("task-answered", step="r1-train")
        await made.restart("coordinator-0")
        record = await made.ended()
    assert record.state == "failed"
    assert record.reason.startswith("step-changed: step r1-decide: ")
    first, second = (fingerprint({"pass": number}) for number in (1, 2))
    assert first in record.reason
    assert second in record.reason


@pytest.mark.usefixtures("careless")
@pytest.mark.parametrize(
    ("workflow", "told"),
    [
        ("raising", "workflow raising of careless 1.0 raised ZeroDivisionError in line 18 of careless.py"),
        ("leaving", "workflow leaving of careless 1.0 raised SystemExit in line 22 of careless.py: enough"),
    ],
)
def test_a_workflow_that_raises_or_exits_ends_its_run_naming_its_package_and_line_and_the_coordinator_works_on(
    tmp_path: Path, workflow: str, told: str
) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *NAMES, rules=RULES) as made:
            record = await ended(made, job_of(workflow=workflow))
            assert not made.processes["coordinator-0"].failures
        assert record.state == "failed"
        assert told in record.reason

    clock.run(story())


@pytest.mark.usefixtures("careless")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("workflow", "told"),
    [
        (
            "unawaited",
            "what workflow unawaited of careless 1.0 calls in line 42 of careless.py raised TypeError: 'coroutine' "
            "object is not iterable (see that the call gives what is asked for, an `await` among it;",
        ),
        ("bare", "invalid-input: step r1-count: its outcome is int; give a mapping of names to JSON values"),
        ("infinite", "invalid-input: note r1/loss: losses has a number that is not finite ([0.5, inf])"),
    ],
)
def test_a_workflow_that_gives_hanse_something_else_than_is_asked_for_is_told_the_line_of_its_call(
    tmp_path: Path, workflow: str, told: str
) -> None:
    clock = VirtualClock()

    async def story() -> None:
        async with hub_of(clock, tmp_path, *NAMES, rules=RULES) as made:
            record = await ended(made, job_of(workflow=workflow))
        assert record.state == "failed"
        assert told in record.reason

    clock.run(story())
    gc.collect()  # what nobody awaits is warned of here, not in the test that happens to run when it is collected


@pytest.mark.usefixtures("careless")
@in_virtual_time
async def test_a_site_that_was_never_enrolled_ends_the_run_by_its_name(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES, rules=RULES) as made:
        record = await ended(made, job_of(workflow="stranger"))
        assert "r1-train" not in heard(made, "north"), "a task went out in a step that cannot be right"
    assert record.state == "failed"
    assert (
        "invalid-input: step r1-train: it asks 'nobody', and nobody of that name was ever enrolled here"
        in record.reason
    )


@pytest.mark.usefixtures("careless")
@in_virtual_time
async def test_a_run_that_leaves_nothing_says_so_at_its_end(clock: VirtualClock, tmp_path: Path) -> None:
    async with hub_of(clock, tmp_path, *NAMES, rules=RULES) as made:
        record = await ended(made, job_of(workflow="idle"))
        told = await made.event("note")
    assert record.state == "completed"
    assert str(told.data["reason"]).startswith("the workflow has ended without a model or another result")


@in_virtual_time
async def test_cyclic_transfer_passes_the_model_from_site_to_site(clock: VirtualClock, tmp_path: Path) -> None:
    names = ("east", "north", "south")
    async with hub_of(clock, tmp_path, *names) as made:
        await completed(made, job_of(workflow="cyclic_weight_transfer", rounds=2))
    for place, name in enumerate(names, start=1):
        trained = [step for step in heard(made, name) if step.endswith("train")]
        assert trained == [f"r1-p{place}-train", f"r2-p{place}-train"]
