"""Sessions of people in browsers: cookies, where they end, and who plays them.

Each attack has its control beside it: the same request, with what the defence asks for.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from browsers import Browser
from clocks import HandClock
from hanse_coordinator.people.sessions import MOST_OF_A_PERSON
from unit.coordinator_api.people import NEW, PASSWORD, Copy, credentials, hub, let_in, second

__all__ = ["hub", "second"]


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
