"""`hanse people` at the hub's own API: an operator lets somebody in, changes what they may, and ends it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from browsers import Browser
from clocks import HandClock
from hanse_fabric.bus.memory import MemoryBroker
from hub_api import START, replica
from unit.hanse.typed_command import Run


async def test_an_operator_lets_people_in_and_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def said(*arguments: str) -> tuple[int, str]:
        done = run("people", *arguments)
        return done.status, done.out + done.err

    told: dict[str, Any] = {"console_url": "https://hub.example.org"}
    async with replica(MemoryBroker(), tmp_path / "store", HandClock(START), **told) as api:
        monkeypatch.setenv("HANSE_URL", str(api.client.make_url("")))
        monkeypatch.setenv("HANSE_API_KEY", await api.make_key("operator"))

        async def people(*arguments: str) -> str:
            status, text = await asyncio.to_thread(said, *arguments)
            assert status == 0, text
            return text

        link = (await people("add", "ada@example.org", "--operator", "--display", "Ada")).splitlines()[-1]
        assert link.startswith("https://hub.example.org/#/welcome/start_")
        start = {"token": link.rpartition("/")[2], "password": "seven grey herons"}
        browser = Browser(api)
        assert (await browser.ok("POST", "/v1/session/start", start))["role"] == "operator"
        await browser.ok("POST", "/v1/projects", {"name": "triage", "schema": {"kind": "open"}})
        assert "owner of triage" in await people("rights", "ada@example.org", "--project", "triage")
        (shown,) = json.loads(await people("list", "--json"))
        assert (shown["role"], shown["projects"], shown["state"]) == ("owner", ["triage"], "active")
        assert "start_" in await people("reset", "ada@example.org")
        assert (await browser.refused("GET", "/v1/session"))[0] == 401
        assert "may not sign in" in await people("revoke", "ada@example.org")
        assert "revoked" in await people("list")
        status, text = await asyncio.to_thread(said, "add", "Ada Lovelace")
        assert (status, "name" in text) == (2, True)
