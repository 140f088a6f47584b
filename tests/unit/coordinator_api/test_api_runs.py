"""Runs over HTTP: what is wanted is written, refused where it makes no sense, and audited; watching and resuming."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from hanse_coordinator.api import events as events_module
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT

JOB = {"rounds": 2, "model": {"name": "mlp"}, "participants": {"minimum": 2}}
RUNS = "/v1/projects/alpha/runs"


@pytest.fixture
async def run(api: Any, owner: str) -> str:
    return str((await api.ok("POST", RUNS, owner, {"job": JOB}))["run"])


async def _tell(api: Any, run: str, kind: str, round_number: int = 0, **data: Any) -> int:
    event = RunEvent(project="alpha", run=run, kind=kind, at=api.clock.now(), round=round_number, data=data)
    return int(await api.hub.bus.publish(EVENT.of(project="alpha", run=run), event.encode()))


async def _set_state(api: Any, run: str, state: str) -> None:
    await api.hub.buckets.runs.change(
        lambda record: record.model_copy(update={"state": state}), project="alpha", run=run
    )


class Watcher:
    """Reads server-sent events as a browser does."""

    def __init__(self, response: Any) -> None:
        self._response = response

    async def next(self) -> dict[str, Any] | str | None:
        """The next event with its id, a comment's text, or None at the end."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(60):
            while line := (await self._response.content.readline()).decode():
                if line.startswith(":"):
                    fields["comment"] = line[1:].strip()
                elif line != "\n":
                    name, _, value = line.rstrip("\n").partition(": ")
                    fields[name] = value
                elif "comment" in fields:
                    return fields["comment"]
                elif fields:
                    return {"id": int(fields["id"]), **json.loads(fields["data"])}
        return None

    async def rest(self) -> list[str]:
        kinds = []
        while (event := await self.next()) is not None:
            kinds.append(event["kind"] if isinstance(event, dict) else event)
        return kinds


def _watch(api: Any, key: str, run: str, after: str | None = None) -> Any:
    headers = {"Authorization": f"Bearer {key}"} | ({"Last-Event-ID": after} if after is not None else {})
    return api.client.get(f"{RUNS}/{run}/events", headers=headers)


async def test_a_run_is_paused_resumed_and_cancelled_and_a_cancelled_one_does_not_resume(
    api: Any, owner: str, run: str
) -> None:
    for action, wanted in (("pause", "pause"), ("resume", "run"), ("cancel", "cancel"), ("cancel", "cancel")):
        answer = await api.ok("POST", f"{RUNS}/{run}/{action}", owner)
        assert answer["wanted"] == wanted
    _, code, message = await api.refused("POST", f"{RUNS}/{run}/resume", owner)
    assert code == "conflict"
    assert "being cancelled" in message
    audit = (await api.ok("GET", "/v1/projects/alpha/audit", owner))["events"]
    assert [event["action"] for event in audit][1:] == ["run.submit", "run.pause", "run.resume", "run.cancel"]


@pytest.mark.parametrize("action", ["pause", "resume", "cancel"])
async def test_a_run_that_has_ended_is_gone(api: Any, owner: str, run: str, action: str) -> None:
    await _set_state(api, run, "completed")
    status, code, message = await api.refused("POST", f"{RUNS}/{run}/{action}", owner)
    assert (status, code) == (410, "gone")
    assert "completed already" in message


async def test_runs_are_listed_newest_first_without_their_jobs(api: Any, owner: str, run: str) -> None:
    api.clock.advance(1)
    called = {"name": "The second night", "tags": ["night", "v1.2"]}
    later = (await api.ok("POST", RUNS, owner, {"job": JOB | called}))["run"]
    listed = (await api.ok("GET", RUNS, owner))["runs"]
    assert [item["run"] for item in listed] == [later, run]
    assert listed[0].items() >= called.items()
    assert not {"name", "tags"} & listed[1].keys()
    for wrong in ({"tags": ["two words"]}, {"tags": ["-x"]}, {"name": "n" * 101}):
        assert (await api.refused("POST", RUNS, owner, {"job": JOB | wrong}))[:2] == (400, "invalid-input")
    assert "job" not in listed[0]
    assert (await api.ok("GET", f"{RUNS}/{run}", owner))["job"]["rounds"] == 2


async def test_metrics_are_those_of_the_finished_rounds_in_order(api: Any, owner: str, run: str) -> None:
    await _tell(api, run, "round-finished", 2, metrics={"accuracy": 0.7}, sites={"north": {"accuracy": 0.6}})
    await _tell(api, run, "round-finished", 1, metrics={"accuracy": 0.5}, bytes={"down": 8, "up": 4})
    await _tell(api, run, "note", 2, text="x")
    rounds = (await api.ok("GET", f"{RUNS}/{run}/metrics", owner))["rounds"]
    assert [(item["round"], item["metrics"]) for item in rounds] == [(1, {"accuracy": 0.5}), (2, {"accuracy": 0.7})]
    assert [item["bytes"] for item in rounds] == [{"down": 8, "up": 4}, {}]
    assert rounds[1]["sites"] == {"north": {"accuracy": 0.6}}


async def test_watching_ends_after_the_final_state(api: Any, owner: str, run: str) -> None:
    async with _watch(api, owner, run) as response:
        assert response.content_type == "text/event-stream"
        watcher = Watcher(response)
        first = await watcher.next()
        assert isinstance(first, dict)
        assert (first["kind"], first["data"]) == ("state", {"state": "waiting"})
        await _tell(api, run, "round-started", 1)
        await _tell(api, run, "state", state="completed")
        await _tell(api, run, "note", text="after the end")
        assert await watcher.rest() == ["round-started", "state"]


async def test_what_happens_at_once_is_told_together_in_its_order(
    api: Any, owner: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = web.StreamResponse.write

    async def counted(response: web.StreamResponse, data: bytes) -> None:
        written.append(data.count(b"id: "))
        await write(response, data)

    monkeypatch.setattr(web.StreamResponse, "write", counted)
    async with _watch(api, owner, run) as response:
        watcher = Watcher(response)
        await watcher.next()
        kinds = [f"kind-{number}" for number in range(300)]
        for kind in kinds:
            await _tell(api, run, kind)
        await _tell(api, run, "state", state="completed")
        assert await watcher.rest() == [*kinds, "state"]
    assert sum(written) == len(kinds) + 2
    assert len(written) < len(kinds) / 4


async def test_watching_resumes_after_the_last_event_that_was_seen(api: Any, owner: str, run: str) -> None:
    seen = await _tell(api, run, "round-started", 1)
    await _tell(api, run, "round-finished", 1)
    await _tell(api, run, "state", state="completed")
    async with _watch(api, owner, run, after=str(seen)) as response:
        assert await Watcher(response).rest() == ["round-finished", "state"]
    await _set_state(api, run, "completed")
    async with _watch(api, owner, run, after=str(seen)) as response:
        assert await Watcher(response).rest() == ["round-finished", "state"]


async def test_watching_a_run_whose_last_event_was_lost_ends_with_its_record(
    api: Any, owner: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(events_module, "_LOOK_S", 0.01)
    async with _watch(api, owner, run) as response:
        watcher = Watcher(response)
        await watcher.next()
        assert await watcher.next() == "still here"
        await _set_state(api, run, "failed")
        assert set(await watcher.rest()) <= {"still here"}


async def test_a_watcher_that_leaves_releases_its_follow(
    api: Any, owner: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_LOOK_S", 0.01)
    before = len(api.hub.bus._followers)
    async with _watch(api, owner, run) as response:
        await Watcher(response).next()
        assert len(api.hub.bus._followers) == before + 1
        response.close()
    async with asyncio.timeout(60):
        while len(api.hub.bus._followers) > before:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


async def test_stopping_the_coordinator_ends_all_watching(
    api: Any, owner: str, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_LOOK_S", 0.01)
    async with _watch(api, owner, run) as response:
        watcher = Watcher(response)
        await watcher.next()
        api.hub.stopping.set()
        assert await watcher.rest() == []


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 30])
async def test_an_invalid_last_event_id_is_refused(api: Any, owner: str, run: str, after: str) -> None:
    async with _watch(api, owner, run, after=after) as response:
        error = (await response.json())["error"]
    assert (response.status, error["code"]) == (400, "invalid-input")
    assert error["message"].startswith("Last-Event-ID")


async def test_a_check_and_the_run_say_which_unit_a_private_job_protects(api: Any, owner: str) -> None:
    schema = {"kind": "tabular", "features": [{"name": "age"}], "target": "ill", "classes": 2}
    job = JOB | {"privacy": {"placement": "local", "mechanism": "dp_sgd", "epsilon": 2.0}}
    for name, unit, said in (
        ("rows", {}, "any one example"),
        ("people", {"unit": "patient"}, "any one patient, with all rows"),
    ):
        await api.ok("POST", "/v1/projects", owner, {"name": name, "schema": schema | unit})
        checked = await api.ok("POST", f"/v1/projects/{name}/check", owner, {"job": job})
        made = await api.ok("POST", f"/v1/projects/{name}/runs", owner, {"job": job})
        told = await api.ok("GET", f"/v1/projects/{name}/runs/{made['run']}", owner)
        assert said in checked["privacy"]
        assert checked["privacy"] == made["privacy"] == told["privacy"]
