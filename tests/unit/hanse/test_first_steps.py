"""What somebody meets who uses Hanse for the first time: each complaint of one, by the words that are said now."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

import hanse
from hanse.embedded.state import StateFolder
from hanse.views import Event
from hanse_fabric.durable import write_durably
from hanse_fabric.errors import ErrorCode, HanseError
from unit.hanse.scripted_hub import JOB, ScriptedHub, frame, project_view, run_view, site_view, stream
from unit.hanse.typed_command import Run

NEWER = {"participant": "new", "findings": [{"x": 1}]}
PROJECT = "/v1/projects/triage"
RUN = f"{PROJECT}/runs/run000000001"
SETTINGS = ("HANSE_URL", "HANSE_API_KEY", "HANSE_CA")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets just these of Hanse's settings."""

    def only(**given: str) -> None:
        for name in SETTINGS:
            monkeypatch.delenv(name, raising=False)
        for name, value in given.items():
            monkeypatch.setenv(name, value)

    only()
    return only


def test_connecting_without_arguments_and_environment_says_what_to_give(alone: Callable[..., None]) -> None:
    for connect in (hanse.connect, hanse.aconnect):
        with pytest.raises(HanseError) as caught:
            connect()
        assert caught.value.code is ErrorCode.INVALID_INPUT
        assert caught.value.message == (
            "url: no hub is named, HANSE_URL is not set, and no hub was ever started in this folder"
        )
        assert "HANSE_API_KEY" in caught.value.hint


def test_connecting_without_arguments_takes_address_and_key_of_the_environment(
    alone: Callable[..., None], hub: ScriptedHub
) -> None:
    hub.answer("GET", "/v1/hub", (200, {"name": "hub"}))
    alone(HANSE_URL=hub.url, HANSE_API_KEY="hanse_of_environment")
    with hanse.connect() as connection:
        connection.info()
    with hanse.connect(api_key="hanse_given") as connection:
        connection.info()
    with hanse.connect(hub.url) as connection:
        connection.info()
    keys = [one.headers.get("Authorization") for one in hub.seen]
    assert keys == ["Bearer hanse_of_environment", "Bearer hanse_given", None], "a key goes to its own hub alone"


def test_connecting_without_arguments_finds_the_hub_of_this_folder_as_commands_do(
    alone: Callable[..., None], hub: ScriptedHub
) -> None:
    hub.answer("GET", "/v1/hub", (200, {"name": "hub"}))
    state = StateFolder(Path(".hanse/hub"))
    with state.locked():
        state.ports(int(hub.url.rpartition(":")[2]))
        write_durably(state.key_file, "hanse_of_folder\n")
        with hanse.connect() as connection:
            connection.info()
        with hanse.connect(api_key="hanse_given") as connection:
            connection.info()
    with pytest.raises(HanseError, match="no hub runs in this folder") as caught:
        hanse.connect()
    assert "hanse up" in caught.value.hint
    alone(HANSE_URL=hub.url)
    with hanse.connect() as connection:
        connection.info()
    keys = [one.headers.get("Authorization") for one in hub.seen]
    assert keys == ["Bearer hanse_of_folder", "Bearer hanse_given", None], "another address, another hub"


def test_errors_are_there_by_the_package_s_own_names() -> None:
    assert hanse.HanseError is HanseError
    assert hanse.ErrorCode is ErrorCode


@pytest.mark.parametrize("words", ["two\nlines", "a\ttab  and\r\nmore", "x" * 3000])
def test_an_event_prints_as_one_line(words: str) -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for kind in ("state", "refused", "task-answered", "note", "something-new"):
        data = {"participant": "north", "outcome": "failed", "state": "failed", "reason": words}
        said = str(Event(kind=kind, at=at, round=1, data=data))
        assert len(said.splitlines()) == 1
        assert said.startswith("12:00:00 ")


def test_participants_print_as_a_table_and_are_a_list(hub: ScriptedHub) -> None:
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("GET", f"{PROJECT}/participants", (200, {"participants": [site_view(), site_view()]}))
    found = hanse.connect(hub.url).projects.get("triage").participants()
    assert isinstance(found, list)
    head, *rows = repr(found).splitlines()
    assert head.split()[:2] == ["participant", "state"]
    assert [row.split()[0] for row in rows] == [found[0].participant] * 2
    assert "<table>" in found._repr_html_()
    hub.answer("GET", f"{PROJECT}/participants", (200, {"participants": []}))
    assert repr(hanse.connect(hub.url).projects.get("triage").participants()) == "No participants yet."


def test_a_check_prints_as_a_table_and_is_a_dictionary(hub: ScriptedHub) -> None:
    answer = {
        "valid": True, "warnings": ["2 are needed"], "privacy": "epsilon\n  1.0",
        "utility": [{"component": "model", "value": "mlp", "ok": False, "reason": "buffers"}],
        "sites": [{"participant": "north", "reason": "it is away", "findings": []}, NEWER],
    }  # fmt: skip
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("POST", f"{PROJECT}/check", (200, answer))
    found = hanse.connect(hub.url).projects.get("triage").check(JOB)
    assert found == answer
    assert json.loads(json.dumps(found)) == answer
    lines = repr(found).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["hub", "valid"], ["hub", "warning"], ["hub", "privacy"], ["model", "not"], ["north", "data"], ["new", "what"],
    ]  # fmt: skip
    assert "epsilon 1.0" in lines[3]
    assert lines[5].endswith("does not say: it is away")
    assert "<table>" in found._repr_html_()


def hears_ctrl_c() -> None:
    """In a child: as in a terminal, also where a shell started the tests in its background, with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_watching_a_submission_names_the_run_and_ctrl_c_says_that_it_goes_on(hub: ScriptedHub, tmp_path: Path) -> None:
    watched = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b": begun\n\n")
        await watched.wait()
        return answer

    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("POST", f"{PROJECT}/check", (200, {"valid": True}))
    hub.answer("POST", f"{PROJECT}/runs", (201, run_view()))
    hub.answer("GET", RUN, (200, run_view()))
    hub.answer("GET", f"{RUN}/events", endless)
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    words = (sys.executable, "-m", "hanse", "run", "submit", "triage", "job.yaml", "--watch")
    environment = os.environ | {"HANSE_URL": hub.url, "HANSE_API_KEY": "hanse_abc_secret"}
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=hears_ctrl_c,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "Run run000000001 is submitted.\n"
        while not hub.calls("GET", f"{RUN}/events"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.splitlines()[-2:] == [
        "Run run000000001 goes on. To see it again: hanse run watch triage run000000001",
        "To end it for good: hanse run cancel triage run000000001",
    ]
    assert "Traceback" not in said
    assert not hub.calls("POST", f"{RUN}/cancel")
    hub._loop.call_soon_threadsafe(watched.set)


def test_watching_to_the_end_says_nothing_of_ctrl_c(
    run: Run, alone: Callable[..., None], hub: ScriptedHub, tmp_path: Path
) -> None:
    hub.answer("GET", PROJECT, (200, project_view()))
    hub.answer("POST", f"{PROJECT}/runs", (201, run_view()))
    hub.answer("GET", RUN, (200, run_view("completed")))
    hub.answer("GET", f"{RUN}/events", stream(frame(1, "state", state="completed")))
    (tmp_path / "job.yaml").write_text(json.dumps(JOB))
    alone(HANSE_URL=hub.url, HANSE_API_KEY="hanse_abc_secret")
    done = run("run", "submit", "triage", tmp_path / "job.yaml", "--watch", "--no-ask")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith("Run run000000001 is submitted.\n")
