"""The console's own server: what it tells browsers to refuse, what it passes on to the hub, and what it never does."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from foreign_interpreters import node_modules
from hanse_console.app import application
from hanse_console.bundle import BUNDLE, read_bundle
from hanse_console.proxy import BODY, ApiProxy
from hanse_console.settings import ConsoleSettings
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import HanseError
from hanse_fabric.settings import load_settings

WEB = BUNDLE.parents[2] / "web"


class HubBehind:
    """A server that says what it was asked, and sends events when told to."""

    def __init__(self) -> None:
        self.asked: list[web.Request] = []
        self.go_on = asyncio.Event()
        app = web.Application()
        app.router.add_get("/v1/projects/p/runs/r/events", self._events)
        app.router.add_get("/v1/silent", self._silent)
        app.router.add_get("/v1/halting", self._halting)
        app.router.add_get("/v1/packed", self._packed)
        app.router.add_route("*", "/{path:.*}", self._say)
        self.server = TestServer(app)

    async def _say(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        await request.read()
        response = web.json_response({"path": request.raw_path}, status=201, headers={"Server-Secret": "inside"})
        response.set_cookie("hanse_session", "secret", httponly=True, samesite="Strict")
        response.set_cookie("other", "one")
        return response

    async def _silent(self, _request: web.Request) -> web.StreamResponse:
        await self.go_on.wait()
        return web.Response()

    async def _halting(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half of it")
        await self.go_on.wait()
        return response

    async def _packed(self, request: web.Request) -> web.StreamResponse:
        response = web.json_response({"text": "long " * 100})
        response.enable_compression()
        return response

    async def _events(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"id: 1\nevent: state\ndata: {}\n\n")
        await self.go_on.wait()
        await response.write(b"id: 2\nevent: state\ndata: {}\n\n")
        return response


@pytest.fixture
async def hub() -> AsyncIterator[HubBehind]:
    behind = HubBehind()
    await behind.server.start_server()
    yield behind
    behind.go_on.set()
    await behind.server.close()


@pytest.fixture
async def console(hub: HubBehind) -> AsyncIterator[TestClient[Any, Any]]:
    proxy = ApiProxy(str(hub.server.make_url("")), None, 2, SystemClock())
    async with proxy, TestClient(TestServer(application(read_bundle(), proxy, "https://hub.example.org"))) as client:
        yield client


async def test_every_answer_forbids_inline_scripts_and_styles_frames_and_other_origins(
    console: TestClient[Any, Any],
) -> None:
    for path in ("/", "/nothing", "/v1/hub", "/console.json", next(iter(read_bundle()))):
        answer = await console.get(path)
        rules = dict(rule.partition(" ")[::2] for rule in answer.headers["Content-Security-Policy"].split("; "))
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
        assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert (await console.get("/nothing")).status == (await console.get("/assets/../app.py")).status == 404


async def test_hashed_files_are_kept_for_a_year_and_the_page_is_asked_for_anew(console: TestClient[Any, Any]) -> None:
    page = await console.get("/")
    assert page.headers["Cache-Control"] == "no-cache"
    text = await page.text()
    assert "<style" not in text
    assert "style=" not in text
    for script in text.split("<script")[1:]:
        assert script.split(">", 1)[1].startswith("</script>"), "no script stands in the page"
    assets = [path for path in read_bundle() if path.startswith("/assets/")]
    assert any(path in text for path in assets)
    for path in assets:
        answer = await console.get(path)
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert await answer.read() == (BUNDLE / path[1:]).read_bytes()  # the client unpacks it
    biggest = max(assets, key=lambda path: len(read_bundle()[path].body))
    raw = await console.get(biggest, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in raw.headers


async def test_a_page_s_request_reaches_the_hub_with_its_cookie_and_host_and_without_a_program_s_key(
    console: TestClient[Any, Any], hub: HubBehind
) -> None:
    answer = await console.post(
        "/v1/projects/a%2Fb?x=1%202", json={"a": 1},
        headers={
            "Cookie": "hanse_session=s", "Hanse-CSRF": "c", "Origin": "http://console.example",
            "Host": "console.example", "Sec-Fetch-Site": "cross-site",
            "Authorization": "Bearer hanse_x_y", "X-Forwarded-For": "203.0.113.7", "X-Other": "1",
        },
    )  # fmt: skip
    (asked,) = hub.asked
    assert asked.raw_path == "/v1/projects/a%2Fb?x=1%202"
    assert {asked.headers["Cookie"], asked.headers["Hanse-CSRF"]} == {"hanse_session=s", "c"}
    assert (asked.headers["Host"], asked.headers["Sec-Fetch-Site"]) == ("console.example", "cross-site")
    assert asked.headers["X-Forwarded-For"] == "127.0.0.1", "a stranger's word on who asks is not passed on"
    assert not {"Authorization", "X-Other"} & set(asked.headers)
    assert answer.status == 201
    assert "Server-Secret" not in answer.headers
    assert answer.headers["Cache-Control"] == "no-store"
    first, second = answer.headers.getall("Set-Cookie")
    assert "HttpOnly" in first
    assert "SameSite=Strict" in first
    assert second.startswith("other=one")


async def test_a_trusted_proxy_s_word_on_who_asks_is_passed_on(hub: HubBehind) -> None:
    proxy = ApiProxy(str(hub.server.make_url("")), None, 2, SystemClock(), [ip_network("127.0.0.0/8")])
    async with proxy, TestClient(TestServer(application(read_bundle(), proxy, ""))) as client:
        await client.get("/v1/hub", headers={"X-Forwarded-For": "203.0.113.7"})
    assert hub.asked[0].headers["X-Forwarded-For"] == "203.0.113.7, 127.0.0.1"
    assert "Hanse-Proxy" not in hub.asked[0].headers


async def test_the_console_shows_the_hub_a_secret_of_its_own_and_nobody_else_s(hub: HubBehind) -> None:
    proxy = ApiProxy(str(hub.server.make_url("")), None, 2, SystemClock(), secret="the console's")
    async with proxy, TestClient(TestServer(application(read_bundle(), proxy, ""))) as client:
        answer = await client.get("/v1/hub", headers={"Hanse-Proxy": "guessed"})
    assert hub.asked[0].headers.getall("Hanse-Proxy") == ["the console's"]
    assert "the console's" not in str(answer.headers)


async def test_events_arrive_one_by_one_and_places_are_given_back(
    console: TestClient[Any, Any], hub: HubBehind
) -> None:
    watched = await console.get("/v1/projects/p/runs/r/events", headers={"Last-Event-ID": "7"})
    assert b"id: 1" in await watched.content.readuntil(b"\n\n")  # the second is held back by the hub until now
    assert hub.asked[0].headers["Last-Event-ID"] == "7"
    other = await console.get("/v1/projects/p/runs/r/events")
    third = await console.get("/v1/hub")
    assert (third.status, (await third.json())["error"]["code"]) == (503, "unavailable")
    hub.go_on.set()
    assert b"id: 2" in await watched.content.read()
    assert b"id: 2" in await other.content.read()
    assert (await console.get("/v1/hub")).status == 201


async def test_what_is_too_long_or_cannot_be_reached_is_refused_in_the_hub_s_form(
    console: TestClient[Any, Any], hub: HubBehind
) -> None:
    assert (await console.post("/v1/projects", data=b" " * (BODY + 1))).status == 413
    assert hub.asked == []
    await hub.server.close()
    answer = await console.get("/v1/hub")
    assert (answer.status, set((await answer.json())["error"])) == (503, {"code", "message", "hint"})


async def test_a_hub_that_says_nothing_does_not_hold_a_page_for_ever(
    console: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanse_console.proxy._WITHIN_S", 0.2)
    answer = await console.get("/v1/silent")
    assert (answer.status, (await answer.json())["error"]["code"]) == (504, "timeout")


async def spoken(console: TestClient[Any, Any], text: bytes, last: bytes = b"\r\n0\r\n") -> bytes:
    """What is answered to these bytes, until `last`, or until the console closes the connection."""
    reader, writer = await asyncio.open_connection(console.server.host, console.server.port)
    writer.write(text)
    try:
        async with asyncio.timeout(30):
            return await reader.readuntil(last)
    except asyncio.IncompleteReadError as closed:
        return closed.partial
    finally:
        writer.close()


async def test_an_answer_that_halts_breaks_off_and_holds_no_second_one(
    console: TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanse_console.proxy._WITHIN_S", 0.2)
    said = await spoken(console, b"GET /v1/halting HTTP/1.1\r\nHost: c\r\n\r\n")
    assert (said.count(b"HTTP/1.1"), said.endswith(b"half of it\r\n")) == (1, True)


async def test_who_sends_a_body_by_drops_holds_no_place_for_ever(
    console: TestClient[Any, Any], hub: HubBehind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hanse_console.proxy._BODY_S", 0.2)
    drop = b"POST /v1/session HTTP/1.1\r\nHost: c\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{"
    said = await asyncio.gather(*(spoken(console, drop, b"}}") for _ in range(2)))
    assert all(each.startswith(b"HTTP/1.1 504") and b'"timeout"' in each for each in said)
    assert (await console.get("/v1/hub")).status == 201, "both places are free again"
    assert [each.path for each in hub.asked] == ["/v1/hub"]


async def test_nothing_but_the_api_is_reached_and_no_header_is_a_defect(
    console: TestClient[Any, Any], hub: HubBehind, caplog: pytest.LogCaptureFixture
) -> None:
    plain = b"Accept: */*"
    for path in (b"/v1/../metrics", b"/v1/..//a/v1/x", b"/v1/%2e%2e/x", b"/v1/a/%2E./../../x", b"/v1/.%2e"):
        assert await answered(console, path, plain) == 404, path
    for header in (b"Cookie: a=\xff", b"Origin: \xff", b"Hanse-CSRF: \xe4"):
        assert await answered(console, b"/v1/hub", header) == 400, header
    assert hub.asked == []
    assert "Error handling request" not in caplog.text
    assert await answered(console, b"/v1/a..b/..c", plain) == 201, "the control"


async def answered(console: TestClient[Any, Any], path: bytes, header: bytes) -> int:
    head = b"GET %b HTTP/1.1\r\nHost: c\r\nConnection: close\r\n%b\r\n\r\n" % (path, header)
    return int((await spoken(console, head, b"\r\n\r\n"))[9:12])


async def test_an_answer_is_readable_where_the_hub_s_side_packs_answers(console: TestClient[Any, Any]) -> None:
    answer = await console.get("/v1/packed")
    assert (await answer.json())["text"].startswith("long long")


def test_settings_name_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("", "hub.example.org", "http://hub.example.org/path", "ftp://hub"):
        with pytest.raises(HanseError, match="HANSE_CONSOLE_HUB"):
            load_settings(ConsoleSettings, console_hub=wrong)
    with pytest.raises(HanseError, match="HANSE_CONSOLE_PROXIES"):
        load_settings(ConsoleSettings, console_hub="http://h", console_proxies="everybody")
    with pytest.raises(HanseError, match="make console"):
        read_bundle(Path("/nowhere"))


def test_the_lock_file_names_packages_and_digests_and_no_host() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    for name, package in lock["packages"].items():
        assert "resolved" not in package, name
        assert not name or package["integrity"].startswith("sha512-"), name
    assert "://" not in "".join(
        line for line in (WEB / "package-lock.json").read_text().splitlines() if '"url"' not in line
    )


def test_the_bundle_is_of_these_sources(tmp_path: Path) -> None:
    """`make console` would change nothing."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not there (apt-get install nodejs npm): whether the bundle is of its sources is not seen")
    built = tmp_path / "src" / "hanse_console" / "bundle"
    sources = tmp_path / "web"
    shutil.copytree(WEB, sources, ignore=shutil.ignore_patterns("node_modules"))
    there = WEB / "node_modules"
    packages = there if (there / ".package-lock.json").exists() else node_modules(WEB)
    if packages is None:
        pytest.skip("npm ci: no registry of npm is reached, so the bundle cannot be built anew")
    (sources / "node_modules").symlink_to(packages)
    made = subprocess.run(["npm", "run", "build"], cwd=sources, capture_output=True, text=True, timeout=180)
    assert made.returncode == 0, made.stdout + made.stderr
    anew = {path.relative_to(built).as_posix(): path.read_bytes() for path in built.rglob("*") if path.is_file()}
    kept = {path.relative_to(BUNDLE).as_posix(): path.read_bytes() for path in BUNDLE.rglob("*") if path.is_file()}
    assert sorted(anew) == sorted(kept), "the bundle is of other sources: make console"
    assert anew == kept
