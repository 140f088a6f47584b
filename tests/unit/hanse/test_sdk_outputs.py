"""What a study has made, by the SDK: listed, downloaded, and never believed before its digest is checked."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from rich.console import Console

import hanse
from hanse.cli.progress import RunDisplay
from hanse.hub import Run
from hanse.views import Event, describe
from hanse_fabric.errors import ErrorCode, HanseError
from unit.hanse.scripted_hub import ScriptedHub, output_link, project_view, run_view

RUN = "/v1/projects/triage/runs/run000000001"
CONTENT = b"results" * 100
OUTPUT = {"name": "results", "digest": hashlib.sha256(CONTENT).hexdigest(), "leaves": [], "size": len(CONTENT)}


def served(hub: ScriptedHub, content: bytes = CONTENT) -> None:
    async def file(request: web.Request) -> web.Response:
        return web.Response(body=content)

    hub.answer("GET", "/v1/projects/triage", (200, project_view()))
    hub.answer("GET", RUN, (200, run_view("completed")))
    hub.answer("GET", f"{RUN}/outputs", (200, {"outputs": [OUTPUT]}))
    hub.answer("GET", f"{RUN}/outputs/results", (200, output_link(f"{hub.url}/bucket/x", OUTPUT)))
    hub.answer("GET", "/bucket/x", file)


def run_of(hub: ScriptedHub) -> Run:
    return hanse.connect(hub.url, patience=0.3).projects.get("triage").get_run("run000000001")


def test_outputs_are_listed_and_downloaded(hub: ScriptedHub, tmp_path: Path) -> None:
    served(hub)
    run = run_of(hub)
    assert [(output.name, output.size) for output in run.outputs] == [("results", len(CONTENT))]
    path = run.download("results", tmp_path / "new" / "results")
    assert path.read_bytes() == CONTENT
    assert [found.name for found in path.parent.iterdir()] == ["results"]


async def test_the_asynchronous_client_does_the_same(hub: ScriptedHub, tmp_path: Path) -> None:
    served(hub)
    async with hanse.aconnect(hub.url) as client:
        run = await (await client.projects.get("triage")).get_run("run000000001")
        assert [output.name for output in await run.outputs()] == ["results"]
        assert (await run.download("results", tmp_path / "results")).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"Results" + CONTENT[7:], ErrorCode.TAMPERED),
        (CONTENT[:-1], ErrorCode.TAMPERED),
        (CONTENT + b"x", ErrorCode.TOO_LARGE),
    ],
    ids=["other-bytes", "too-few", "too-many"],
)
def test_an_output_that_is_not_what_the_hub_recorded_leaves_no_file(
    hub: ScriptedHub, tmp_path: Path, content: bytes, code: ErrorCode
) -> None:
    served(hub, content)
    path = tmp_path / "out" / "results"
    path.parent.mkdir()
    path.write_bytes(b"old")
    with pytest.raises(HanseError) as caught:
        run_of(hub).download("results", path)
    assert caught.value.code is code
    assert [found.read_bytes() for found in path.parent.iterdir()] == [b"old"]


def test_the_progress_of_a_study_is_told_in_words() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    done = Event(kind="progress", at=at, data={"what": "chunks", "done": 3, "of": 36})
    assert describe(done) == "chunks: 3 of 36 done"
    console = Console(width=60, record=True)
    display = RunDisplay(None, console=console)
    display.show(Event(kind="state", at=at, data={"state": "running"}))
    display.show(done)
    console.print(display.picture())
    assert "running, chunks: 3 of 36 done" in console.export_text()
