"""What is left to whoever has a token and a site's keys, after the site was revoked too, and what a stranger learns of
who takes part in what.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clocks import HandClock
from hanse_coordinator.api import participants, proof, terms
from hanse_coordinator.api.hub import JOINS_AT_ONCE
from hanse_fabric.allowance import Allowance
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_schemas.terms import ProjectTerms
from hanse_site.consent import AgreedTerms, signed
from hanse_site.leaving import signed_leaving
from hanse_site.renewal import signed_renewal
from hub_api import SCHEMA, START, Api, Site, replica

SOME = ProjectTerms.model_validate(
    {"project": "alpha", "version": 1, "asked": {"owner": "Ward 5", "purpose": "beds"}, "data_schema": SCHEMA}
)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with replica(MemoryBroker(), tmp_path, HandClock(START)) as hub:
        yield hub


async def joined(api: Api) -> tuple[Site, str, str]:
    """North in project alpha, its token, and the owner's key."""
    owner, site = await api.make_owner("alpha"), Site()
    token = (await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"}))["token"]
    await api.ok("POST", "/v1/join", body=await site.body(api, token))
    return site, token, owner


def said(api: Api, way: str, key: SigningKey, project: str, participant: str) -> dict[str, Any]:
    """What a site tells the hub without a token, by whoever's key."""
    now = api.clock.now()
    if way == "renew":
        return signed_renewal(project, participant, key, now)
    if way == "leave":
        return signed_leaving(project, participant, key, "done", now)
    agreed = AgreedTerms(terms=SOME.model_copy(update={"project": project}), by="Dr. Day", at=now)
    consent = signed(agreed, participant, key).model_dump(mode="json")
    return {"project": project, "participant": participant, "consent": consent}


async def guesses(api: Api, way: str) -> set[str]:
    """What a stranger hears of a site that there is, of one that there is not, and of a project that there is not;
    names that he has said himself left out."""
    key, heard = SigningKey.create(), set()
    for project, participant in (("alpha", "north"), ("alpha", "south"), ("gamma", "north")):
        status, code, message = await api.refused(
            "POST", f"/v1/{way}", body=said(api, way, key, project, participant)
        )  # fmt: skip
        heard.add(f"{status} {code} {message.replace(participant, 'NAME').replace(project, 'PROJECT')}")
    return heard


WAYS = ("renew", "leave", "consent")


@pytest.mark.parametrize("way", WAYS)
async def test_a_stranger_who_guesses_names_is_not_told_who_takes_part(api: Api, way: str) -> None:
    await joined(api)
    assert len(await guesses(api, way)) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.control("test_a_stranger_who_guesses_names_is_not_told_who_takes_part")
async def test_control_where_names_are_looked_up_before_signatures_each_guess_is_answered(
    api: Api, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def looked_up(hub: Any, _: Any, statement: bytes, signature: bytes, **who: str) -> Any:
        what = who.pop("what")
        if (entry := await hub.buckets.participants.get(**who)) is None:
            raise HanseError(ErrorCode.FORBIDDEN, f"participant: {who['participant']!r} is not enrolled")
        VerifyKey(entry.value.public_key).verify(signature, statement, what=what)

    for module in ("joining", "participants", "terms"):
        monkeypatch.setattr(f"hanse_coordinator.api.{module}.who_signed", looked_up)
    await joined(api)
    assert len(await guesses(api, way)) == 2


@pytest.mark.no_attack("what is counted of the attack above")
async def test_guesses_of_names_count_as_failed_attempts_of_their_address(api: Api) -> None:
    site, _, _ = await joined(api)
    for _ in range(31):
        await api.refused("POST", "/v1/renew", body=said(api, "renew", SigningKey.create(), "alpha", "north"))
    assert api.hub.keys.limiter.exhausted("127.0.0.1")
    await api.ok("POST", "/v1/renew", body=said(api, "renew", site.signing, "alpha", "north"))


@pytest.mark.no_attack("an honest site")
async def test_a_site_that_was_revoked_is_told_so_by_its_own_signature_alone(api: Api) -> None:
    site, _, owner = await joined(api)
    await api.ok("POST", "/v1/projects/alpha/participants/north/revoke", owner)
    for way in ("renew", "consent"):
        own = await api.refused("POST", f"/v1/{way}", body=said(api, way, site.signing, "alpha", "north"))
        assert (own[1], "revoked" in own[2]) == ("forbidden", True)
        assert len(await guesses(api, way)) == 1


async def previewed(api: Api) -> tuple[int, Any]:
    """What the token of a site tells of the project's present terms after the site was revoked."""
    _, token, owner = await joined(api)
    assert (await api.ok("POST", "/v1/join/preview", body={"token": token}))["terms"] is None, "while it is a member"
    await api.ok("POST", "/v1/projects/alpha/participants/north/revoke", owner)
    asked = {"owner": "Ward 5", "purpose": "what nobody but members is to know"}
    await api.ok("POST", "/v1/projects/alpha/terms", owner, asked)
    return await api.call("POST", "/v1/join/preview", body={"token": token})


async def test_a_site_that_was_revoked_sees_nothing_more_of_the_project_by_its_token(api: Api) -> None:
    status, answer = await previewed(api)
    assert (status, answer["error"]["code"]) == (410, "gone")


@pytest.mark.control("test_a_site_that_was_revoked_sees_nothing_more_of_the_project_by_its_token")
async def test_control_where_a_used_token_is_good_for_ever_it_shows_what_was_written_since(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def known(hub: Any, request: Any, token: Any) -> Any:
        return await proof.invitation_of(hub, request, token)

    monkeypatch.setattr(terms, "good_invitation", known)
    status, answer = await previewed(api)
    assert (status, answer["terms"]["asked"]["purpose"]) == (200, "what nobody but members is to know")


async def comes_back(api: Api) -> tuple[int, Any]:
    """A site that has joined by two tokens, one after the other, joins by the first after it was revoked."""
    owner, site = await api.make_owner("alpha"), Site()
    asked = {"participant": "north"}
    first, second = [(await api.ok("POST", "/v1/projects/alpha/invitations", owner, asked))["token"] for _ in "12"]
    for token in (first, second):
        await api.ok("POST", "/v1/join", body=await site.body(api, token))
    await api.ok("POST", "/v1/projects/alpha/participants/north/revoke", owner)
    return await api.call("POST", "/v1/join", body=await site.body(api, first))


async def test_a_site_that_was_revoked_comes_back_by_no_token_that_it_had(api: Api) -> None:
    status, answer = await comes_back(api)
    assert (status, answer["error"]["code"]) == (410, "gone")


@pytest.mark.control("test_a_site_that_was_revoked_comes_back_by_no_token_that_it_had")
async def test_control_where_tokens_outlive_a_revocation_an_older_one_lets_the_site_in(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(participants, "_revoke_all", no)
    status, answer = await comes_back(api)
    assert (status, bool(answer.get("api_key"))) == (200, True)


async def joins(api: Api) -> int:
    """How many entries the audit has of a site that joins again and again, by the token that it has."""
    site, token, owner = await joined(api)
    for _ in range(2 * JOINS_AT_ONCE):
        status, answer = await api.call("POST", "/v1/join/challenge", body={"token": token})
        if status == 200:
            await api.call("POST", "/v1/join", body=site.proof(api, token, answer["challenge"]))
    return len((await api.ok("GET", "/v1/projects/alpha/audit?action=participant.join", owner))["events"])


async def test_a_site_that_joins_again_and_again_does_not_fill_the_audit(api: Api) -> None:
    assert await joins(api) == JOINS_AT_ONCE


@pytest.mark.control("test_a_site_that_joins_again_and_again_does_not_fill_the_audit")
async def test_control_where_joinings_are_not_counted_each_is_in_the_audit_for_good(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Allowance, "take", lambda *_: True)
    assert await joins(api) == 2 * JOINS_AT_ONCE + 1
