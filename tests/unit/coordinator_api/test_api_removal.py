"""Runs that have ended are removed by their project's owners: nothing of them is left but what they have published."""

from __future__ import annotations

import pytest

from hanse_coordinator.quotas import Quotas, size_of
from hanse_coordinator.records import RunRecord
from hanse_coordinator.runs.journal import Journal
from hanse_coordinator.runs.journal_room import JournalRoom
from hanse_coordinator.verbs.failures import Fenced
from hanse_fabric.messages.models import Lineage, ModelVersion
from hanse_fabric.subjects import EVENT, JOURNAL, MODELS, SENT_BYTES, TASK, Subject
from hanse_workflows.failures import RunFailure
from hub_api import JOB, SCHEMA, START, Api

RUNS = "/v1/projects/alpha/runs"
STUDY = {"workflow": "association_study", "study": {"test": "linear", "covariates": []}}


async def submitted(api: Api, key: str, *, project: str = "alpha", job: object = None) -> str:
    made = await api.ok("POST", f"/v1/projects/{project}/runs", key, {"job": job or JOB})
    return str(made["run"])


async def ended(api: Api, run: str, *, project: str = "alpha", state: str = "completed", **more: object) -> None:
    def end(record: RunRecord) -> RunRecord:
        return record.model_copy(update={"state": state, **more})

    await api.hub.buckets.runs.change(end, project=project, run=run)


async def written(api: Api, run: str, *, project: str = "alpha") -> None:
    """What a run leaves on the bus."""
    for subject, more in (
        (JOURNAL, {}),
        (EVENT, {}),
        (SENT_BYTES, {"round": "1"}),
        (TASK, {"participant": "north", "step": "forget"}),
    ):
        await api.hub.bus.publish(subject.of(project=project, run=run, **more), b"{}")


async def left(api: Api, subject: Subject, run: str, *, project: str = "alpha") -> int:
    assert subject.stream is not None
    return len(await api.hub.bus.snapshot(subject.stream, subject.wildcard(project=project, run=run)))


async def test_nothing_of_a_removed_run_is_left_but_what_it_has_published(api: Api, owner: str) -> None:
    gone, kept = await submitted(api, owner), await submitted(api, owner)
    published = f"models/alpha/{gone}/model-2"
    for key in (published, f"models/alpha/{gone}/model-1", f"updates/alpha/{gone}/x", f"models/alpha/{kept}/model-1"):
        api.hub.store.put(key, b"bytes")
    lineage = Lineage(
        run=gone, round=2, workflow="federated_averaging", participants=("north",), examples=9, strategy={}, seed=1
    )
    version = ModelVersion(
        project="alpha", version=1, digest="a" * 64, size=5, key=published, architecture={}, lineage=lineage,
        created_at=START, public_key=b"",
    )  # fmt: skip
    await api.hub.bus.publish(MODELS.of(project="alpha", version="1"), version.encode())
    for run in (gone, kept):
        await written(api, run)
        await ended(api, run, model_version=1)
    told = await api.ok("DELETE", f"{RUNS}/{gone}", owner)
    assert told["run"] == gone
    for path in (f"{RUNS}/{gone}", f"{RUNS}/{gone}/metrics", f"{RUNS}/{gone}/events"):
        status, code, _ = await api.refused("GET", path, owner)
        assert (status, code) == (404, "not-found")
    assert [each["run"] for each in (await api.ok("GET", RUNS, owner))["runs"]] == [kept]
    for subject in (JOURNAL, EVENT, SENT_BYTES, TASK):
        assert await left(api, subject, gone) == 0
        assert await left(api, subject, kept) >= 1
    assert sorted([*api.hub.store.keys("models/"), *api.hub.store.keys("updates/")]) == sorted(
        [published, f"models/alpha/{kept}/model-1"]
    )
    entries = (await api.ok("GET", "/v1/projects/alpha/audit", owner))["events"]
    (entry,) = [each for each in entries if each["action"] == "run.remove"]
    assert entry["subject"] == f"run:{gone}"
    assert entry["detail"]["version"] == 1
    # Asked again, it says that there is none.
    assert (await api.refused("DELETE", f"{RUNS}/{gone}", owner))[:2] == (404, "not-found")


@pytest.mark.parametrize("state", ["waiting", "running", "paused"])
async def test_a_run_that_has_not_ended_is_not_removed(api: Api, owner: str, state: str) -> None:
    run = await submitted(api, owner)
    await ended(api, run, state=state)
    await written(api, run)
    status, code, message = await api.refused("DELETE", f"{RUNS}/{run}", owner)
    assert (status, code) == (409, "conflict")
    assert message == f"run {run} is {state}: only a run that has ended is removed"
    assert await left(api, JOURNAL, run) == 1


async def test_nobody_removes_runs_of_projects_that_are_not_theirs(api: Api, owner: str) -> None:
    await api.ok("POST", "/v1/projects", owner, {"name": "beta", "schema": SCHEMA})
    run = await submitted(api, owner)
    await ended(api, run)
    other, site = await api.make_key("owner", "beta"), await api.make_key("site", "alpha", participant="north")
    reader = await api.make_key("owner", "alpha", read_only=True)
    for key in (other, site, reader):
        assert (await api.refused("DELETE", f"{RUNS}/{run}", key))[0] == 403
    assert (await api.refused("DELETE", f"/v1/projects/beta/runs/{run}", other))[0] == 404
    assert (await api.ok("GET", f"{RUNS}/{run}", owner))["run"] == run


async def test_sites_that_were_away_still_hear_of_the_end_of_a_study_that_was_removed(api: Api, owner: str) -> None:
    schema = {"kind": "genotypes", "phenotypes": ["TRAIT"], "covariates": []}
    await api.ok("POST", "/v1/projects", owner, {"name": "gwas", "schema": schema})
    run = await submitted(api, owner, project="gwas", job=STUDY)
    api.hub.store.put(f"models/gwas/{run}/outputs/results", b"bytes")
    await written(api, run, project="gwas")
    await ended(api, run, project="gwas")
    await api.ok("DELETE", f"/v1/projects/gwas/runs/{run}", owner)
    assert await left(api, TASK, run, project="gwas") == 1
    assert await left(api, EVENT, run, project="gwas") == 0
    assert list(api.hub.store.keys("models/gwas/")) == []


async def test_what_a_project_is_allowed_is_free_again(api: Api, owner: str) -> None:
    first = await submitted(api, owner)
    size = size_of((await api.hub.buckets.runs.require(project="alpha", run=first)).value)
    api.hub.quotas.quotas = Quotas(records=int(1.5 * size), journals=1000)
    await ended(api, first, journal=1000)
    status, code, message = await api.refused("POST", RUNS, owner, {"job": JOB})
    assert (status, code) == (403, "quota")
    assert "quota records of project alpha" in message
    await api.ok("DELETE", f"{RUNS}/{first}", owner)
    await submitted(api, owner)


async def test_a_coordinator_that_wakes_up_after_the_removal_writes_nothing(api: Api, owner: str) -> None:
    run = await submitted(api, owner)
    journal = await Journal.open(api.hub.bus, "alpha", run, holder="asleep")
    await journal.append("opened", "r1-train", {})
    await ended(api, run)
    await api.ok("DELETE", f"{RUNS}/{run}", owner)
    with pytest.raises(Fenced):
        await journal.append("closed", "r1-train", {})
    assert await left(api, JOURNAL, run) == 0


def test_a_coordinator_counts_no_journal_of_a_run_that_was_removed() -> None:
    room = JournalRoom(1000)
    room.note("alpha", "first", 900)
    with pytest.raises(RunFailure, match="remove runs that have ended") as refused:
        room.take("alpha", "second", 200)
    assert refused.value.code.code == "quota"
    room.forget("alpha", "first")
    room.forget("alpha", "first")
    room.take("alpha", "second", 200)
    with pytest.raises(RunFailure):
        room.take("alpha", "second", 1001)
