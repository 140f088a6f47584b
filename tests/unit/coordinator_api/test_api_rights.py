"""What people may whose rights change while they are in, and their keys, and sites that they invited."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from browsers import LOOPBACK, Browser
from hanse_coordinator.api import events
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT
from hub_api import JOB, SCHEMA, Site
from unit.coordinator_api.people import NEW, Copy, credentials, hub, let_in, second

__all__ = ["hub", "second"]


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
