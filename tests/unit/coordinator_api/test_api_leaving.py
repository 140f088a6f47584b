"""A site ends its own membership by its key: nobody else can, and it is once, also where it is told again."""

from __future__ import annotations

from typing import Any

import pytest

from hanse_fabric.identity.keys import SigningKey
from hanse_site.leaving import signed_leaving
from hub_api import Site

MEMBER = "/v1/projects/alpha/participants/north"


@pytest.fixture
async def token(api: Any, owner: str) -> str:
    answer = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"})
    return str(answer["token"])


def said(api: Any, key: SigningKey, reason: str = "the study has ended", **other: Any) -> dict[str, Any]:
    return signed_leaving("alpha", "north", key, reason, api.clock.now()) | other


async def test_a_site_leaves_once_and_its_keys_are_void_at_every_replica(
    api: Any, other_api: Any, owner: str, token: str
) -> None:
    site = Site()
    joined = await api.ok("POST", "/v1/join", body=await site.body(api, token))
    for _ in range(2):  # again after a crash
        assert await api.ok("POST", "/v1/leave", body=said(api, site.signing)) == {"participant": "north"}
    for one in (api, other_api):
        await one.hub.bus.ready()
        assert (await one.refused("GET", MEMBER, joined["api_key"]))[0] == 401
    assert set(api.hub.credentials.revoked) == {site.bus.public}
    seen = await api.ok("GET", MEMBER, owner)
    assert (seen["revoked"], seen["left_at"]) == (True, api.clock.now().isoformat().replace("+00:00", "Z"))
    (entry,) = (await api.ok("GET", "/v1/projects/alpha/audit?action=participant.leave", owner))["events"]
    assert (entry["actor"], entry["detail"]) == ("participant:north", {"reason": "the study has ended"})
    assert (await api.refused("POST", "/v1/join", body=await site.body(api, token)))[1] == "gone"

    again = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"})
    await api.ok("POST", "/v1/join", body=await Site().body(api, again["token"]))
    assert (await api.refused("POST", "/v1/leave", body=said(api, site.signing)))[1] == "tampered", "it is another site"
    seen = await api.ok("GET", MEMBER, owner)
    assert (seen["revoked"], seen["left_at"]) == (False, None)


async def test_nobody_leaves_for_a_site(api: Any, owner: str, token: str) -> None:
    site = Site()
    good = said(api, site.signing)
    assert (await api.refused("POST", "/v1/leave", body=good))[1] == "tampered", "it has not joined"
    await api.ok("POST", "/v1/join", body=await site.body(api, token))
    for wrong in (said(api, SigningKey.create()), good | {"reason": "another"}, good | {"signature": "AAAA"}):
        assert (await api.refused("POST", "/v1/leave", body=wrong))[1] == "tampered"
    old = said(api, site.signing)
    api.clock.advance(9000)
    assert (await api.refused("POST", "/v1/leave", body=old))[1] == "clock-skew", "what was said long ago"
    assert not (await api.ok("GET", MEMBER, owner))["revoked"]
