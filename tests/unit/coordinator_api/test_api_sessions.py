"""People in browsers: let in by a one-time link, signed in by password and code, and out again; and who plays them.

Each attack has its control beside it: the same request, with what the defence asks for.
"""

from __future__ import annotations

import asyncio
import json
import logging
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from argon2.profiles import CHEAPEST

from browsers import LOOPBACK, Browser, code_at
from clocks import HandClock
from hanse_coordinator.api import events
from hanse_coordinator.api.door import address_of
from hanse_coordinator.people import attempts
from hanse_coordinator.people.passwords import Passwords
from hanse_coordinator.people.records import person_key
from hanse_coordinator.people.sessions import MOST_OF_A_PERSON
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT
from hub_api import JOB, SCHEMA, Api, Site, replica

PASSWORD = "seven grey herons over the Trave"
NEW = "nine brown otters under the Alster"
PROXIES = (ip_network("127.0.0.0/8"),)


@pytest.fixture
async def hub(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> Any:
    told = {"proxies": PROXIES, "console_url": "https://hub.example.org"}
    async with replica(broker, tmp_path / "store", clock, **told) as api:
        api.hub.entrance.passwords = Passwords(CHEAPEST)
        yield api


@pytest.fixture
async def second(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> Any:
    async with replica(broker, tmp_path / "store", clock, proxies=PROXIES) as api:
        api.hub.entrance.passwords = Passwords(CHEAPEST)
        yield api


async def let_in(api: Api, name: str = "ada", **rights: Any) -> Browser:
    """A person with a password, in a browser of theirs."""
    body = {"name": name, "role": "owner", **rights}
    made = await api.ok("POST", "/v1/people", await api.make_key("operator"), body)
    browser = Browser(api, address="192.0.2.1")
    await browser.ok("POST", "/v1/session/start", {"token": made["token"], "password": PASSWORD})
    return browser


def credentials(name: str = "ada", password: str = PASSWORD, **more: str) -> dict[str, str]:
    return {"name": name, "password": password, **more}


async def with_authenticator(browser: Browser, clock: HandClock) -> str:
    secret = (await browser.ok("POST", "/v1/session/totp", {"password": PASSWORD}))["secret"]
    assert (await browser.ok("POST", "/v1/session/totp/confirm", {"code": code_at(secret, clock)}))["totp"]
    clock.advance(30)
    return str(secret)


async def test_a_person_comes_in_by_a_one_time_link_and_is_known_at_every_replica_and_after_a_restart(
    hub: Any, second: Any, broker: MemoryBroker, clock: HandClock, tmp_path: Path
) -> None:
    key = await hub.make_key("operator")
    made = await hub.ok("POST", "/v1/people", key, {"name": "ada@example.org", "display": "Ada", "role": "operator"})
    assert made["link"] == f"https://hub.example.org/#/welcome/{made['token']}", "what follows # is sent to nobody"
    assert made["state"] == "invited"
    browser = Browser(hub)
    start = {"token": made["token"], "password": "short"}
    assert (await browser.refused("POST", "/v1/session/start", start))[1] == "invalid-input"
    view = await browser.ok("POST", "/v1/session/start", start | {"password": PASSWORD})
    assert (view["person"], view["role"], view["projects"], view["totp"]) == (
        "ada@example.org",
        "operator",
        None,
        False,
    )
    assert (await Browser(hub).refused("POST", "/v1/session/start", start | {"password": NEW}))[0] == 401, "used once"
    async with replica(broker, tmp_path / "store", clock) as third:
        for api in (hub, second, third):
            elsewhere = Browser(api)
            elsewhere.cookies, elsewhere.csrf = browser.cookies, browser.csrf
            assert await elsewhere.ok("GET", "/v1/session") == view
            body = {"name": f"from-{id(api)}", "schema": {"kind": "open"}}
            assert (await elsewhere.ok("POST", "/v1/projects", body))["created_by"] == "person:ada@example.org"
        (entry, *_) = (await third.ok("GET", f"/v1/projects/{body['name']}/audit", key))["events"]
        assert (entry["actor"], entry["authority"]) == ("person:ada@example.org", "operator (Ada) for all projects")
    everyone = (await hub.ok("GET", "/v1/people", key))["people"]
    assert [(each["name"], each["state"], each["sessions"]) for each in everyone] == [("ada@example.org", "active", 1)]
    told = json.dumps(everyone) + "".join(str(entry.value) for entry in await hub.hub.buckets.people.list())
    assert PASSWORD not in told


async def test_cookies_are_out_of_reach_of_scripts_other_pages_and_plain_lines(hub: Any) -> None:
    at_home = await let_in(hub)
    abroad = Browser(hub, host="hub.example.org")
    await abroad.ok("POST", "/v1/session", credentials())
    assert set(at_home.cookies) == {"hanse_session", "hanse_browser"}, "on loopback, where there is no TLS"
    assert set(abroad.cookies) == {"__Host-hanse_session", "__Host-hanse_browser"}
    for browser, secure in ((at_home, ""), (abroad, True)):
        for cookie in browser.cookies.values():
            assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["domain"], cookie["secure"]) == (
                True, "Strict", "/", "", secure,
            )  # fmt: skip
    renamed = Browser(hub, host="hub.example.org")
    renamed.cookies = {"hanse_session": abroad.cookies["__Host-hanse_session"]}
    assert (await renamed.refused("GET", "/v1/session"))[0] == 401, "another host could have set it by that name"
    await abroad.ok("GET", "/v1/session")


async def test_a_page_of_elsewhere_changes_nothing_in_a_persons_name(hub: Any) -> None:
    browser, other = await let_in(hub), await let_in(hub, "bob")
    body = {"name": "alpha", "schema": {"kind": "open"}}
    for headers in (
        {"Hanse_CSRF": None}, {"Hanse_CSRF": "guessed"}, {"Hanse_CSRF": other.csrf},
        {"Origin": "https://evil.example.org"}, {"Origin": "null"}, {"Origin": None, "Sec_Fetch_Site": "cross-site"},
        {"Origin": "http://127.0.0.1:9090"},
    ):  # fmt: skip
        assert (await browser.refused("POST", "/v1/projects", body, **headers))[:2] == (403, "forbidden"), headers
    assert (await browser.ok("GET", "/v1/projects", Hanse_CSRF=None)) == {"projects": []}
    await browser.ok("POST", "/v1/projects", body)
    stranger = Browser(hub)  # nobody is made to be in somebody else's session, either
    for headers in ({"Origin": "https://evil.example.org"}, {"Content_Type": "text/plain"}):
        assert (await stranger.refused("POST", "/v1/session", credentials(), **headers))[:2] == (403, "forbidden")
    await stranger.ok("POST", "/v1/session", credentials())


async def test_a_session_ends_by_signing_out_by_idling_and_by_age(hub: Any, second: Any, clock: HandClock) -> None:
    browser = await let_in(hub)
    other = Browser(second)
    view = await other.ok("POST", "/v1/session", credentials())
    other.cookies["hanse_session"], kept = other.cookies["hanse_session"], other.cookies["hanse_session"]
    await other.ok("DELETE", "/v1/session")
    assert "hanse_session" not in other.cookies
    other.cookies["hanse_session"] = kept
    for _ in range(50):  # the watch of the first replica hears of it
        if await Copy(hub, other).is_out():
            break
    assert await Copy(hub, other).is_out()
    assert await Copy(second, other).is_out()
    for _ in range(30):
        clock.advance(view["idle_seconds"] - 1)
        status, _ = await browser.ask("GET", "/v1/session")
        if status == 401:
            break
    assert status == 401, "however busy it is"
    assert clock.now().isoformat() >= view["expires_at"][:19]
    fresh = Browser(hub, address="192.0.2.1")
    await fresh.ok("POST", "/v1/session", credentials())
    clock.advance(view["idle_seconds"])
    assert await Copy(hub, fresh).is_out()


class Copy(Browser):
    """A browser with another's cookies."""

    def __init__(self, api: Any, other: Browser) -> None:
        super().__init__(api)
        self.cookies, self.csrf = dict(other.cookies), other.csrf

    async def is_out(self) -> bool:
        return (await self.ask("GET", "/v1/session"))[0] == 401


async def test_forged_cookies_open_nothing_and_headers_win_over_cookies(hub: Any) -> None:
    browser = await let_in(hub)
    good = browser.cookies["hanse_session"].value
    key = await hub.make_key("operator")
    for forged in ("", "x", good[:-43] + "x" * 43, good.replace("session_", "start_"), key, "session_" + key[6:]):
        made = Browser(hub)
        made.cookies = dict(browser.cookies)
        made.cookies["hanse_session"] = type(browser.cookies["hanse_session"])()
        made.cookies["hanse_session"].set("hanse_session", forged, forged)
        assert (await made.refused("GET", "/v1/session"))[:2] == (401, "unauthenticated"), forged
    assert (await browser.refused("GET", "/v1/session", Authorization="Bearer sesame"))[0] == 401
    assert (await browser.refused("GET", "/v1/session", Authorization=f"Bearer {key}"))[:2] == (403, "forbidden")
    await browser.ok("GET", "/v1/session")


@pytest.mark.parametrize(
    ("header", "value"),
    [("Host", "["), ("Cookie", "hanse_browser=x.\u00e4"), ("Hanse_CSRF", "\u00e4"), ("Origin", "http://[")],
)
async def test_headers_that_nobody_sends_are_refused_and_no_defect(hub: Any, header: str, value: str) -> None:
    """And do not tell who is here: a person who is answered another way than one who is not."""
    browser = await let_in(hub)
    answers = [
        await Browser(hub).refused("POST", "/v1/session", credentials(name, password=NEW), **{header: value})
        for name in ("ada", "nobody")
    ]
    assert answers[0][:2] == answers[1][:2]
    assert answers[0][0] in (401, 403)
    if header != "Cookie":
        assert (await browser.refused("POST", "/v1/projects", {"name": "p"}, **{header: value}))[0] in (401, 403)


async def test_somebody_who_guesses_shuts_out_strangers_and_not_the_person(hub: Any, clock: HandClock) -> None:
    browser = await let_in(hub)
    await browser.ok("DELETE", "/v1/session")
    tried = 0
    for tried in range(attempts.OF_A_PERSON + 1):
        guess = Browser(hub, address=f"198.51.100.{tried}")
        status, code, _ = await guess.refused("POST", "/v1/session", credentials(password=f"guess number {tried}"))
        assert (status, code) == ((401, "unauthenticated") if tried < attempts.OF_A_PERSON else (429, "too-many"))
    assert (await guess.refused("POST", "/v1/session", credentials()))[1] == "too-many", "not even by the password"
    await browser.ok("POST", "/v1/session", credentials())  # the person's own browser shows its cookie
    forged = Browser(hub, address="198.51.100.77")
    forged.cookies = {"hanse_browser": type(browser.cookies["hanse_browser"])()}
    forged.cookies["hanse_browser"].set("hanse_browser", "f" * 16 + "." + "0" * 64, "")
    assert (await forged.refused("POST", "/v1/session", credentials()))[1] == "too-many"
    reset = await hub.ok("POST", "/v1/people/ada/reset", await hub.make_key("operator"))
    new_machine = Browser(hub, address="198.51.100.78")
    await new_machine.ok("POST", "/v1/session/start", {"token": reset["token"], "password": NEW})
    clock.advance(attempts.WINDOW_S)
    await Browser(hub, address="198.51.100.79").ok("POST", "/v1/session", credentials(password=NEW))


async def test_whose_request_it_is_says_who_has_the_console_s_secret_and_nobody_else_on_its_machine(
    broker: MemoryBroker, clock: HandClock, tmp_path: Path
) -> None:
    async with replica(broker, tmp_path / "store", clock, proxy_secret="the console's") as api:
        api.hub.entrance.passwords = Passwords(CHEAPEST)

        async def spray(first: int, **headers: str) -> list[int]:
            """Answers to as many as one address may try, and one more, each of another name and address."""
            return [
                (await Browser(api, address=f"192.0.{each}.1").ask(
                    "POST", "/v1/session", credentials(f"p{first + each}"), **headers
                ))[0]
                for each in range(attempts.OF_AN_ADDRESS + 1)
            ]  # fmt: skip

        assert set(await spray(100, Hanse_Proxy="the console's")) == {401}, "the control: these are many"
        for first, forged in ((200, {}), (300, {"Hanse_Proxy": ""}), (400, {"Hanse_Proxy": "guessed"})):
            assert (await spray(first, **forged))[-1] == 429, forged


async def test_one_address_tries_so_many_people_and_a_household_is_one_address(hub: Any) -> None:
    await let_in(hub)
    for tried in range(attempts.OF_AN_ADDRESS):
        guess = Browser(hub, address=f"2001:db8::{tried:x}")
        assert (await guess.refused("POST", "/v1/session", credentials(f"name{tried}")))[0] == 401
    assert (await Browser(hub, address="2001:db8::ffff").refused("POST", "/v1/session", credentials()))[0] == 429
    await Browser(hub, address="2001:db9::1").ok("POST", "/v1/session", credentials())


def test_an_address_is_itself_however_it_is_written() -> None:
    """A server that takes both kinds of addresses writes those of IPv4 in IPv6's form: not all of them are one."""
    assert address_of(_asked("::ffff:127.0.0.1", "192.0.2.7"), PROXIES) == "192.0.2.7", "it is a trusted proxy"
    assert address_of(_asked("::ffff:10.0.0.1", "192.0.2.7"), PROXIES) == "10.0.0.1", "and this one is none"
    assert address_of(_asked("127.0.0.1", "::ffff:192.0.2.7"), PROXIES) == "192.0.2.7"
    assert address_of(_asked("2001:db8::1", "192.0.2.7"), PROXIES) == "2001:db8::1"


def _asked(peer: str, forwarded: str) -> Any:
    return make_mocked_request("GET", "/", {"X-Forwarded-For": forwarded}).clone(remote=peer)


async def test_a_code_is_asked_for_taken_once_and_not_to_be_guessed(hub: Any, clock: HandClock) -> None:
    browser = await let_in(hub)
    secret = await with_authenticator(browser, clock)
    stranger = Browser(hub, address="198.51.100.1")
    assert (await stranger.refused("POST", "/v1/session", credentials()))[:2] == (401, "second-factor")
    assert (await stranger.refused("POST", "/v1/session", credentials(password="x" * 20)))[1] == "unauthenticated"
    code = code_at(secret, clock)
    wrong = "000000" if code != "000000" else "000001"
    assert (await stranger.refused("POST", "/v1/session", credentials(code=wrong)))[1] == "second-factor"
    await stranger.ok("POST", "/v1/session", credentials(code=code))
    overheard = Browser(hub, address="198.51.100.2")
    assert (await overheard.refused("POST", "/v1/session", credentials(code=code)))[1] == "second-factor", "taken once"
    clock.advance(30)
    await overheard.ok("POST", "/v1/session", credentials(code=code_at(secret, clock)))
    for _ in range(attempts.OF_A_PERSON):
        _, told, _ = await Browser(hub, address="198.51.100.3").refused("POST", "/v1/session", credentials(code=wrong))
    assert told == "too-many"
    clock.advance(attempts.WINDOW_S)
    removal = {"password": PASSWORD, "code": code_at(secret, clock)}
    assert (await browser.refused("POST", "/v1/session/totp/remove", removal | {"password": NEW}))[0] == 403
    assert not (await browser.ok("POST", "/v1/session/totp/remove", removal))["totp"]


async def test_a_changed_password_ends_all_other_sessions_and_a_reset_all(hub: Any) -> None:
    browser = await let_in(hub)
    thief = Copy(hub, browser)
    other = Browser(hub, address="192.0.2.9")
    await other.ok("POST", "/v1/session", credentials())
    change = {"password": PASSWORD, "new_password": NEW}
    assert (await thief.refused("POST", "/v1/session/password", change | {"password": "not it, I guess"}))[0] == 403
    await browser.ok("POST", "/v1/session/password", change)
    assert await thief.is_out()
    assert await Copy(hub, other).is_out()
    await browser.ok("GET", "/v1/session")
    assert (await other.refused("POST", "/v1/session", credentials()))[0] == 401
    operator = await hub.make_key("operator")
    await hub.ok("POST", "/v1/people/ada/reset", operator)
    assert await Copy(hub, browser).is_out()
    assert (await browser.refused("POST", "/v1/session", credentials(password=NEW)))[0] == 401, "void at once"


@pytest.mark.parametrize("asked", ["password", "totp"])
async def test_a_reset_stands_against_a_change_that_was_under_way(
    hub: Any, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever knows the password and hurries has not got a password, nor an authenticator, after the reset."""
    browser, operator = await let_in(hub), await hub.make_key("operator")
    where, hasten = hub.hub.entrance, hub.hub.entrance.again

    async def overtaken(*given: Any, **more: Any) -> Any:
        person = await hasten(*given, **more)
        await hub.ok("POST", "/v1/people/ada/reset", operator)
        return person

    monkeypatch.setattr(type(where), "again", lambda _, *given, **more: overtaken(*given, **more))
    body = {"password": PASSWORD} | ({"new_password": NEW} if asked == "password" else {})
    assert (await browser.refused("POST", f"/v1/session/{asked}", body))[1] == "conflict"
    person = await hub.hub.people.read(person_key("ada"))
    assert (person.password, person.asked_totp) == (None, None)


async def test_rights_work_at_once_in_open_sessions_and_nobody_changes_their_own(hub: Any) -> None:
    boss, browser = await let_in(hub, "boss", role="operator"), await let_in(hub)
    await browser.ok("POST", "/v1/projects", {"name": "alpha", "schema": {"kind": "open"}})
    await boss.ok("POST", "/v1/projects", {"name": "beta", "schema": {"kind": "open"}})
    await boss.ok("POST", "/v1/people/ada/rights", {"role": "owner", "projects": ["beta"]})
    assert [each["name"] for each in (await browser.ok("GET", "/v1/projects"))["projects"]] == ["beta"]
    _, code, message = await browser.refused("GET", "/v1/projects/alpha/runs")
    assert (code, "ada" in message) == ("forbidden", True)
    assert (await browser.refused("POST", "/v1/people/ada/rights", {"role": "operator"}))[0] == 403
    assert (await boss.refused("POST", "/v1/people/ada/rights", {"role": "owner", "projects": ["none"]}))[0] == 404
    assert (await boss.refused("POST", "/v1/people/boss/rights", {"role": "owner"}))[1] == "conflict"
    assert (await boss.refused("DELETE", "/v1/people/boss"))[1] == "conflict"
    await boss.ok("DELETE", "/v1/people/ada")
    assert await Copy(hub, browser).is_out()
    assert (await browser.refused("POST", "/v1/session", credentials()))[0] == 401
    assert (await boss.refused("POST", "/v1/people/ada/reset"))[1] == "gone"
    again = await boss.ok("POST", "/v1/people", {"name": "ada", "role": "owner"})
    await Browser(hub).ok("POST", "/v1/session/start", {"token": again["token"], "password": NEW})
    assert await Copy(hub, browser).is_out(), "what was open before stays over"
    assert (await boss.refused("POST", "/v1/people", {"name": "ada", "role": "owner"}))[1] == "conflict"


async def test_links_end_and_are_good_for_one_person(hub: Any, clock: HandClock) -> None:
    operator = await hub.make_key("operator")
    made = await hub.ok("POST", "/v1/people", operator, {"name": "ada", "role": "owner"})
    await hub.ok("POST", "/v1/people", operator, {"name": "boss", "role": "operator"})
    for forged in (made["token"][:-43] + "x" * 43, made["token"].replace("start_", "session_"), operator, "x"):
        body = {"token": forged, "password": PASSWORD}
        assert (await Browser(hub).refused("POST", "/v1/session/start", body))[:2] == (401, "unauthenticated")
    clock.advance(3 * 86_400)
    body = {"token": made["token"], "password": PASSWORD}
    assert (await Browser(hub).refused("POST", "/v1/session/start", body))[:2] == (410, "gone")


async def test_a_person_has_so_many_sessions_and_the_longest_idle_one_ends(hub: Any, clock: HandClock) -> None:
    await hub.make_person("ada")
    opened = []
    for _ in range(MOST_OF_A_PERSON + 1):
        opened.append(await Browser(hub).enter("ada"))
        clock.advance(1)
    out = [await Copy(hub, browser).is_out() for browser in opened]
    assert out == [True, *[False] * MOST_OF_A_PERSON]


async def test_no_secret_is_in_a_refusal_a_log_or_the_audit(hub: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    browser = await let_in(hub, role="operator")
    tried = (credentials(password=NEW), {"password": NEW}, {"name": 3, "password": NEW}, credentials(more=NEW))
    said = [await Browser(hub).refused("POST", "/v1/session", body) for body in tried]
    said.append(await Browser(hub).refused("POST", "/v1/session/start", {"token": "start_" + NEW, "password": NEW}))
    said.append(await browser.ok("GET", "/v1/audit"))
    secrets = (NEW, PASSWORD, browser.csrf, browser.cookies["hanse_session"].value[-43:])
    assert not [secret for secret in secrets if secret in f"{said} {caplog.text}"]


async def test_no_cache_between_keeps_what_somebody_was_told(hub: Any) -> None:
    operator = await hub.make_key("operator")
    for path, key in (("/v1/people", operator), ("/v1/people", None)):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with hub.client.get(path, headers=headers) as answer:
            assert (answer.ok, answer.headers.get("Cache-Control")) == (key is not None, "no-store")


async def test_a_hub_may_know_no_passwords_at_all(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> None:
    async with replica(broker, tmp_path / "store", clock, local_people=False) as api:
        assert await Browser(api).ok("GET", "/v1/sign-in") == {"local": False, "provider": None}
        assert (await Browser(api).refused("POST", "/v1/session", credentials()))[:2] == (403, "forbidden")


@pytest.mark.parametrize("end", ["sign out", "another project", "revoke the key", "nothing"])
@pytest.mark.parametrize("busy", [False, True])
async def test_who_may_no_more_is_told_no_more_of_a_run(
    hub: Any, end: str, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of one in which nothing happens, nor of one in which something always does."""
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.05)
    operator, owner = await hub.make_key("operator"), await hub.make_key("owner")
    for project in ("alpha", "beta"):
        await hub.ok("POST", "/v1/projects", owner, {"name": project, "schema": SCHEMA})
    run = (await hub.ok("POST", "/v1/projects/alpha/runs", owner, {"job": JOB}))["run"]
    await hub.make_person("ada")
    browser = await Browser(hub).enter("ada")
    headers = {"Host": LOOPBACK, "Cookie": f"hanse_session={browser.cookies['hanse_session'].value}"}
    if end == "revoke the key":
        headers = {"Authorization": f"Bearer {owner}"}

    async def happen() -> None:
        event = RunEvent(project="alpha", run=run, kind="note", at=hub.clock.now(), round=0, data={})
        while busy:
            await hub.hub.bus.publish(EVENT.of(project="alpha", run=run), event.encode())
            await asyncio.sleep(0.01)

    happening = asyncio.create_task(happen())
    sign = b"event: note" if busy else b"still here"
    try:
        async with (
            asyncio.timeout(60),
            hub.client.get(f"/v1/projects/alpha/runs/{run}/events", headers=headers) as told,
        ):
            await told.content.readuntil(sign)
            if end == "sign out":
                await browser.ok("DELETE", "/v1/session")
            elif end == "another project":
                await hub.ok("POST", "/v1/people/ada/rights", operator, {"role": "owner", "projects": ["beta"]})
            elif end == "revoke the key":
                await hub.ok("DELETE", f"/v1/keys/{owner.split('_')[1]}", operator)
            else:
                for _ in range(20 if busy else 5):  # the control: it goes on
                    await told.content.readuntil(sign)
                return
            await told.content.read()
    finally:
        happening.cancel()


async def test_keys_that_an_operator_made_do_not_outlive_their_rights(hub: Any, second: Any) -> None:
    first = await hub.make_key("operator")
    await hub.make_person("ada", "operator")
    browser = Browser(hub)
    await browser.enter("ada")
    made = await browser.ok("POST", "/v1/keys", {"role": "operator", "name": "of ada"})
    other = await hub.ok("POST", "/v1/keys", made["key"], {"role": "owner", "name": "made by that key"})
    for key in (made["key"], other["key"]):
        await second.ok("GET", "/v1/projects", key)
    await hub.ok("POST", "/v1/people/ada/rights", first, {"role": "owner"})
    for key in (made["key"], other["key"]):
        _, code, message = await hub.refused("GET", "/v1/projects", key)
        assert (code, "person:ada, who made it, is no operator any more" in message) == ("unauthenticated", True)
    await hub.ok("POST", "/v1/people/ada/rights", first, {"role": "operator"})
    await hub.ok("GET", "/v1/projects", other["key"])
    await hub.ok("DELETE", "/v1/people/ada", first)
    hub.clock.advance(1)
    await hub.ok("POST", "/v1/people", first, {"name": "ada", "role": "operator"})
    listed = {key["name"]: key["void"] for key in (await hub.ok("GET", "/v1/keys", first))["keys"]}
    assert (listed["of ada"], listed["made by that key"], listed[""]) == (True, True, False)
    assert (await hub.refused("GET", "/v1/projects", made["key"]))[1] == "unauthenticated", "another of that name"


async def test_a_sites_key_is_its_own_whoever_invited_it(hub: Any, second: Any) -> None:
    operator = await hub.make_key("operator")
    await hub.ok("POST", "/v1/projects", operator, {"name": "alpha", "schema": SCHEMA})
    await hub.make_person("ada", "owner")
    browser = Browser(hub)
    await browser.enter("ada")
    invited = await browser.ok("POST", "/v1/projects/alpha/invitations", {"participant": "north"})
    joined = await hub.ok("POST", "/v1/join", body=await Site().body(hub, invited["token"]))
    for api in (hub, second):
        await api.ok("GET", "/v1/projects/alpha", joined["api_key"])
    await hub.ok("DELETE", "/v1/people/ada", operator)
    await second.ok("GET", "/v1/projects/alpha", joined["api_key"])
    await hub.ok("POST", "/v1/projects/alpha/participants/north/revoke", operator)
    assert (await hub.refused("GET", "/v1/projects/alpha", joined["api_key"]))[1] == "unauthenticated"
