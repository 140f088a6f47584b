"""The site's window lets in who has a fresh link, and nobody else: no other name, page, port or user of the machine."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer
from yarl import URL

from hanse_datapod.cli import main
from hanse_datapod.home.outbox import Leaving, Outbox
from hanse_datapod.home.pause import paused
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.window import sessions
from hanse_datapod.window.app import Window
from hanse_datapod.window.links import FOLDER, LASTS_S, announce, make_link, use_link
from hanse_datapod.window.place import place_of
from hanse_datapod.window.site import WindowSite
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.durable import sole_owner
from hanse_site.identity import RECORD
from unit.datapod.site_actors import enrolled

SECRET_KEY = "the-sites-own-api-key"


class Visitor:
    """A browser, or what pretends to be one."""

    def __init__(self, address: URL, host: str) -> None:
        self.address, self.host = address, host
        self.cookie, self.token = "", ""
        self.headers: dict[str, str] = {}

    async def ask(self, method: str, what: str, body: Any = None, **headers: str | None) -> tuple[int, Any]:
        """(status, answer); a header that is None is not sent."""
        given: dict[str, str | None] = {
            "Host": self.host, "Origin": f"http://{self.host}", "Sec-Fetch-Site": "same-origin",
            "Cookie": self.cookie, sessions.HEADER: self.token,
        }  # fmt: skip
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in given.items() if value}
        async with (
            aiohttp.ClientSession() as client,
            client.request(method, self.address.join(URL(what)), json=body, headers=sent) as answer,
        ):
            self.headers = dict(answer.headers)
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def enter(self, home: Path) -> None:
        """By a fresh link."""
        secret = make_link(home, "http://127.0.0.1:1").partition("#enter=")[2]
        status, told = await self.ask("POST", "/api/enter", {"secret": secret})
        assert status == 200, told
        self.token, self.cookie = told["token"], self.headers["Set-Cookie"].partition(";")[0]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    enrolled(tmp_path / "north")
    record = tmp_path / "north" / RECORD
    record.write_text(record.read_text().replace('"api_key":""', f'"api_key":"{SECRET_KEY}"'))
    assert SECRET_KEY in record.read_text()
    outbox = Outbox(tmp_path / "north")
    outbox.append(*[Leaving("update", f"models/triage/{n}", n, "0" * 64, task=f"r/{n}", masked=True) for n in range(3)])
    outbox.close()
    return tmp_path / "north"


@pytest.fixture
async def visitor(home: Path) -> AsyncIterator[Visitor]:
    site = WindowSite(home, Policy(), None, SYSTEM_CLOCK)
    server = TestServer(Window({"north": site}, SYSTEM_CLOCK).application())
    await server.start_server()
    yield Visitor(server.make_url("/"), f"127.0.0.1:{server.port}")
    await server.close()


async def test_who_has_a_fresh_link_sees_what_the_command_tells(visitor: Visitor, home: Path) -> None:
    await visitor.enter(home)
    status, told = await visitor.ask("GET", "/api/status")
    assert (status, told["participant"], told["outbox_entries"]) == (200, "north", 3)
    assert SECRET_KEY not in json.dumps(told)
    _, page = await visitor.ask("GET", "/api/outbox?search=r/1")
    assert [entry["to"] for entry in page["entries"]] == ["models/triage/1"]
    assert (await visitor.ask("POST", "/api/verify", {}))[1] == {
        "entries": 3, "intact": True, "broken": None, "reason": "",
    }  # fmt: skip
    assert await visitor.ask("POST", "/api/pause", {"reason": "the ward moves"}) == (200, {})
    pause = paused(home)
    assert pause is not None
    assert (await visitor.ask("GET", "/api/status"))[1]["paused"]["reason"] == pause.reason == "the ward moves"
    assert await visitor.ask("POST", "/api/resume", {}) == (200, {})
    assert paused(home) is None
    assert (await visitor.ask("POST", "/api/leave", {}))[0] == 200
    assert (await visitor.ask("GET", "/api/status"))[0] == 401


async def test_a_link_is_good_once_however_many_try_and_for_ten_minutes(visitor: Visitor, home: Path) -> None:
    secret = make_link(home, "http://127.0.0.1:1").partition("#enter=")[2]
    tried = await asyncio.gather(*(Visitor(visitor.address, visitor.host).ask("POST", "/api/enter", {"secret": secret})
                                   for _ in range(12)))  # fmt: skip
    assert sorted(status for status, _ in tried) == [200] + [401] * 11
    late = make_link(home, "http://127.0.0.1:1").partition("#enter=")[2]
    assert not use_link(home, late, SYSTEM_CLOCK.now() + timedelta(seconds=LASTS_S + 1))
    assert (await visitor.ask("POST", "/api/enter", {"secret": late}))[0] == 401, "trying it too late has used it up"
    for guess in ("", "0" * 43, "../../site.json", "a" * 10_000, "\x00", "☃"):
        assert (await visitor.ask("POST", "/api/enter", {"secret": guess}))[0] == 401


async def test_names_that_lead_here_from_elsewhere_are_refused(visitor: Visitor, home: Path) -> None:
    await visitor.enter(home)
    port = visitor.host.rpartition(":")[2]
    evil = ("attacker.example", f"attacker.example:{port}", "127.0.0.1.nip.io", "localhost.attacker.example",
            "127.0.0.1@attacker.example", "10.0.0.7", "[::]", "[::ffff:10.0.0.7]")  # fmt: skip
    for name in evil:
        for what in ("/", "/api/status", "/main.js", "/nothing"):
            status, told = await visitor.ask("GET", what, Host=name, Origin=f"http://{name}")
            assert (status, told["error"]["code"]) == (403, "forbidden"), (name, what)
    assert (await visitor.ask("POST", "/api/pause", {}, Host="attacker.example", Origin=None))[0] == 403
    assert paused(home) is None
    for name in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert (await visitor.ask("GET", "/api/status", Host=name, Origin=f"http://{name}"))[0] == 200


async def test_another_page_of_the_same_browser_can_neither_read_nor_act(visitor: Visitor, home: Path) -> None:
    await visitor.enter(home)
    elsewhere: list[dict[str, str | None]] = [
        {"Origin": "http://attacker.example", "Sec_Fetch_Site": "cross-site"},
        # A page of another user's server on this machine: browsers take its port for the same site.
        {"Origin": "http://127.0.0.1:1", "Sec_Fetch_Site": "same-site"},
        {"Origin": None, "Sec_Fetch_Site": "cross-site"},
        {"Origin": "null", "Sec_Fetch_Site": None},
    ]
    for headers in elsewhere:
        for method, what in (("GET", "/api/status"), ("POST", "/api/pause"), ("POST", "/api/enter")):
            status, _ = await visitor.ask(method, what, {} if method == "POST" else None, **headers)
            assert status == 403, (headers, what)
    # What a form of any page may send.
    assert (await visitor.ask("POST", "/api/pause", None))[0] == 403
    assert paused(home) is None
    # Its cookie alone, which browsers send to all ports of this address, opens nothing; nor does the page's token.
    assert (await visitor.ask("GET", "/api/status", **{sessions.HEADER: None}))[0] == 401
    assert (await visitor.ask("GET", "/api/status", **{sessions.HEADER: "x" * 43}))[0] == 401
    assert (await visitor.ask("GET", "/api/status", Cookie=None))[0] == 401
    assert (await visitor.ask("GET", "/api/status"))[0] == 200


async def test_answers_tell_the_browser_to_run_no_other_script_and_keep_nothing(visitor: Visitor, home: Path) -> None:
    await visitor.enter(home)
    cookie = visitor.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    for what in ("/", "/main.js", "/style.css", "/nothing", "/api/status", "/api/none", "/api/outbox?before=x"):
        await visitor.ask("GET", what)
        policy = visitor.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy, what
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert visitor.headers["Cache-Control"] == "no-store"
        assert visitor.headers["X-Frame-Options"] == "DENY"
    _, page = await visitor.ask("GET", "/")
    assert "<script>" not in page
    assert "style=" not in page
    assert " on" not in page.replace(" once", "").partition("<body>")[2], "no handler stands in the page"


async def test_wrong_requests_are_told_what_is_wrong(visitor: Visitor, home: Path) -> None:
    assert (await visitor.ask("GET", "/api/status"))[0] == 401
    await visitor.enter(home)
    for what, status, part in (
        ("/api/outbox?before=-1", 400, "before"), ("/api/outbox?before=1e9", 400, "before"),
        ("/api/status?site=south", 404, "south"), ("/../site.json", 404, "page"), ("/window.json", 404, "page"),
    ):  # fmt: skip
        told = await visitor.ask("GET", what)
        assert told[0] == status, told
        assert part in told[1]["error"]["message"]
    for body, part in (({"reason": "two\nlines"}, "reason"), ({"reason": "x" * 300}, "reason"), ({"at": 1}, "at")):
        status, told = await visitor.ask("POST", "/api/pause", body)
        assert (status, part in told["error"]["message"]) == (400, True), told
    assert (await visitor.ask("POST", "/api/approve", {"digest": "x" * 20_000}))[0] in (400, 413)
    assert paused(home) is None


async def test_a_session_ends_when_it_is_idle(visitor: Visitor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await visitor.enter(home)
    monkeypatch.setattr(sessions, "_IDLE_S", -1.0)
    assert (await visitor.ask("GET", "/api/status"))[0] == 401
    monkeypatch.undo()
    assert (await visitor.ask("GET", "/api/status"))[0] == 401, "and stays ended"


def test_a_link_is_made_by_who_may_use_the_home_of_a_datapod_that_runs(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["window", "--home", str(home)]
    assert main(command) == 10
    assert "no datapod runs with this home" in capsys.readouterr().err
    with sole_owner(home):  # as the datapod does
        assert main(command) == 10
        assert "its datapod has no window" in capsys.readouterr().err
        announce(home, "http://127.0.0.1:8095")
        assert main(command) == 0
        link = capsys.readouterr().out.strip()
        assert main([*command, "--at", "http://evil.example:8095"]) == 2
        assert "--at" in capsys.readouterr().err
        assert main([*command, "--at", "http://localhost:9000/"]) == 0
        assert capsys.readouterr().out.startswith("http://localhost:9000/#enter=")
    assert link.startswith("http://127.0.0.1:8095/#enter=")
    secret = link.partition("=")[2]
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert not any(secret.encode() in path.read_bytes() or secret in path.name for path in kept)
    assert stat.S_IMODE((home / FOLDER).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home / FOLDER).iterdir()} == {0o600}
    assert use_link(home, secret, SYSTEM_CLOCK.now())


def test_the_setting_names_an_address_or_none() -> None:
    assert place_of("off") is None
    assert place_of("127.0.0.1:0") == ("127.0.0.1", 0)
    assert place_of("[::1]:8095") == ("::1", 8095)
    for wrong in ("", "on", "8095", ":8095", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"):
        with pytest.raises(ValueError, match="expected an address with a port"):
            place_of(wrong)
