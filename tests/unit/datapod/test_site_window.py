"""The site's window lets in who has a fresh link, and nobody else: no other name, page, port or user of the machine."""

from __future__ import annotations

import asyncio
import itertools
import json
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
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
from hanse_datapod.window import app, serve, sessions
from hanse_datapod.window.app import Window
from hanse_datapod.window.links import FOLDER, LASTS_S, announcement, make_link, use_link
from hanse_datapod.window.place import place_of
from hanse_datapod.window.serve import window
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

    async def enter(self, *homes: Path) -> None:
        """By a fresh link."""
        secret = make_link(homes, "http://127.0.0.1:1").partition("#enter=")[2]
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
    secret = make_link([home], "http://127.0.0.1:1").partition("#enter=")[2]
    tried = await asyncio.gather(*(Visitor(visitor.address, visitor.host).ask("POST", "/api/enter", {"secret": secret})
                                   for _ in range(12)))  # fmt: skip
    assert sorted(status for status, _ in tried) == [200] + [401] * 11
    late = make_link([home], "http://127.0.0.1:1").partition("#enter=")[2]
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
        with announcement(home) as announce:
            announce("http://127.0.0.1:8095")
            assert main(command) == 0
            link = capsys.readouterr().out.strip()
            # Browsers try [::1] for `localhost`, where another user may listen.
            for wrong in ("http://evil.example:8095", "http://localhost:9000/", "http://[::1]:9000",
                          "http://127.0.0.1:9000@evil.example/", "http://127.0.0.1:"):  # fmt: skip
                assert main([*command, "--at", wrong]) == 2
                told = capsys.readouterr()
                assert "--at" in told.err
                assert told.out == ""
            assert main([*command, "--at", "http://127.0.0.1:9000/"]) == 0
            assert capsys.readouterr().out.startswith("http://127.0.0.1:9000/#enter=")
    assert link.startswith("http://127.0.0.1:8095/#enter=")
    secret = link.partition("=")[2]
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert not any(secret.encode() in path.read_bytes() or secret in path.name for path in kept)
    assert stat.S_IMODE((home / FOLDER).stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (home / FOLDER).iterdir()} == {0o600}
    assert use_link(home, secret, SYSTEM_CLOCK.now())


KILLED = """import asyncio, sys
from pathlib import Path
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.window.serve import window
from hanse_fabric.clock import SYSTEM_CLOCK

async def main():
    async with window("127.0.0.1:0", [Path(sys.argv[1])], Policy(), None, SYSTEM_CLOCK):
        print("open", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def opened(setting: str, *homes: Path) -> AbstractAsyncContextManager[None]:
    return window(setting, homes, Policy(), None, SYSTEM_CLOCK)


def killed_with_a_window(home: Path) -> tuple[int, str]:
    """(port, a link's secret) of a datapod's window that was killed."""
    killed = subprocess.Popen([sys.executable, "-c", KILLED, str(home)], stdout=subprocess.PIPE, text=True)
    try:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "open\n"
        host, port = address_of(home)
        return port, make_link([home], f"http://{host}:{port}").partition("=")[2]
    finally:
        killed.kill()
        killed.communicate()


async def test_no_link_leads_to_whoever_has_taken_the_port_of_a_killed_datapod(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["window", "--home", str(home)]
    port, earlier = await asyncio.to_thread(killed_with_a_window, home)
    thief = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
    with sole_owner(home):
        assert main(command) == 10, "before the window is opened"
        async with thief, opened(f"127.0.0.1:{port}", home):
            assert main(command) == 10
            told = capsys.readouterr()
            assert "its datapod has no window" in told.err
            assert told.out == ""
        assert not use_link(home, earlier, SYSTEM_CLOCK.now()), "what the thief may have been shown is good no more"
        async with opened(f"127.0.0.1:{port}", home):
            async with opened("127.0.0.1:0", home):  # another datapod of the same home, which will not run
                assert main(command) == 0
            assert main(command) == 0
            assert capsys.readouterr().out.count(f"http://127.0.0.1:{port}/#enter=") == 2
        assert main(command) == 10, "the window is closed"


def address_of(home: Path) -> tuple[str, int]:
    address = URL(json.loads((home / "window.json").read_bytes())["address"])
    assert address.host is not None
    assert address.port is not None
    return address.host, address.port


async def hung_up(reader: asyncio.StreamReader) -> bytes:
    """All that is said until the window closes the connection."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_silent_connections_take_few_of_the_datapods_descriptors(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "_FIRST_S", 3600.0)
    monkeypatch.setattr(serve, "_IDLE_S", 3600.0)
    async with asyncio.timeout(60), opened("127.0.0.1:0", home):
        silent = [await asyncio.open_connection(*address_of(home)) for _ in range(150)]
        ends = [asyncio.create_task(hung_up(reader)) for reader, _ in silent]
        for end in itertools.islice(asyncio.as_completed(ends), 150 - serve._CONNECTIONS):
            await end
        assert sum(not end.done() for end in ends) == serve._CONNECTIONS
        for _, writer in silent:
            writer.close()
        await asyncio.gather(*ends)


NAMED = "Host: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("limit", "sent", "answer"),
    [
        ("_FIRST_S", "", b""),
        ("_FIRST_S", "GET / HTTP/1.1\r\nHo", b""),
        ("_BODY_S", f"POST /api/enter HTTP/1.1\r\n{NAMED}Content-Length: 9\r\n\r\n{{", b"HTTP/1.1 504"),
        ("_IDLE_S", f"GET /style.css HTTP/1.1\r\n{NAMED}\r\n", b"HTTP/1.1 200"),
    ],
    ids=["nothing", "half a header", "half a body", "no further request"],
)
async def test_who_sends_nothing_whole_is_hung_up_on_and_others_are_let_in(
    home: Path, monkeypatch: pytest.MonkeyPatch, limit: str, sent: str, answer: bytes
) -> None:
    for module, name in ((serve, "_FIRST_S"), (serve, "_IDLE_S"), (app, "_BODY_S")):
        monkeypatch.setattr(module, name, 0.3 if name == limit else 3600.0)
    async with asyncio.timeout(30), opened("127.0.0.1:0", home):
        host, port = address_of(home)
        many = [await asyncio.open_connection(host, port) for _ in range(serve._CONNECTIONS)]
        for _, writer in many:
            writer.write(sent.encode())
        for reader, writer in many:
            assert (await hung_up(reader)).startswith(answer)
            writer.close()
        await Visitor(URL(f"http://{host}:{port}/"), f"{host}:{port}").enter(home)


async def test_a_link_leads_to_the_homes_that_it_was_made_in_alone(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "south"
    enrolled(other)
    async with opened("127.0.0.1:0", home, other):
        host, port = address_of(home)
        visitor = Visitor(URL(f"http://{host}:{port}/"), f"{host}:{port}")
        await visitor.enter(home)
        assert await visitor.ask("GET", "/api/sites") == (200, {"sites": ["north"]})
        for method, what in (
            ("GET", "status"),
            ("GET", "outbox"),
            ("GET", "code"),
            ("POST", "pause"),
            ("POST", "verify"),
        ):
            body: dict[str, str] | None = {} if method == "POST" else None
            assert (await visitor.ask(method, f"/api/{what}?site=south", body))[0] == 404
        assert paused(other) is None
        await visitor.enter(other)
        assert await visitor.ask("GET", "/api/sites") == (200, {"sites": ["south"]})
        assert (await visitor.ask("POST", "/api/pause", {}))[0] == 200
        assert (paused(home) is None, paused(other) is None) == (True, False)
        await visitor.enter(home, other)
        assert await visitor.ask("GET", "/api/sites") == (200, {"sites": ["north", "south"]})


def test_the_setting_names_an_address_or_none() -> None:
    assert place_of("off") is None
    assert place_of("127.0.0.1:0") == ("127.0.0.1", 0)
    assert place_of("[::1]:8095") == ("::1", 8095)
    for wrong in ("", "on", "8095", ":8095", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"):
        with pytest.raises(ValueError, match="expected an address with a port"):
            place_of(wrong)
