"""Every route with every kind of key: made from the table of routes, so that a new route is tested by being there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from browsers import Browser
from hanse_coordinator.api.route import Route
from hanse_coordinator.api.table import ROUTES
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.identity.secrets import make_api_key
from hanse_schemas.http.keys import ApiRole

PATH = {
    "project": "alpha",
    "participant": "north",
    "run": "a" * 12,
    "invitation": "b" * 12,
    "key": "c" * 12,
    "version": "1",
    "output": "results",
    "region": "hub",
    "person": "ada",
    "leaf_key": KeyPair.create(KeyKind.USER).public,
}
STRANGERS = ("nobody", "not a key", "unknown key", "wrong secret", "revoked key", "join token")
HOLDERS: dict[str, tuple[ApiRole, str | None]] = {
    "owner of all": (ApiRole.OWNER, None),
    "owner of alpha": (ApiRole.OWNER, "alpha"),
    "owner of beta": (ApiRole.OWNER, "beta"),
    "site of alpha": (ApiRole.SITE, "alpha"),
    "site of beta": (ApiRole.SITE, "beta"),
    "operator": (ApiRole.OPERATOR, None),
}


def _path(route: Route) -> str:
    return re.sub(r"{(\w+)}", lambda found: PATH[found[1]], route.path)


def _may(route: Route, role: ApiRole, project: str | None) -> bool:
    if not route.roles or route.in_person:
        return not route.roles
    scoped_away = project is not None and (route.unscoped or ("{project}" in route.path and project != "alpha"))
    return role in route.roles and not scoped_away


async def _stranger_header(api: Any, who: str) -> dict[str, str]:
    key = await api.make_key("operator", revoked=who == "revoked key")
    texts = {
        "not a key": "Bearer sesame",
        "unknown key": f"Bearer {make_api_key().text}",
        "wrong secret": f"Bearer {key[:-43]}{'x' * 43}",
        "revoked key": f"Bearer {key}",
        "join token": f"Bearer join{key[5:]}",
    }
    return {"Authorization": texts[who]} if who in texts else {}


async def _ask(api: Any, route: Route, headers: dict[str, str]) -> tuple[int, str]:
    """(status, code of the refusal)."""
    async with api.client.request(route.method, _path(route), headers=headers) as response:
        body = await response.json()
        assert response.status < 400 or set(body["error"]) == {"code", "message", "hint"}
        return response.status, body.get("error", {}).get("code", "")


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_is_refused_by_every_route_that_is_not_public(api: Any, owner: str, who: str) -> None:
    headers = await _stranger_header(api, who)
    for route in ROUTES:
        status, code = await _ask(api, route, headers)
        assert (code == "unauthenticated") == (status == 401) == bool(route.roles), route.name


@pytest.mark.parametrize("who", HOLDERS)
async def test_a_key_opens_the_routes_of_its_role_and_project_and_no_others(
    api: Any, owner: str, registry: Any, who: str
) -> None:
    role, project = HOLDERS[who]
    key = await api.make_key(role.value, project, participant="north" if role is ApiRole.SITE else None)
    for route in ROUTES:
        status, code = await _ask(api, route, {"Authorization": f"Bearer {key}"})
        if _may(route, role, project):
            assert status not in (401, 403), route.name
        else:
            assert (status, code) == (403, "forbidden"), route.name


def test_every_route_but_a_few_needs_a_key_or_a_session() -> None:
    assert {(route.method, route.path) for route in ROUTES if not route.roles} == {
        ("GET", "/v1/hub"), ("POST", "/v1/join"), ("POST", "/v1/join/challenge"), ("POST", "/v1/renew"),
        ("POST", "/v1/join/preview"), ("POST", "/v1/consent"), ("POST", "/v1/leave"),
        ("GET", "/v1/sign-in"), ("POST", "/v1/session"), ("POST", "/v1/session/start"),
        ("POST", "/v1/session/provider"), ("GET", "/v1/session/provider/callback"),
    }  # fmt: skip


PEOPLE: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "owner of all": ("owner", None), "owner of alpha": ("owner", ("alpha",)), "operator": ("operator", None),
    "owner of beta and gamma": ("owner", ("beta", "gamma")),
}  # fmt: skip


@pytest.mark.parametrize("who", PEOPLE)
async def test_a_session_opens_the_routes_of_the_persons_role_and_projects_and_no_others(
    api: Any, owner: str, registry: Any, who: str
) -> None:
    role, projects = PEOPLE[who]
    await api.make_person("somebody", role, projects)
    for route in ROUTES:
        browser = await Browser(api).enter("somebody")
        status, answer = await browser.ask(route.method, _path(route))
        scoped_away = projects is not None and (
            route.unscoped or ("{project}" in route.path and "alpha" not in projects)
        )
        if not route.roles or (ApiRole(role) in route.roles and not scoped_away):
            assert status != 401, (route.name, answer)
            assert status != 403 or not route.roles, (route.name, answer)
        else:
            assert (status, answer["error"]["code"]) == (403, "forbidden"), route.name


async def test_a_scoped_key_lists_its_own_project_alone(api: Any, owner: str) -> None:
    await api.ok("POST", "/v1/projects", owner, {"name": "beta", "schema": {"kind": "open"}})
    everything = await api.ok("GET", "/v1/projects", owner)
    own = await api.ok("GET", "/v1/projects", await api.make_key("site", "beta"))
    assert [item["name"] for item in everything["projects"]] == ["alpha", "beta"]
    assert [item["name"] for item in own["projects"]] == ["beta"]


def test_sites_read_models_outputs_and_themselves_and_nothing_of_single_sites() -> None:
    """Runs, events, metrics and the audit tell of others."""
    theirs = [route for route in ROUTES if ApiRole.SITE in route.roles]
    assert {(route.method, route.path.removeprefix("/v1/projects")) for route in theirs} == {
        ("GET", ""), ("GET", "/{project}"), ("GET", "/{project}/participants/{participant}"),
        ("GET", "/{project}/models"), ("GET", "/{project}/models/{version}"),
        ("GET", "/{project}/models/{version}/download"), ("GET", "/{project}/runs/{run}/outputs"),
        ("GET", "/{project}/runs/{run}/outputs/{output}"),
    }  # fmt: skip


async def test_a_site_sees_no_other_site(api: Any, owner: str) -> None:
    key = await api.make_key("site", "alpha", participant="south")
    status, code, message = await api.refused("GET", "/v1/projects/alpha/participants/north", key)
    assert (status, code) == (403, "forbidden")
    assert "'north'" in message


async def test_the_message_says_which_role_is_needed(api: Any, owner: str) -> None:
    key = await api.make_key("site", "alpha")
    _, _, message = await api.refused("POST", "/v1/projects/alpha/runs", key, {})
    assert "operator or owner" in message
    assert "this one's is site" in message
