"""The blocking client and the one for asyncio: the same names, the same requests, the same answers."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hanse
from hanse import aio
from hanse import hub as sync
from hanse_fabric.errors import ErrorCode, HanseError
from unit.hanse.scripted_hub import ScriptedHub, error, frame, project_view, run_view, site_view, stream
from unit.hanse.signed_model import signed_model

PROJECT = "/v1/projects/triage"
JOB = {"rounds": 3, "model": {"name": "mlp"}, "participants": {"minimum": 2}}


def script(hub: ScriptedHub) -> None:
    model = signed_model().view
    site = site_view(online=True)
    hub.answer("GET", "/v1/hub", (200, {"name": "h", "version": "0.1.0"}))
    hub.answer("GET", "/v1/status", (200, {"projects": 1}))
    hub.answer("GET", "/v1/projects", (200, {"projects": [project_view()]}))
    hub.answer("POST", "/v1/projects", (201, project_view()))
    hub.answer("GET", PROJECT, (200, project_view()))
    invitation = {"id": "i", "token": "join_x", "participant": "north", "expires_at": "2026-01-01T00:00:00Z"}
    hub.answer("POST", f"{PROJECT}/invitations", (201, invitation))
    hub.answer("GET", f"{PROJECT}/participants", (200, {"participants": [site]}))
    hub.answer("POST", f"{PROJECT}/participants/north/revoke", (200, site_view(revoked=True)))
    hub.answer("POST", f"{PROJECT}/runs", (201, run_view("waiting")))
    hub.answer("POST", f"{PROJECT}/check", (200, {"valid": True, "warnings": []}))
    hub.answer("GET", f"{PROJECT}/runs", (200, {"runs": [run_view()]}))
    hub.answer("GET", f"{PROJECT}/runs/run000000001", (200, run_view("completed", model_version=1, best_version=1)))
    for action, state in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        hub.answer("POST", f"{PROJECT}/runs/run000000001/{action}", (200, run_view(state)))
    hub.answer(
        "GET", f"{PROJECT}/runs/run000000001/events", stream(frame(1, "note"), frame(2, "state", state="completed"))
    )
    rounds = [{"round": 1, "metrics": {"accuracy": 0.5}}, {"round": 2, "metrics": {"accuracy": 0.75}}]
    hub.answer("GET", f"{PROJECT}/runs/run000000001/metrics", (200, {"rounds": rounds}))
    hub.answer("GET", f"{PROJECT}/models", (200, {"models": [model]}))
    hub.answer("GET", f"{PROJECT}/models/1", (200, model))
    hub.answer("POST", f"{PROJECT}/models/1/promote", (200, {**model, "stage": "staging"}))
    hub.answer("POST", f"{PROJECT}/models/rollback", (200, model))
    hub.answer("GET", f"{PROJECT}/audit", (200, {"events": [{"action": "run.submit"}]}))


def use_sync(url: str) -> list[Any]:
    with hanse.connect(url) as hub:
        project = hub.projects.create("triage", schema={"kind": "open"}, description="d")
        found = [hub.url, hub.info(), hub.status(), [view.name for view in hub.projects.list()]]
        found += [hub.projects.get("triage").name, project.invite("north", expires_in=60), project.participants()]
        project.revoke("north")
        run = project.run(JOB)
        found += [
            run.state,
            project.check(JOB),
            [one.id for one in project.runs()],
            project.get_run("run000000001").state,
        ]
        found += [[event.sequence for event in run.watch(after=0)], run.state, run.wait().state]
        found += [run.pause().state, run.resume().state, run.cancel().state]
        found += [run.metrics.to_dict(), repr(run)]
        model = run.model
        found += [model.version, model.digest, run.best.version]
        found += [[one.version for one in project.models()], project.model(1).version]
        model.promote("staging", reason="good")
        found += [model.view.stage, project.rollback(reason="bad").version, project.audit()]
        return [*found, repr(hub), repr(project)]


async def use_async(url: str) -> list[Any]:
    async with hanse.aconnect(url) as hub:
        project = await hub.projects.create("triage", schema={"kind": "open"}, description="d")
        found = [hub.url, await hub.info(), await hub.status(), [view.name for view in await hub.projects.list()]]
        found += [(await hub.projects.get("triage")).name, await project.invite("north", expires_in=60)]
        found.append(await project.participants())
        await project.revoke("north")
        run = await project.run(JOB)
        found += [run.state, await project.check(JOB), [one.id for one in await project.runs()]]
        found.append((await project.get_run("run000000001")).state)
        found += [[event.sequence async for event in run.watch(after=0)], run.state, (await run.wait()).state]
        found += [(await run.pause()).state, (await run.resume()).state, (await run.cancel()).state]
        found += [(await run.metrics()).to_dict(), repr(run)]
        model = await run.model()
        found += [model.version, model.digest, (await run.best()).version]
        found.append([one.version for one in await project.models()])
        found.append((await project.model(1)).version)
        await model.promote("staging", reason="good")
        found += [model.view.stage, (await project.rollback(reason="bad")).version, await project.audit()]
        return [*found, repr(hub), repr(project)]


def test_both_clients_send_the_same_requests_and_read_the_same_answers(hub: ScriptedHub) -> None:
    script(hub)
    blocking = use_sync(hub.url)
    asked, hub.seen = [(one.method, one.path, one.body) for one in hub.seen], []
    assert asyncio.run(use_async(hub.url)) == blocking
    assert [(one.method, one.path, one.body) for one in hub.seen] == asked
    assert len({path for _, path, _ in asked}) > 15


@pytest.mark.parametrize("name", ["Hub", "Project", "Run", "Model"])
def test_both_clients_offer_the_same_methods(name: str) -> None:
    blocking, other = getattr(sync, name), getattr(aio, f"Async{name}")
    for method, value in inspect.getmembers(blocking):
        if method.startswith("_") or method == "view":  # what instances of either have
            continue
        assert hasattr(other, method), f"{other.__name__}.{method} is missing"
        if inspect.isfunction(value):
            assert inspect.signature(value).parameters == inspect.signature(getattr(other, method)).parameters


def blocking_model(url: str) -> None:
    _ = hanse.connect(url).projects["triage"].get_run("run000000001").model


def awaited_model(url: str) -> None:
    async def ask() -> None:
        async with hanse.aconnect(url) as client:
            await (await (await client.projects.get("triage")).get_run("run000000001")).model()

    asyncio.run(ask())


@pytest.mark.parametrize("ask", [blocking_model, awaited_model])
def test_a_run_without_a_model_says_so(hub: ScriptedHub, ask: Callable[[str], None]) -> None:
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("GET", f"{PROJECT}/runs/run000000001", (200, run_view("running")))
    with pytest.raises(HanseError, match="no model") as caught:
        ask(hub.url)
    assert caught.value.code is ErrorCode.NOT_FOUND


async def test_the_blocking_client_works_where_a_loop_runs_already(hub: ScriptedHub) -> None:
    hub.answer("GET", "/v1/hub", (200, {"name": "h"}))
    assert hanse.connect(hub.url).info() == {"name": "h"}


def test_a_program_may_end_in_the_middle_of_a_watch_and_a_fork_may_ask_anew(hub: ScriptedHub) -> None:
    hub.answer("GET", "/v1/hub", (200, {"name": "h"}))
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("GET", f"{PROJECT}/runs/run000000001", (200, run_view("running")))
    hub.answer("GET", f"{PROJECT}/runs/run000000001/events", stream(frame(1, "note"), frame(2, "note")))
    program = f"""
import os, hanse
watched = hanse.connect({hub.url!r}).projects["triage"].get_run("run000000001").watch()
print(next(watched).sequence, flush=True)
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
else:
    os._exit(hanse.connect({hub.url!r}).info() != {{"name": "h"}})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


async def test_joining_works_where_a_loop_runs_already(hub: ScriptedHub, tmp_path: Path) -> None:
    hub.answer("POST", "/v1/join/challenge", (200, {"challenge": "c" * 32}))
    hub.answer("POST", "/v1/join", (410, error("gone", "token: used already")))
    with pytest.raises(HanseError, match="used already") as caught:
        hanse.join(hub.url, f"join_{'a' * 12}_{'b' * 43}", home=tmp_path / "site")
    assert caught.value.code is ErrorCode.GONE


def test_joining_without_token_and_identity_says_whom_to_ask(tmp_path: Path) -> None:
    with pytest.raises(HanseError, match="token: none was given") as caught:
        hanse.join("http://127.0.0.1:1", home=tmp_path / "site")
    assert "owner" in caught.value.hint
