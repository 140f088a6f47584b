"""Joining: one-time tokens, and what becomes of them after crashes, races, time and revocation."""

from __future__ import annotations

import asyncio
import base64
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from hanse_coordinator.api import joining
from hanse_fabric.bus.nkeys import KeyKind, KeyPair
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_site.leaving import signed_leaving
from hanse_site.renewal import signed_renewal
from hub_api import Site

MEMBER = "/v1/projects/alpha/participants/north"


async def _site(api: Any, token: str, **changes: Any) -> dict[str, Any]:
    """What a site with fresh keys sends."""
    return await Site().body(api, token, **changes)


@pytest.fixture
async def token(api: Any, owner: str) -> str:
    answer = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north", "expires_in": 3600})
    return str(answer["token"])


async def test_a_site_joins_and_its_key_opens_its_project(api: Any, owner: str, token: str) -> None:
    body = await _site(api, token)
    answer = await api.ok("POST", "/v1/join", body=body)
    assert answer["bus_jwt"] == f"jwt for alpha/north/{body['bus_key']} in hub"
    assert answer["bus_url"] == "nats://bus.example.org:4222"
    assert answer["schema"]["classes"] == 10
    seen = await api.ok("GET", MEMBER, answer["api_key"])
    assert (seen["public_key"], seen["revoked"]) == (body["public_key"], False)
    invitations = await api.ok("GET", "/v1/projects/alpha/invitations", owner)
    assert [item["state"] for item in invitations["invitations"]] == ["used"]


async def test_a_token_names_its_region_and_joining_and_renewal_give_credentials_of_it(api: Any, owner: str) -> None:
    asked = {"participant": "north", "region": "eu"}
    invitation = await api.ok("POST", "/v1/projects/alpha/invitations", owner, asked)
    listed = await api.ok("GET", "/v1/projects/alpha/invitations", owner)
    assert [invitation["region"], *(each["region"] for each in listed["invitations"])] == ["eu", "eu"]
    site = Site()
    joined = await api.ok("POST", "/v1/join", body=await site.body(api, invitation["token"]))
    of_eu = f"jwt for alpha/north/{site.bus.public} in eu"
    assert (joined["bus_jwt"], joined["bus_url"]) == (of_eu, "tls://leaf.eu.example.org:4222")
    assert (await api.ok("GET", MEMBER, owner))["region"] == "eu"
    renewal = signed_renewal("alpha", "north", site.signing, api.clock.now())
    assert (await api.ok("POST", "/v1/renew", body=renewal))["bus_jwt"] == of_eu


async def test_a_region_that_nobody_has_added_is_refused_by_field(api: Any, owner: str) -> None:
    asked = {"participant": "north", "region": "mars"}
    _, code, message = await api.refused("POST", "/v1/projects/alpha/invitations", owner, asked)
    assert code == "invalid-input"
    assert message == "region: 'mars' is not one of hub, eu"


async def test_the_same_site_may_show_its_token_again_after_a_crash(api: Any, token: str) -> None:
    site = Site()
    await api.ok("POST", "/v1/join", body=await site.body(api, token))
    again = await api.ok("POST", "/v1/join", body=await site.body(api, token))
    assert again["participant"] == "north"
    await api.ok("GET", MEMBER, again["api_key"])


async def test_another_key_cannot_use_a_used_token(api: Any, token: str) -> None:
    await api.ok("POST", "/v1/join", body=await _site(api, token))
    status, code, message = await api.refused("POST", "/v1/join", body=await _site(api, token))
    assert (status, code) == (409, "conflict")
    assert "enrolled already, with another key" in message


async def test_a_used_token_whose_site_is_gone_is_refused_to_others(api: Any, token: str) -> None:
    await api.ok("POST", "/v1/join", body=await _site(api, token))
    await api.hub.buckets.participants.delete(project="alpha", participant="north")
    status, code, message = await api.refused("POST", "/v1/join", body=await _site(api, token))
    assert (status, code) == (410, "gone")
    assert "used already, by another key" in message


async def test_a_proof_is_taken_once_and_for_the_last_challenge_alone(api: Any, other_api: Any, token: str) -> None:
    site = Site()
    older, newer = await site.body(api, token), await site.body(other_api, token)
    for body in (older, newer):
        if body is newer:
            await other_api.ok("POST", "/v1/join", body=newer)
        _, code, message = await api.refused("POST", "/v1/join", body=body)
        assert (code, message.partition(":")[0]) == ("conflict", "challenge")
    await api.ok("POST", "/v1/join", body=await site.body(api, token))


async def test_a_site_of_release_0_1_0_is_told_to_upgrade_and_its_token_stays_good(api: Any, token: str) -> None:
    body = await _site(api, token)
    for name in ("challenge", "signature", "bus_signature"):
        del body[name]
    status, answer = await api.call("POST", "/v1/join", body=body)
    assert (status, answer["error"]["code"]) == (403, "forbidden")
    assert "upgrade the site's software" in answer["error"]["hint"]
    await api.ok("POST", "/v1/join", body=await _site(api, token))


async def test_an_expired_token_is_gone(api: Any, token: str) -> None:
    api.clock.advance(3601)
    status, code, message = await api.refused("POST", "/v1/join", body=await _site(api, token))
    assert (status, code) == (410, "gone")
    assert "expired at 2026-05-01 13:00:00 UTC" in message


async def test_a_revoked_token_is_gone(api: Any, owner: str, token: str) -> None:
    invitation = token.split("_")[1]
    await api.ok("DELETE", f"/v1/projects/alpha/invitations/{invitation}", owner)
    _, code, message = await api.refused("POST", "/v1/join", body=await _site(api, token))
    assert code == "gone"
    assert "revoked" in message


async def test_a_token_with_a_wrong_secret_is_unknown_and_stays_good(api: Any, token: str) -> None:
    wrong = token[:-43] + "x" * 43
    for path, body in (
        ("/v1/join/challenge", {"token": wrong}),
        ("/v1/join", await _site(api, token) | {"token": wrong}),
    ):
        assert (await api.refused("POST", path, body=body))[1] == "unauthenticated"
    await api.ok("POST", "/v1/join", body=await _site(api, token))


async def test_clocks_an_hour_apart_are_named_both_and_the_token_stays_good(api: Any, token: str) -> None:
    late = (api.clock.now() - timedelta(hours=1)).isoformat()
    status, code, message = await api.refused("POST", "/v1/join", body=await _site(api, token, sent_at=late))
    assert (status, code) == (409, "clock-skew")
    assert "11:00:00" in message
    assert "12:00:00" in message
    await api.ok("POST", "/v1/join", body=await _site(api, token))


@pytest.mark.parametrize("sent_at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_a_time_that_utc_has_not_is_refused_by_field(api: Any, token: str, sent_at: str) -> None:
    said = SigningKey.create(), api.clock.now()
    for path, body in (
        ("join", await _site(api, token)),
        ("renew", signed_renewal("alpha", "north", *said)),
        ("leave", signed_leaving("alpha", "north", said[0], "", said[1])),
    ):
        status, code, message = await api.refused("POST", f"/v1/{path}", body=body | {"sent_at": sent_at})
        assert (path, status, code) == (path, 400, "invalid-input")
        assert "sent_at: a time" in message


@pytest.mark.parametrize("public_key", ["", "!!", base64.b64encode(b"short").decode()])
async def test_an_invalid_public_key_is_refused_by_field(api: Any, token: str, public_key: str) -> None:
    _, code, message = await api.refused("POST", "/v1/join", body=await _site(api, token, public_key=public_key))
    assert code == "invalid-input"
    assert message.startswith("public_key:")


async def test_one_of_two_replicas_racing_for_one_token_wins(api: Any, other_api: Any, token: str) -> None:
    bodies = [await _site(api, token) for _ in range(8)]
    answers = await asyncio.gather(
        *((api, other_api)[place % 2].call("POST", "/v1/join", body=body) for place, body in enumerate(bodies))
    )
    won = [place for place, (status, _) in enumerate(answers) if status == 200]
    assert len(won) == 1
    assert {answer["error"]["code"] for status, answer in answers if status != 200} <= {"gone", "conflict"}
    key = answers[won[0]][1]["api_key"]
    seen = await other_api.ok("GET", MEMBER, key)
    assert seen["public_key"] == bodies[won[0]]["public_key"]


async def test_two_tokens_for_one_name_enrol_one_site(api: Any, other_api: Any, owner: str, token: str) -> None:
    invitation = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"})
    answers = await asyncio.gather(
        api.call("POST", "/v1/join", body=await _site(api, token)),
        other_api.call("POST", "/v1/join", body=await _site(api, invitation["token"])),
    )
    assert sorted(status for status, _ in answers) == [200, 409]


@pytest.mark.parametrize("meanwhile", ["the token is revoked", "another joins by the same name"])
async def test_what_was_written_while_a_site_joins_counts(
    api: Any, owner: str, token: str, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """Between the hub's look at the token and the name, and what it writes."""
    other = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"})
    first, body = await _site(api, other["token"]), await _site(api, token)
    issue = api.hub.credentials.issue

    async def late(*place: str, **more: str) -> str:
        monkeypatch.setattr(api.hub.credentials, "issue", issue)
        if meanwhile == "the token is revoked":
            (mine,) = (
                each for each in (await api.ok("GET", "/v1/projects/alpha/invitations", owner))["invitations"]
                if each["id"] != other["id"]
            )  # fmt: skip
            await api.ok("DELETE", f"/v1/projects/alpha/invitations/{mine['id']}", owner)
        else:
            await api.ok("POST", "/v1/join", body=first)
        return str(await issue(*place, **more))

    monkeypatch.setattr(api.hub.credentials, "issue", late)
    _, code, message = await api.refused("POST", "/v1/join", body=body)
    if meanwhile == "the token is revoked":
        assert (code, "it was revoked" in message) == ("gone", True)
        await api.refused("GET", MEMBER, owner)
    else:
        assert (code, "enrolled already, with another key" in message) == ("conflict", True)
        assert (await api.ok("GET", MEMBER, owner))["public_key"] == first["public_key"]


async def test_revoking_a_participant_stops_its_keys_at_every_replica(
    api: Any, other_api: Any, owner: str, token: str
) -> None:
    site = Site()
    joined = await api.ok("POST", "/v1/join", body=await site.body(api, token))
    await other_api.ok("GET", MEMBER, joined["api_key"])
    answer = await api.ok("POST", f"{MEMBER}/revoke", owner)
    assert answer["revoked"] is True
    assert api.hub.credentials.revoked == [site.bus.public]
    for one in (api, other_api):
        await one.hub.bus.ready()
        assert (await one.refused("GET", MEMBER, joined["api_key"]))[0] == 401
    _, code, message = await api.refused("POST", "/v1/join", body=await site.body(api, token))
    assert code == "gone"
    assert "revoked" in message


async def test_a_revoked_name_may_be_invited_again_with_new_keys(api: Any, owner: str, token: str) -> None:
    await api.ok("POST", "/v1/join", body=await _site(api, token))
    _, code, _ = await api.refused("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"})
    assert code == "conflict"
    await api.ok("POST", f"{MEMBER}/revoke", owner)
    again = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"})
    body = await _site(api, again["token"])
    await api.ok("POST", "/v1/join", body=body)
    seen = await api.ok("GET", MEMBER, owner)
    assert (seen["public_key"], seen["revoked"]) == (body["public_key"], False)


async def test_a_token_from_before_a_revocation_lets_the_site_in_no_more(api: Any, owner: str, token: str) -> None:
    second = (await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"}))["token"]
    elsewhere = (await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "south"}))["token"]
    site = Site()
    await api.ok("POST", "/v1/join", body=await site.body(api, token))
    await api.ok("POST", f"{MEMBER}/revoke", owner)
    _, code, message = await api.refused("POST", "/v1/join", body=await site.body(api, second))
    assert (code, "revoked" in message) == ("gone", True)
    await api.ok("POST", "/v1/join", body=await _site(api, elsewhere))


async def test_no_token_that_a_revoked_site_has_used_before_lets_it_in_again(api: Any, owner: str, token: str) -> None:
    """Not the one by which it is there alone: it has joined by another since."""
    second = (await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"}))["token"]
    site = Site()
    for shown in (token, second):
        await api.ok("POST", "/v1/join", body=await site.body(api, shown))
    await api.ok("POST", f"{MEMBER}/revoke", owner)
    for shown in (token, second):
        _, code, message = await api.refused("POST", "/v1/join", body=await site.body(api, shown))
        assert (code, "revoked" in message) == ("gone", True)
    assert (await api.ok("GET", MEMBER, owner))["revoked"]


async def test_a_site_that_is_revoked_while_it_joins_by_another_token_stays_out(
    api: Any, owner: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the claim of the token and what is written of the site; and when it asks again."""
    second = (await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"}))["token"]
    site, claim = Site(), joining._claim
    await api.ok("POST", "/v1/join", body=await site.body(api, token))

    async def late(*given: Any) -> Any:
        claimed = await claim(*given)
        await api.ok("POST", f"{MEMBER}/revoke", owner)
        return claimed

    body = await site.body(api, second)
    monkeypatch.setattr(joining, "_claim", late)
    first = await api.refused("POST", "/v1/join", body=body)
    monkeypatch.undo()
    for _, code, message in (first, await api.refused("POST", "/v1/join", body=await site.body(api, second))):
        assert (code, "revoked" in message) == ("gone", True)
    assert (await api.ok("GET", MEMBER, owner))["revoked"]


async def test_the_key_of_a_site_that_is_revoked_before_it_was_made_opens_nothing(
    api: Any, owner: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = joining._give_key

    async def late(*given: Any) -> str:
        await api.ok("POST", f"{MEMBER}/revoke", owner)
        return await make(*given)

    monkeypatch.setattr(joining, "_give_key", late)
    joined = await api.ok("POST", "/v1/join", body=await _site(api, token))
    assert (await api.refused("GET", "/v1/projects/alpha", joined["api_key"]))[0] == 401


async def test_a_site_whose_record_names_no_key_is_revoked(api: Any, owner: str) -> None:
    name = {"project": "alpha", "participant": "north"}
    keys = {"public_key": Site().public_key, "bus_key": "U1", "enrolled_at": api.clock.now()}
    await api.hub.buckets.participants.create(ParticipantRecord.model_validate(name | keys), **name)
    assert (await api.ok("POST", f"{MEMBER}/revoke", owner))["revoked"]


async def test_all_keys_that_a_site_ever_had_are_revoked_together(api: Any, owner: str, token: str) -> None:
    second = (await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"}))["token"]
    site, had = Site(), []
    for shown in (token, token, second):
        site.bus = KeyPair.create(KeyKind.USER)
        joined = await api.ok("POST", "/v1/join", body=await site.body(api, shown))
        # Those of before are void as soon as it joins with others.
        assert set(api.hub.credentials.revoked) == {bus_key for bus_key, _ in had}
        had.append((site.bus.public, joined["api_key"]))
    await api.ok("POST", f"{MEMBER}/revoke", owner)
    assert set(api.hub.credentials.revoked) == {bus_key for bus_key, _ in had}
    for _, key in had:
        assert (await api.refused("GET", "/v1/projects/alpha", key))[0] == 401


async def test_a_used_invitation_cannot_be_revoked(api: Any, owner: str, token: str) -> None:
    await api.ok("POST", "/v1/join", body=await _site(api, token))
    path = f"/v1/projects/alpha/invitations/{token.split('_')[1]}"
    _, code, message = await api.refused("DELETE", path, owner)
    assert code == "gone"
    assert "used already by north" in message


async def test_the_audit_tells_who_invited_who_joined_and_who_revoked(api: Any, owner: str, token: str) -> None:
    await api.ok("POST", "/v1/join", body=await _site(api, token))
    await api.ok("POST", f"{MEMBER}/revoke", owner)
    events = (await api.ok("GET", "/v1/projects/alpha/audit", owner))["events"]
    actor = f"key:{owner.split('_')[1]}"
    assert [(event["actor"], event["action"]) for event in events] == [
        (actor, "project.create"),
        (actor, "participant.invite"),
        ("participant:north", "participant.join"),
        (actor, "participant.revoke"),
    ]
    assert all(event["authority"] for event in events)
    page = await api.ok("GET", f"/v1/projects/alpha/audit?after={events[1]['sequence']}&limit=1", owner)
    assert page["events"] == [events[2]]


async def test_a_site_renews_its_token_by_its_enrolled_key_alone_until_it_is_revoked(
    api: Any, owner: str, token: str
) -> None:
    site = Site()
    await api.ok("POST", "/v1/join", body=await site.body(api, token))
    body = signed_renewal("alpha", "north", site.signing, api.clock.now())
    answer = await api.ok("POST", "/v1/renew", body=body)
    assert answer["bus_jwt"] == f"jwt for alpha/north/{site.bus.public} in hub"
    for wrong in (
        signed_renewal("alpha", "north", Site().signing, api.clock.now()),
        body | {"participant": "south"},
        signed_renewal("alpha", "north", site.signing, api.clock.now() - timedelta(hours=1)),
    ):
        status, code, _ = await api.refused("POST", "/v1/renew", body=wrong)
        assert (status, code) in {(422, "tampered"), (403, "forbidden"), (409, "clock-skew")}
    await api.ok("POST", f"{MEMBER}/revoke", owner)
    assert (await api.refused("POST", "/v1/renew", body=body))[1] == "forbidden"


async def test_a_site_that_was_away_for_longer_than_the_owner_says_needs_another_invitation(
    api: Any, owner: str, token: str
) -> None:
    site = Site()
    await api.ok("POST", "/v1/join", body=await site.body(api, token))

    async def renews() -> str:
        body = signed_renewal("alpha", "north", site.signing, api.clock.now())
        status, answer = await api.call("POST", "/v1/renew", body=body)
        return "" if status == 200 else answer["error"]["message"]

    async def passes(days: float) -> None:
        api.clock.advance(days * 86_400)

    await passes(400)
    assert not await renews(), "no owner has said anything"
    view = await api.ok("POST", "/v1/projects/alpha/absence", owner, {"days": 30})
    assert view["longest_absence_days"] == 30
    assert not await renews(), "it was there a moment ago"
    for _ in range(4):  # 100 days, and never away for more than 25
        await passes(25)
        assert not await renews()
    await passes(32)
    assert await renews() == "participant: 'north' was away for 32 days; 'alpha' takes sites back without asking for 30"
    again = await api.call("POST", "/v1/join", body=await site.body(api, token))
    assert (again[0], again[1]["error"]["code"]) == (403, "forbidden"), "nor by the token that it had"
    await api.ok("POST", "/v1/projects/alpha/absence", owner, {"days": None})
    assert not await renews(), "the owner has lifted it"
    await api.ok("POST", "/v1/projects/alpha/absence", owner, {"days": 30})
    await passes(32)
    assert await renews()
    invited = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"})
    other = await api.refused("POST", "/v1/join", body=await Site().body(api, invited["token"]))
    assert other[1] == "conflict", "with another key it is another site"
    await api.ok("POST", "/v1/join", body=await site.body(api, invited["token"]))
    assert not await renews(), "it has joined with the key that it had"

    await passes(32)
    assert await renews()
    for shown in (token, invited["token"]):
        body = await site.body(api, shown)
        assert (await api.refused("POST", "/v1/join", body=body))[1] == "forbidden", "by no token of before"


@pytest.mark.parametrize("days", [0, -1, 3651, 1.5, "many", 2**63 - 1])
async def test_days_of_absence_that_are_none_are_refused_by_name(api: Any, owner: str, days: Any) -> None:
    status, code, message = await api.refused("POST", "/v1/projects/alpha/absence", owner, {"days": days})
    assert (status, code) == (400, "invalid-input")
    assert "days" in message


async def test_what_was_not_looked_up_is_to_be_asked_again_and_ends_no_site(api: Any, owner: str, token: str) -> None:
    """Somebody else behind the same proxy guesses all the time. A datapod whose renewal is refused ends."""
    site = Site()
    await api.ok("POST", "/v1/join", body=await site.body(api, token))
    invited = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "south"})
    limiter = api.hub.keys.limiter
    for _ in range(40):
        limiter.failed("127.0.0.1")
    renewal = signed_renewal("alpha", "north", site.signing, api.clock.now())
    with ExitStack() as guesses:
        for _ in range(4):
            guesses.enter_context(limiter.looking_up("127.0.0.1", "token"))
        for path, body in (("renew", renewal), ("join/challenge", {"token": invited["token"]})):
            status, code, message = await api.refused("POST", f"/v1/{path}", body=body)
            assert (status, code) == (503, "unavailable"), message
    await api.ok("POST", "/v1/renew", body=renewal)
    await api.ok("POST", "/v1/join/challenge", body={"token": invited["token"]})
