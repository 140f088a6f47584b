"""Signing in by a provider of identities, against a provider that speaks the standard, and against one that lies."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey

from browsers import LOOPBACK, Browser
from clocks import HandClock
from hanse_coordinator.api.provider import CALLBACK
from hanse_coordinator.people import provider as module
from hanse_coordinator.people.provider import ProviderTerms
from hanse_coordinator.settings import CoordinatorSettings, roles_of
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.clock import SystemClock
from hanse_fabric.errors import HanseError
from hanse_fabric.settings import load_settings
from hub_api import replica
from oidc_provider import CLIENT, LIFE_S, SECRET, TestProvider, provider_on, truthful

REDIRECT = f"http://{LOOPBACK}{CALLBACK}"
ROLES = """{"admins": {"role": "operator"}, "cardiology": {"role": "owner", "projects": ["alpha"]},
 "wards of the north": {"role": "owner", "projects": ["beta"]}}"""
Lie = Callable[[dict[str, Any], dict[str, Any]], None]


class Hospital:
    """A hub with two replicas, and its provider."""

    def __init__(self, one: Any, two: Any, provider: TestProvider) -> None:
        self.one, self.two, self.provider = one, two, provider

    async def sign_in(self, browser: Browser | None = None, *, back_at: Any = None) -> tuple[str, Browser]:
        """(where the browser ends, the browser): it may come back to another replica than it left from."""
        browser = browser or Browser(self.one)
        url = (await browser.ok("POST", "/v1/session/provider", {}))["url"]
        back = await self.provider.send_back(url)
        browser._api = back_at or self.one
        status, headers = await browser.ask("GET", back, Origin=None, Sec_Fetch_Site="cross-site")
        assert status == 303
        return headers["Location"], browser


@pytest.fixture
async def hospital(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> Any:
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(provider_on(clock, REDIRECT))
        provider.person["groups"] = ["staff", "cardiology", "wards of the north"]
        terms = ProviderTerms(
            issuer=provider.issuer, client=CLIENT, secret=SECRET, redirect=REDIRECT, label="Hospital",
            roles=roles_of(ROLES),
        )  # fmt: skip
        told = {"provider": terms, "console_url": f"http://{LOOPBACK}"}
        apis = [await stack.enter_async_context(replica(broker, tmp_path / "store", clock, **told)) for _ in range(2)]
        yield Hospital(apis[0], apis[1], provider)


async def test_a_person_goes_to_the_provider_and_comes_back_with_what_their_groups_may(
    hospital: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await Browser(hospital.one).ok("GET", "/v1/sign-in"))["provider"] == {"label": "Hospital"}
    where, browser = await hospital.sign_in(back_at=hospital.two)
    assert where == "/"
    assert browser.cookies.keys() == {"hanse_session"}, "the cookie of the way there is gone"
    assert browser.cookies["hanse_session"]["samesite"] == "Strict"
    view = await browser.ok("GET", "/v1/session")
    assert (view["source"], view["role"], view["projects"]) == ("provider", "owner", ["alpha", "beta"])
    assert view["display"] == "Ada Lovelace <ada@example.org>"
    hospital.provider.person["groups"] = "admins"
    _, again = await hospital.sign_in()
    view = await again.ok("GET", "/v1/session")
    assert (view["role"], view["projects"]) == ("operator", None)
    await browser.ok("GET", "/v1/session")
    log = (await again.ok("GET", "/v1/audit"))["events"]
    assert {entry["actor"] for entry in log} == {f"person:{view['person']}"}
    assert "Ada Lovelace" in log[-1]["authority"]
    assert hospital.provider.issuer in log[-1]["authority"]
    for method, path, body in (
        ("POST", "/v1/session/totp", {"password": "x"}), ("POST", f"/v1/people/{view['person']}/reset", None)
    ):  # fmt: skip
        assert (await again.refused(method, path, body))[1] == "conflict"
    assert "code-" not in caplog.text


async def test_who_is_in_no_known_group_or_was_revoked_is_not_let_in_and_what_was_open_is_over(hospital: Any) -> None:
    _, browser = await hospital.sign_in()
    name = (await browser.ok("GET", "/v1/session"))["person"]
    hospital.provider.person["groups"] = ["staff"]
    assert (await hospital.sign_in())[0] == "/#/sign-in/refused/no-role"
    assert (await browser.refused("GET", "/v1/session"))[0] == 401
    hospital.provider.person["groups"] = ["admins"]
    assert (await hospital.sign_in())[0] == "/"
    await hospital.one.ok("DELETE", f"/v1/people/{name}", await hospital.one.make_key("operator"))
    assert (await hospital.sign_in())[0] == "/#/sign-in/refused/revoked"


async def test_groups_may_stand_beside_the_token_for_the_same_person_alone(hospital: Any) -> None:
    del hospital.provider.person["groups"]
    hospital.provider.userinfo = {"sub": "another", "groups": ["admins"]}
    assert (await hospital.sign_in())[0] == "/#/sign-in/refused/token"
    hospital.provider.userinfo = {"sub": "4711", "groups": ["admins"]}
    assert (await hospital.sign_in())[0] == "/"


def _claims(**changed: Any) -> Lie:
    return lambda claims, _: claims.update(changed)


def _without(name: str) -> Lie:
    return lambda claims, _: claims.pop(name)


LIES: dict[str, Lie] = {
    "another nonce": _claims(nonce="another"),
    "no nonce": _without("nonce"),
    "another audience": _claims(aud="another client"),
    "several audiences": _claims(aud=[CLIENT, "another client"]),
    "another authorized party": _claims(azp="another client"),
    "another issuer": _claims(iss="https://evil.example.org"),
    "expired": lambda claims, _: claims.update(exp=claims["exp"] - 2 * LIFE_S, iat=claims["iat"] - 2 * LIFE_S),
    "never ends": _without("exp"),
    "of tomorrow": lambda claims, _: claims.update(iat=claims["iat"] + 86_400, exp=claims["exp"] + 86_400),
    "no subject": _without("sub"),
    "a subject that is no text": _claims(sub=4711),
    "no signature": lambda _, header: header.update(alg="none"),
    "an unknown key": lambda _, header: header.update(kid="three"),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_token_that_is_wrong_in_anything_lets_nobody_in(hospital: Any, lie: str) -> None:
    hospital.provider.lie = LIES[lie]
    where, browser = await hospital.sign_in()
    assert where == "/#/sign-in/refused/token"
    assert (await browser.refused("GET", "/v1/session"))[0] == 401
    hospital.provider.lie = truthful
    assert (await hospital.sign_in(browser))[0] == "/"


async def test_keys_of_others_sign_nothing_and_the_providers_own_may_be_changed(
    hospital: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await hospital.sign_in())[0] == "/"
    provider = hospital.provider
    provider.signs_with = ECKey.generate_key("P-256", {"kid": "one"})
    assert (await hospital.sign_in())[0] == "/#/sign-in/refused/token", "by the provider's name, and another key"
    provider.signs_with = OctKey.import_key(SECRET)
    provider.lie = lambda _, header: header.update(alg="HS256")
    assert (await hospital.sign_in())[0] == "/#/sign-in/refused/token", "a MAC by what the hub knows, too"
    provider.signs_with, provider.lie = None, truthful
    provider.rotate()
    asked = provider.asked.count("keys")
    assert (await hospital.sign_in())[0] == "/#/sign-in/refused/token", "it was asked a moment ago"
    assert provider.asked.count("keys") == asked
    monkeypatch.setattr(module, "_MOST_OFTEN_S", 0.0)
    assert (await hospital.sign_in())[0] == "/"
    assert provider.asked.count("keys") == asked + 1


async def test_an_answer_is_good_for_the_browser_that_asked_and_once(hospital: Any) -> None:
    victim, attacker = Browser(hospital.one), Browser(hospital.one)
    theirs = await hospital.provider.send_back((await attacker.ok("POST", "/v1/session/provider", {}))["url"])
    own = await hospital.provider.send_back((await victim.ok("POST", "/v1/session/provider", {}))["url"])
    cookie = dict(victim.cookies)
    mixed = own.replace(own.split("code=")[1].split("&")[0], theirs.split("code=")[1].split("&")[0])
    for back, word in (
        (theirs, "state"), (own.split("&state=")[0], "state"), (mixed, "provider"),
        (own.replace("iss=http", "iss=https"), "provider"), (own.split("&iss=")[0], "provider"),
        (own.replace("code=", "error=access_denied&was="), "provider"),
    ):  # fmt: skip
        victim.cookies = dict(cookie)
        assert (await victim.ask("GET", back))[1]["Location"] == f"/#/sign-in/refused/{word}", back
    stranger = Browser(hospital.one)
    assert (await stranger.ask("GET", own))[1]["Location"] == "/#/sign-in/refused/state", "another browser"
    victim.cookies = dict(cookie)
    assert (await victim.ask("GET", own))[1]["Location"] == "/"
    victim.cookies = dict(cookie)
    assert (await victim.ask("GET", own))[1]["Location"] == "/#/sign-in/refused/provider", "a second time"
    for headers in ({"Origin": "https://evil.example.org"}, {"Content_Type": "text/plain"}):
        assert (await stranger.refused("POST", "/v1/session/provider", {}, **headers))[1] == "forbidden"


async def test_a_provider_that_calls_itself_otherwise_or_is_away_is_not_used(hospital: Any) -> None:
    right, hospital.provider.issuer = hospital.provider.issuer, "https://evil.example.org"
    _, code, message = await Browser(hospital.one).refused("POST", "/v1/session/provider", {})
    assert code == "unavailable"
    assert "evil" not in message
    hospital.provider.issuer = right
    assert (await hospital.sign_in())[0] == "/"


async def test_strangers_do_not_stand_in_line_at_a_provider_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who waited while it was asked have its answer, too: otherwise each would wait for all before."""
    monkeypatch.setattr(module, "_WITHIN_S", 0.3)
    asked = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        provider = module.Provider(ProviderTerms(f"http://127.0.0.1:{port}", CLIENT, REDIRECT), SystemClock())
        for round_of_them in (1, 2):
            async with asyncio.timeout(30):
                told = await asyncio.gather(*(provider.address("s") for _ in range(20)), return_exceptions=True)
            assert {getattr(each, "word", each) for each in told} == {"unavailable"}
            assert len(asked) == round_of_them, "who comes later asks anew"


GIVEN = {
    "HANSE_OIDC_ISSUER": "https://login.example.org", "HANSE_OIDC_CLIENT": "hanse",
    "HANSE_CONSOLE_URL": "https://hub.example.org", "HANSE_OIDC_ROLES": ROLES,
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"HANSE_OIDC_ISSUER": "http://login.example.org"}, {"HANSE_OIDC_CLIENT": ""}, {"HANSE_CONSOLE_URL": ""},
        {"HANSE_OIDC_ROLES": '{"admins": "operator"}'}, {"HANSE_OIDC_ROLES": '{"admins": {"role": "king"}}'},
        {"HANSE_CONSOLE_URL": "hub.example.org"},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused_at_start(wrong: dict[str, str], monkeypatch: Any) -> None:
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    assert load_settings(CoordinatorSettings).oidc_client == "hanse"
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(HanseError, match=r"HANSE_(OIDC|CONSOLE)"):
        load_settings(CoordinatorSettings)


def test_the_page_for_operators_names_settings_that_there_are_and_roles_that_are_read(monkeypatch: Any) -> None:
    page = (Path(__file__).parents[3] / "docs/signing-in.md").read_text()
    known = {f"HANSE_{name.upper()}" for name in CoordinatorSettings.model_fields} | {"HANSE_URL", "HANSE_API_KEY"}
    assert set(re.findall(r"HANSE_[A-Z_]+[A-Z]", page)) <= known
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    for line in block.splitlines():
        (word,) = shlex.split(line)
        monkeypatch.setenv(*word.split("=", 1))
    settings = load_settings(CoordinatorSettings)
    assert roles_of(settings.oidc_roles)["cardiology"].projects == ("triage",)
    assert settings.console_url + CALLBACK in page
