"""The SDK against a real HTTP server: errors, patience, and streams of events."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest
from aiohttp import web

import hanse
from hanse.hub import Hub, Run
from hanse.views import Event
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.telemetry import span, trace_ids
from hanse_operations.servers.program import free_ports
from unit.hanse.scripted_hub import ScriptedHub, cut, error, frame, project_view, run_view, stream

EVENTS = "/v1/projects/triage/runs/run000000001/events"
RUN = "/v1/projects/triage/runs/run000000001"


def connect(hub: ScriptedHub, patience: float = 10.0) -> Hub:
    return hanse.connect(hub.url, api_key="hanse_abc_secret", patience=patience)


def running(hub: ScriptedHub, patience: float = 10.0) -> Run:
    hub.answer("GET", "/v1/projects/triage", (200, project_view()))
    hub.answer("GET", RUN, (200, run_view()))
    return connect(hub, patience).projects.get("triage").get_run("run000000001")


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.code)
def test_every_error_of_the_catalogue_is_read_back_with_message_and_hint(hub: ScriptedHub, code: ErrorCode) -> None:
    hub.answer("POST", "/v1/projects", (code.value.http_status, error(code.code)))
    with connect(hub) as client, pytest.raises(HanseError) as caught:
        client.projects.create("triage", schema={"kind": "open"})
    assert (caught.value.code, caught.value.message, caught.value.hint) == (code, "it is so", "do this")


def test_an_error_of_a_newer_hub_is_read_as_internal(hub: ScriptedHub) -> None:
    hub.answer("GET", "/v1/hub", (418, error("teapot")))
    with connect(hub) as client, pytest.raises(HanseError, match="it is so") as caught:
        client.info()
    assert caught.value.code is ErrorCode.INTERNAL


def test_a_call_looks_for_no_module_that_is_not_there(hub: ScriptedHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes a millisecond each time, and httpcore would do it several times a call."""
    hub.answer("GET", "/v1/projects", (200, {"projects": []}))
    with connect(hub) as client:
        client.projects.list()
        missed: list[str] = []

        class Last:
            @staticmethod
            def find_spec(name: str, *_: object) -> None:
                missed.append(name)

        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Last])
        client.projects.list()
        assert missed == []


@pytest.mark.parametrize("status", [200, 403, 502])
def test_an_answer_from_something_else_than_a_hub_is_named_with_its_address(hub: ScriptedHub, status: int) -> None:
    async def login_page(request: web.Request) -> web.Response:
        return web.Response(text="<html>log in</html>", status=status)

    hub.answer("GET", "/v1/hub", login_page)
    with connect(hub, patience=0) as client, pytest.raises(HanseError, match="not that of a Hanse hub") as caught:
        client.info()
    assert hub.url in caught.value.message
    assert "address" in caught.value.hint


@pytest.mark.parametrize("body", [[], {"projects": 3}, {"projects": [{"nam": "x"}]}])
def test_an_answer_of_another_form_is_an_error_of_the_catalogue(hub: ScriptedHub, body: object) -> None:
    hub.answer("GET", "/v1/projects", (200, body))
    with connect(hub) as client, pytest.raises(HanseError, match="not that of a Hanse hub"):
        client.projects.list()


def test_fields_of_a_newer_hub_are_passed_over(hub: ScriptedHub) -> None:
    newer = {**run_view(), "priority": "high", "job": {**run_view()["job"], "workflow": "cyclic_2031"}}
    hub.answer("GET", "/v1/projects/triage", (200, {**project_view(), "schema": {"kind": "open", "colour": 1}}))
    hub.answer("GET", RUN, (200, newer))
    with connect(hub) as client:
        view = client.projects.get("triage").get_run("run000000001").view
    assert (view.state, view.job["workflow"]) == ("running", "cyclic_2031")


def test_a_value_that_only_a_newer_hub_knows_is_refused_by_its_field(hub: ScriptedHub) -> None:
    hub.answer("GET", "/v1/projects", (200, {"projects": [{**project_view(), "schema": {"kind": "hologram"}}]}))
    with connect(hub) as client, pytest.raises(HanseError, match=r"schema: .*hologram") as caught:
        client.projects.list()
    assert "upgrade" in caught.value.hint


def test_an_unreachable_hub_is_unavailable_with_a_hint_and_its_exit_status() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    with hanse.connect(url, patience=0.3) as client, pytest.raises(HanseError, match=url) as caught:
        client.info()
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert caught.value.exit_status == 10
    assert "hanse doctor" in caught.value.hint


@pytest.mark.parametrize("url", ["hub.example.org", "", "ftp://hub", "http://", "http://[::1", "http://x:port"])
def test_an_invalid_hub_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(HanseError, match="url") as caught:
        hanse.connect(url)
    assert caught.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("key", ["schlüssel", "two\nlines"])
def test_an_invalid_api_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(HanseError, match="api_key") as caught:
        hanse.connect("http://localhost", api_key=key)
    assert key not in str(caught.value)


def test_an_invalid_certificate_authority_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("absent.pem", "empty.pem"):
        with pytest.raises(HanseError, match=name):
            hanse.connect("https://localhost", ca=tmp_path / name)


def test_the_key_is_sent_as_a_bearer_and_names_do_not_lead_elsewhere(hub: ScriptedHub) -> None:
    with connect(hub) as client, pytest.raises(HanseError):
        client.projects.get("a/../b?c")
    assert hub.seen[0].headers["Authorization"] == "Bearer hanse_abc_secret"
    assert hub.seen[0].path == "/v1/projects/a%2F..%2Fb%3Fc"


def test_a_blocking_call_belongs_to_the_trace_of_its_caller(hub: ScriptedHub) -> None:
    hub.answer("GET", "/v1/hub", (200, {"name": "h"}))
    with connect(hub) as client, span("owner"):
        client.info()
        ids = trace_ids()
    assert hub.seen[0].headers["traceparent"] == f"00-{ids[0]}-{ids[1]}-01"


def test_a_read_is_repeated_when_the_connection_breaks_or_the_hub_is_not_ready(hub: ScriptedHub) -> None:
    hub.answer("GET", "/v1/hub", cut, (503, error("unavailable")), (200, {"name": "h"}))
    with connect(hub) as client:
        assert client.info() == {"name": "h"}
    assert len(hub.seen) == 3


def test_a_write_that_may_have_arrived_is_not_repeated(hub: ScriptedHub) -> None:
    hub.answer("POST", "/v1/projects", cut)
    with connect(hub) as client, pytest.raises(HanseError) as caught:
        client.projects.create("triage", schema={"kind": "open"})
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert len(hub.seen) == 1


def test_a_write_that_never_left_is_repeated_until_the_hub_is_there() -> None:
    port = free_ports(1)[0]
    with hanse.connect(f"http://127.0.0.1:{port}", patience=20) as client:
        made: list[str] = []
        thread = threading.Thread(
            target=lambda: made.append(client.projects.create("triage", schema={"kind": "open"}).name)
        )
        thread.start()

        async def serve() -> None:
            app = web.Application()

            async def create(request: web.Request) -> web.Response:
                return web.json_response(project_view())

            app.router.add_post("/v1/projects", create)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await asyncio.to_thread(thread.join, 30)
            await runner.cleanup()

        asyncio.run(serve())
    assert made == ["triage"]


def test_watching_goes_on_after_a_broken_connection_with_no_event_lost_or_twice(hub: ScriptedHub) -> None:
    run = running(hub)
    # The second connection repeats what was told, as a proxy with a buffer may; the third breaks inside an event.
    hub.answer(
        "GET",
        EVENTS,
        stream(frame(3, "state", state="running"), frame(5, "round-started"), broken=True),
        (503, error("unavailable")),
        stream(frame(5, "round-started"), b": still here\n\n", frame(6, "note"), frame(7, "note")[:20], broken=True),
        stream(frame(7, "note"), frame(9, "state", state="completed"), frame(10, "note")),
    )
    assert [event.sequence for event in run.watch()] == [3, 5, 6, 7, 9]
    asked = [one.headers["Last-Event-ID"] for one in hub.calls("GET", EVENTS)]
    assert asked == ["0", "5", "5", "6"]


def test_watching_goes_on_after_the_hub_has_closed_in_the_middle(hub: ScriptedHub) -> None:
    run = running(hub)
    hub.answer("GET", EVENTS, stream(frame(1, "note")), stream(frame(2, "state", state="failed", reason="x: y")))
    assert [event.sequence for event in run.watch()] == [1, 2]


def test_watching_ends_with_a_run_whose_last_event_was_lost(hub: ScriptedHub) -> None:
    run = running(hub)
    hub.answer("GET", EVENTS, stream(frame(1, "note")), stream(frame(2, "note")), stream())
    hub.answer("GET", RUN, (200, run_view()), (200, run_view("completed")))
    assert [event.sequence for event in run.watch()] == [1, 2]
    assert run.state == "completed"


def test_patience_counts_from_the_first_failure_and_not_from_the_last_event(hub: ScriptedHub) -> None:
    run = running(hub, patience=0.4)
    quiet = threading.Event()

    async def later(request: web.Request) -> web.StreamResponse:
        await asyncio.to_thread(quiet.wait, 30)
        return await stream(broken=True)(request)

    hub.answer("GET", EVENTS, stream(frame(1, "note")), later, stream(frame(2, "state", state="completed")))
    watched: list[Event] = []
    events = run.watch()
    watched.append(next(events))
    threading.Timer(1.0, quiet.set).start()  # a silence that is longer than the patience
    watched.extend(events)
    assert [event.sequence for event in watched] == [1, 2]


def test_watching_a_hub_that_stays_away_ends_as_unavailable(hub: ScriptedHub) -> None:
    run = running(hub, patience=0.3)
    hub.answer("GET", EVENTS, stream(frame(1, "note"), broken=True), cut)
    with pytest.raises(HanseError) as caught:
        list(run.watch())
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_watching_what_is_not_there_or_not_permitted_ends_at_once(hub: ScriptedHub) -> None:
    run = running(hub)
    hub.answer("GET", EVENTS, (403, error("forbidden")))
    with pytest.raises(HanseError) as caught:
        list(run.watch())
    assert caught.value.code is ErrorCode.FORBIDDEN
    assert len(hub.calls("GET", EVENTS)) == 1


def test_a_malformed_event_is_an_error_of_the_catalogue(hub: ScriptedHub) -> None:
    run = running(hub)
    hub.answer("GET", EVENTS, stream(b"id: 4\ndata: {not json\n\n"))
    with pytest.raises(HanseError, match="event 4"):
        list(run.watch())
