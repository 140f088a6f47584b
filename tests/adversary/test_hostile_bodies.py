"""Whoever has a key, or none, posts any JSON wherever a body is taken: it is answered, soon, by no error of ours."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from argon2.profiles import CHEAPEST

from adversary.fuzz_targets import BODIES
from adversary.odd_json import any_value, changed, seeds
from browsers import Browser
from clocks import HandClock
from hanse_coordinator.api import projects, server
from hanse_coordinator.api.route import Route
from hanse_coordinator.api.table import ROUTES
from hanse_coordinator.people.passwords import Passwords
from hanse_fabric.bus.memory import MemoryBroker
from hub_api import SCHEMA, START, Api, Site, registry_on, replica

WITHIN_S = 20.0
LARGEST = 64 << 10
TAKES_ONE = [route for route in ROUTES if route.body is not None]
IN_PATH = {
    "person": "ada",
    "project": "alpha",
    "participant": "north",
    "run": "a" * 12,
    "version": "1",
    "output": "results",
}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    broker, clock = MemoryBroker(), HandClock(START)
    async with replica(broker, tmp_path, clock) as hub, registry_on(broker, tmp_path, clock):
        hub.hub.entrance.passwords = Passwords(CHEAPEST)
        yield hub


class Door:
    """A route, and the honest body of somebody who may use it."""

    def __init__(self, api: Api, route: Route, honest: dict[str, Any], shown: dict[str, str]) -> None:
        self.api, self.route, self.honest = api, route, honest
        self.headers = {"Content-Type": "application/json", **shown}
        self.path = route.path.format_map(IN_PATH)

    async def post(self, body: bytes) -> int:
        """The status; the answer is small, and a refusal has its form."""
        asked = self.api.client.request(self.route.method, self.path, data=body, headers=self.headers)
        async with asyncio.timeout(WITHIN_S):
            async with asked as response:
                answer = await response.read()
                assert len(answer) <= LARGEST
                if response.status >= 400:
                    assert set(json.loads(answer)["error"]) == {"code", "message", "hint"}
                return response.status


async def opened(api: Api, route: Route) -> Door:
    """By somebody who is let in, so that the body is what is looked at."""
    key = await api.make_key("operator")
    await api.ok("POST", "/v1/projects", key, {"name": "alpha", "schema": SCHEMA})
    body = deepcopy(BODIES[route.body])  # type: ignore[index]
    await api.make_person("ada")
    if "bus_key" in body or body.keys() == {"token"}:
        invited = await api.ok("POST", "/v1/projects/alpha/invitations", key, {"participant": "north"})
        body = await Site().body(api, invited["token"]) if "bus_key" in body else {"token": invited["token"]}
    if route.in_person:
        browser = await Browser(api).enter("ada")
        cookies = "; ".join(f"{name}={each.value}" for name, each in browser.cookies.items())
        return Door(api, route, body, {"Cookie": cookies, "Hanse-CSRF": browser.csrf})
    return Door(api, route, body, {"Authorization": f"Bearer {key}"} if route.roles else {})


def odd(draw: random.Random, honest: dict[str, Any]) -> bytes:
    """An honest body of which some values are others, or any JSON."""
    return (json.dumps(any_value(draw)) if draw.randrange(10) == 0 else changed(draw, honest)).encode()


async def fuzz(door: Door, bodies: int) -> set[int]:
    """The statuses that were seen."""
    seen = set[int]()
    for seed in seeds(bodies):
        body = odd(random.Random(seed), door.honest)
        status = await door.post(body)
        seen.add(status)
        assert status < 500, (seed, body)
    return seen


@pytest.mark.no_attack("says what the attack is played on")
def test_every_route_that_takes_a_body_is_tried() -> None:
    assert {route.body for route in TAKES_ONE} == set(BODIES)
    assert len(TAKES_ONE) >= 12


@pytest.mark.parametrize("route", TAKES_ONE, ids=lambda route: route.name)
async def test_any_body_is_answered_soon_and_no_body_makes_an_error_of_the_hub(
    api: Api, route: Route, caplog: pytest.LogCaptureFixture
) -> None:
    door = await opened(api, route)
    caplog.set_level(logging.ERROR)
    seen = await fuzz(door, 60)
    assert seen & {400, 422}, "bodies that were refused"
    assert not [record for record in caplog.records if record.exc_info], "nothing was raised that nobody meant"


@pytest.mark.control("test_any_body_is_answered_soon_and_no_body_makes_an_error_of_the_hub")
async def test_control_a_handler_that_fails_at_some_bodies_is_found(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    route = next(route for route in TAKES_ONE if route.handler is projects.create_project)
    door = await opened(api, route)
    monkeypatch.setattr(server, "_validated", lambda model, value, _: model.model_construct(**value))
    with pytest.raises(AssertionError):
        await fuzz(door, 60)
