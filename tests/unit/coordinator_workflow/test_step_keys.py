"""A step's key stands for one question: used twice, or for another question at a replay, it ends the run in words."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_workflow_faults import MortalBus
from workflow_hub import PROJECT, RUN, Hub, at_work, job_of, stopped

from hanse_coordinator.runs.journal import Journal, JournalEntry
from hanse_coordinator.verbs.steps import Steps
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import ErrorCode
from hanse_fabric.subjects import JOURNAL
from hanse_schemas.job import Job
from hanse_workflows import RunFailure
from hanse_workflows.fingerprint import VERSION, fingerprint
from installed_package import install


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


@pytest.fixture
def careless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workflow that trains at two sites in one round under the same keys."""
    entries = {
        "hanse.workflows": {
            "careless": "careless:workflow",
            "raising": "careless:raising",
            "leaving": "careless:leaving",
        }
    }
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


workflow, raising, leaving = Workflow(trains_twice_in_a_round), Workflow(divides), Workflow(leaves)
"""


def job_named(workflow: str, **changes: object) -> Job:
    return job_of(**changes).model_copy(update={"workflow": workflow})


@pytest.mark.usefixtures("careless")
async def test_a_key_that_is_used_twice_ends_the_run_with_both_fingerprints(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_named("careless"))
        record = await hub.ended()
    assert record.state == "failed"
    assert record.reason.startswith("step-changed: step r1-train: the workflow has used this key already")
    first, second = (word.strip(",") for word in record.reason.split() if word.startswith(f"{VERSION}."))
    assert first != second
    assert hub.sites["south"].done["r1-train", "train"] == 0, "the second site was asked under the first one's key"


@pytest.mark.usefixtures("careless")
async def test_a_workflow_of_a_package_that_raises_ends_the_run_naming_the_package_and_its_line(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_named("raising"))
        record = await hub.ended()
    assert record.state == "failed"
    assert "workflow raising of careless 1.0 raised ZeroDivisionError in line 18 of careless.py" in record.reason


@pytest.mark.usefixtures("careless")
async def test_a_workflow_of_a_package_that_calls_for_an_exit_ends_its_run_and_not_the_coordinator(hub: Hub) -> None:
    async with hub.running("north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_named("leaving"))
        record = await hub.ended()
    assert record.state == "failed"
    assert "workflow leaving of careless 1.0 raised SystemExit in line 22 of careless.py: enough" in record.reason


async def test_cyclic_transfer_passes_the_model_from_site_to_site(hub: Hub) -> None:
    async with hub.running("east", "north", "south"), at_work(hub.supervisor()):
        await hub.submit(job_named("cyclic_weight_transfer", rounds=2))
        record = await hub.ended()
    assert (record.state, record.reason) == ("completed", "")
    assert hub.reduced["r1-p1-reduce"] == hub.reduced["r1-p2-reduce"] == hub.reduced["r2-p3-reduce"] == 1
    assert all(site.done[f"r2-p{place}-train", "train"] == 1 for place, site in enumerate(hub.sites.values(), start=1))


async def test_cyclic_transfer_ends_in_the_same_model_whenever_its_coordinator_is_killed(tmp_path: Path) -> None:
    async def digest(folder: Path, at: int) -> str | None:
        """Of a run whose coordinator dies at its n-th publication; 0: it lives."""
        hub = Hub(folder)
        async with hub.running("north", "south"):
            await hub.submit(job_named("cyclic_weight_transfer", rounds=2))
            mortal = MortalBus(hub.broker, at=at, stored=at % 2 == 0)
            first = asyncio.ensure_future(hub.supervisor(mortal).run())
            if at:
                await mortal.dead.wait()
                async with at_work(hub.supervisor()):
                    record = await hub.ended()
            else:
                record = await hub.ended()
            mortal.buried.set()
            await stopped(first)
        assert (record.state, record.reason) == ("completed", "")
        assert all(set(site.done.values()) == {1} for site in hub.sites.values())
        return record.model_digest

    whole = await digest(tmp_path / "whole", 0)
    for at in range(1, 60, 4):
        assert await digest(tmp_path / str(at), at) == whole, at


async def test_another_question_under_a_recorded_key_ends_the_pass_with_both_fingerprints() -> None:
    bus = MemoryBus()
    steps = await steps_of(bus)
    await steps.once("r1-decide", {"wanted": 1}, an_answer)
    replayed = await steps_of(bus)
    with pytest.raises(RunFailure) as raised:
        await replayed.once("r1-decide", {"wanted": 2}, an_answer)
    assert raised.value.code is ErrorCode.STEP_CHANGED
    assert fingerprint({"wanted": 1}) in raised.value.message
    assert fingerprint({"wanted": 2}) in raised.value.message


async def test_the_same_question_gets_the_recorded_answer_and_nothing_is_done() -> None:
    bus = MemoryBus()
    await (await steps_of(bus)).once("r1-decide", {"wanted": 1}, an_answer)

    async def done_again() -> dict[str, object]:
        raise AssertionError("it was done before")

    assert await (await steps_of(bus)).once("r1-decide", {"wanted": 1}, done_again) == {"answer": 42}


async def test_entries_without_fingerprints_are_of_the_release_before_and_are_taken_as_they_are() -> None:
    bus = MemoryBus()
    old = b'{"body":{"answer":7},"epoch":1,"kind":"closed","schema":"hanse.journal_entry/1","step":"r1-decide"}'
    await bus.publish(JOURNAL.of(project=PROJECT, run=RUN), old)
    steps = await steps_of(bus)
    assert await steps.once("r1-decide", {"wanted": 1}, an_answer) == {"answer": 7}
    assert steps.job_id("r1-reduce", {"model": "m"}) == "r1-reduce", "a run of release 0.1.0 keeps its jobs' names"


async def test_a_job_of_another_question_has_another_id() -> None:
    steps = await steps_of(MemoryBus())
    one, other = (steps.job_id("r1-reduce", {"model": model}) for model in ("a", "b"))
    assert one != other
    assert one.startswith("r1-reduce-")


def test_a_journal_entry_has_golden_bytes() -> None:
    entry = JournalEntry(epoch=2, kind="closed", step="r1-reduce", body={"a": 1}, fingerprint="1.00")
    assert entry.encode() == (
        b'{"body":{"a":1},"epoch":2,"fingerprint":"1.00","kind":"closed",'
        b'"schema":"hanse.journal_entry/2","step":"r1-reduce"}'
    )
    assert JournalEntry.decode(entry.encode()) == entry


async def an_answer() -> dict[str, object]:
    return {"answer": 42}


async def steps_of(bus: MemoryBus) -> Steps:
    """As a coordinator makes them that takes the run up."""
    journal = await Journal.open(bus, PROJECT, RUN, holder="c")
    return Steps(journal, Notices(bus, SystemClock(), PROJECT, RUN, actor="c"), run=RUN, pause=asyncio.Event())
