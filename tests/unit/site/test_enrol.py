"""Enrolling, against a hub that keeps the rules of tokens: one key each, and the clock looked at."""

from __future__ import annotations

import base64
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hanse_fabric.bus.jwt import read_credentials
from hanse_fabric.durable import sole_owner
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.secrets import make_join_token
from hanse_site import enrol, identity, load_identity
from hanse_site.joining import check_clock

TOKEN = make_join_token().text


class Hub:
    """Answers joins: a token belongs to the first key that shows it."""

    def __init__(self) -> None:
        self.joins: list[dict[str, Any]] = []
        self.url = ""
        self.clock_ahead = timedelta()

    async def challenge(self, request: web.Request) -> web.Response:
        assert set(await request.json()) == {"token"}
        return web.json_response({"challenge": "c" * 32})

    async def join(self, request: web.Request) -> web.Response:
        body = await request.json()
        headers = {"Date": format_datetime(datetime.now(UTC) + self.clock_ahead, usegmt=True)}
        if any(join["token"] == body["token"] and join["public_key"] != body["public_key"] for join in self.joins):
            error = {"code": "gone", "message": "token: it was used already", "hint": "ask for another"}
            return web.json_response({"error": error}, status=410, headers=headers)
        self.joins.append(body)
        reply = {
            "project": "triage", "participant": "north", "bus_url": "tls://bus.example",
            "bus_jwt": "header.body.sig",
            "bus_ca": "a bus CA", "store_ca": None, "schema": {"kind": "open"}, "hub_name": "A hub", "api_key": "k",
            "something_newer": 1,
        }  # fmt: skip
        return web.json_response(reply, headers=headers)


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    made = Hub()
    app = web.Application()
    app.router.add_post("/v1/join", made.join)
    app.router.add_post("/v1/join/challenge", made.challenge)
    server = TestServer(app)
    await server.start_server()
    made.url = str(server.make_url("/"))
    yield made
    await server.close()


async def test_enrolling_leaves_keys_that_only_their_owner_can_read(hub: Hub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    found = await enrol(hub.url, TOKEN, home)
    assert (found.project, found.participant, found.record.hub_name) == ("triage", "north", "A hub")
    assert base64.b64decode(hub.joins[0]["public_key"]) == found.signing_key.public_bytes
    jwt, key = read_credentials(found.creds.read_text())
    assert (jwt, key.public) == ("header.body.sig", hub.joins[0]["bus_key"])
    assert found.bus_ca is not None
    assert found.store_ca is None
    for path in home.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert (home / identity.BOUND).exists()  # this hub is never believed that it cannot bind its requests
    again = load_identity(home)
    assert again is not None
    assert again.record == found.record


async def test_enrolling_again_with_the_same_token_asks_nobody(hub: Hub, tmp_path: Path) -> None:
    await enrol(hub.url, TOKEN, tmp_path / "home")
    await enrol("http://nobody.invalid", TOKEN, tmp_path / "home")
    assert len(hub.joins) == 1


async def test_a_crash_between_joining_and_saving_does_not_burn_the_token(hub: Hub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    await enrol(hub.url, TOKEN, home)
    (home / identity.RECORD).unlink()
    found = await enrol(hub.url, TOKEN, home)
    assert hub.joins[0]["public_key"] == hub.joins[1]["public_key"]
    assert hub.joins[0]["bus_key"] == hub.joins[1]["bus_key"]
    assert found.participant == "north"


async def test_a_token_that_another_site_used_is_gone(hub: Hub, tmp_path: Path) -> None:
    await enrol(hub.url, TOKEN, tmp_path / "one")
    with pytest.raises(HanseError, match="used already") as caught:
        await enrol(hub.url, TOKEN, tmp_path / "other")
    assert caught.value.code is ErrorCode.GONE
    assert caught.value.hint == "ask for another"


async def test_a_home_serves_one_enrolment(hub: Hub, tmp_path: Path) -> None:
    await enrol(hub.url, TOKEN, tmp_path / "home")
    with pytest.raises(HanseError, match="enrolled already, as north in triage") as caught:
        await enrol(hub.url, make_join_token().text, tmp_path / "home")
    assert caught.value.code is ErrorCode.CONFLICT


@pytest.mark.parametrize("ahead", [timedelta(hours=1), timedelta(hours=-1)])
async def test_clocks_an_hour_apart_are_refused_naming_both_times(hub: Hub, tmp_path: Path, ahead: timedelta) -> None:
    hub.clock_ahead = ahead
    with pytest.raises(HanseError, match=r"UTC at the hub, 3[56]") as caught:
        await enrol(hub.url, TOKEN, tmp_path / "home")
    assert caught.value.code is ErrorCode.CLOCK_SKEW
    hub.clock_ahead = timedelta()
    assert (await enrol(hub.url, TOKEN, tmp_path / "home")).participant == "north"


async def test_a_malformed_token_is_refused_without_repeating_it(tmp_path: Path) -> None:
    with pytest.raises(HanseError) as caught:
        await enrol("http://hub.example", "join_secret", tmp_path / "home")
    assert caught.value.code is ErrorCode.UNAUTHENTICATED
    assert "secret" not in caught.value.message
    assert not (tmp_path / "home").exists()


async def test_an_address_that_is_no_hub_says_so(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(HanseError, match="status 404, not the JSON of a hub") as caught:
        await enrol(hub.url + "elsewhere", TOKEN, tmp_path / "home")
    assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_a_hub_of_release_0_1_0_that_asks_for_no_proof_is_to_be_upgraded_first(tmp_path: Path) -> None:
    async def unknown(_: web.Request) -> web.Response:
        return web.json_response({"error": {"code": "not-found", "message": "no such path", "hint": ""}}, status=404)

    app = web.Application()
    app.router.add_post("/v1/join/challenge", unknown)
    async with TestServer(app) as server:
        with pytest.raises(HanseError, match="have the hub's operator upgrade it first") as caught:
            await enrol(str(server.make_url("/")), TOKEN, tmp_path / "home")
    assert caught.value.code is ErrorCode.UNAVAILABLE


async def test_a_hub_that_is_away_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(HanseError) as caught:
        await enrol("http://127.0.0.1:1", TOKEN, tmp_path / "home")
    assert caught.value.code is ErrorCode.UNAVAILABLE


def test_two_processes_do_not_share_a_home(tmp_path: Path) -> None:
    with sole_owner(tmp_path), pytest.raises(HanseError, match="another process") as caught, sole_owner(tmp_path):
        pass
    assert caught.value.code is ErrorCode.LOCKED


@pytest.mark.parametrize("zone", ["GMT", "+0200", "-0000"])
def test_a_clock_is_held_against_the_hubs_date_in_whatever_zone_it_is_told(zone: str) -> None:
    there = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
    date = f"Fri, 01 May 2026 {'14' if zone == '+0200' else '12'}:00:00 {zone}"
    check_clock(date, there)
    with pytest.raises(HanseError, match="3600 s apart") as refused:
        check_clock(date, there + timedelta(hours=1))
    assert refused.value.code is ErrorCode.CLOCK_SKEW
    check_clock(None, there)
    check_clock("yesterday", there)
