"""Somebody joins with what is not his: a site's public keys, or another's bus key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clocks import HandClock
from hanse_coordinator.api import joining
from hanse_fabric.bus.memory import MemoryBroker
from hub_api import START, Api, Site, replica


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with replica(MemoryBroker(), tmp_path, HandClock(START)) as hub:
        yield hub


async def invited(api: Api, *participants: str) -> list[str]:
    owner = await api.make_owner("alpha")
    asked = [{"participant": name} for name in participants]
    return [(await api.ok("POST", "/v1/projects/alpha/invitations", owner, body))["token"] for body in asked]


async def with_the_public_keys_alone(api: Api) -> dict[str, Any]:
    """A used token and the site's public keys, which many know, and the attacker's own signatures."""
    [token] = await invited(api, "north")
    victim, thief = Site(), Site()
    await api.ok("POST", "/v1/join", body=await victim.body(api, token))
    return await thief.body(api, token, public_key=victim.public_key, bus_key=victim.bus.public)


async def with_anothers_bus_key(api: Api) -> dict[str, Any]:
    """A good token, and the bus key of another (the aggregator's, say), to have it revoked with the attacker."""
    [token] = await invited(api, "south")
    thief, victim = Site(), Site()
    return await thief.body(api, token, bus_key=victim.bus.public)


async def with_a_proof_for_another_token(api: Api) -> dict[str, Any]:
    """A hub of the attacker's was shown a proof, and shows it with a token that it got itself."""
    shown, own = await invited(api, "north", "south")
    body = await Site().body(api, shown)
    challenge = (await api.ok("POST", "/v1/join/challenge", body={"token": own}))["challenge"]
    return body | {"token": own, "challenge": challenge}


ATTACKS = (with_the_public_keys_alone, with_anothers_bus_key, with_a_proof_for_another_token)


@pytest.mark.parametrize("attack", ATTACKS)
async def test_nobody_joins_without_the_private_keys_of_what_is_enrolled(api: Api, attack: Any) -> None:
    status, code, message = await api.refused("POST", "/v1/join", body=await attack(api))
    assert (status, code) == (403, "forbidden")
    assert message.partition(":")[0] in ("signature", "bus_signature")


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.control("test_nobody_joins_without_the_private_keys_of_what_is_enrolled")
async def test_control_where_no_proof_is_looked_at_each_gets_credentials(
    api: Api, attack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "check_proof", lambda *_: None)
    joined = await api.ok("POST", "/v1/join", body=await attack(api))
    assert joined["api_key"]
    assert joined["bus_jwt"]
