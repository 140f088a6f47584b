"""People in browsers: a hub that lets them in, and they by password."""

from __future__ import annotations

from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from argon2.profiles import CHEAPEST

from browsers import Browser
from clocks import HandClock
from hanse_coordinator.people.passwords import Passwords
from hanse_fabric.bus.memory import MemoryBroker
from hub_api import Api, replica

PASSWORD = "seven grey herons over the Trave"
NEW = "nine brown otters under the Alster"
PROXIES = (ip_network("127.0.0.0/8"),)


@pytest.fixture
async def hub(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> AsyncIterator[Api]:
    """That of a console, behind a proxy."""
    told = {"proxies": PROXIES, "console_url": "https://hub.example.org"}
    async with replica(broker, tmp_path / "store", clock, **told) as api:
        api.hub.entrance.passwords = Passwords(CHEAPEST)
        yield api


@pytest.fixture
async def second(broker: MemoryBroker, clock: HandClock, tmp_path: Path) -> AsyncIterator[Api]:
    """A second replica of it."""
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


class Copy(Browser):
    """A browser with another's cookies."""

    def __init__(self, api: Any, other: Browser) -> None:
        super().__init__(api)
        self.cookies, self.csrf = dict(other.cookies), other.csrf

    async def is_out(self) -> bool:
        return (await self.ask("GET", "/v1/session"))[0] == 401
