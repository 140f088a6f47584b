"""People who sign in, by a one-time link, password and code; and who plays them.

Each attack has its control beside it: the same request, with what the defence asks for.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request
from argon2.profiles import CHEAPEST

from browsers import Browser, code_at
from clocks import HandClock
from hanse_coordinator.api.door import address_of
from hanse_coordinator.people import attempts
from hanse_coordinator.people.passwords import Passwords
from hanse_coordinator.people.records import person_key
from hanse_fabric.bus.memory import MemoryBroker
from hub_api import replica
from unit.coordinator_api.people import NEW, PASSWORD, PROXIES, Copy, credentials, hub, let_in, second

__all__ = ["hub", "second"]


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
    told = [view[each] for each in ("person", "role", "projects", "totp")]
    assert told == ["ada@example.org", "operator", None, False]
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


async def test_a_hub_may_know_no_passwords_at_all(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> None:
    async with replica(broker, tmp_path / "store", clock, local_people=False) as api:
        assert await Browser(api).ok("GET", "/v1/sign-in") == {"local": False, "provider": None}
        assert (await Browser(api).refused("POST", "/v1/session", credentials()))[:2] == (403, "forbidden")
