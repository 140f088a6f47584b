"""Terms at the hub: shown before anything is joined, agreed to by the site's own key; jobs keep to them."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import pytest

from hanse_fabric.identity.keys import SigningKey
from hanse_schemas.terms import ProjectTerms, SiteConsent
from hanse_site.consent import AgreedTerms, signed
from hub_api import JOB, SCHEMA, Api, Site

ASKED = {"owner": "Ward 5", "purpose": "who needs a bed", "minimum_sites": 2}
PLACE = "/v1/projects/beds"


@pytest.fixture
async def token(api: Api, owner: str) -> str:
    await api.ok("POST", "/v1/projects", owner, {"name": "beds", "schema": SCHEMA, "terms": ASKED})
    answer = await api.ok("POST", f"{PLACE}/invitations", owner, {"participant": "north", "expires_in": 3600})
    return str(answer["token"])


def agreed(api: Api, shown: dict[str, Any], key: SigningKey, *, ahead: float = 0.0) -> dict[str, Any]:
    """What a site says that agrees to terms as they were shown."""
    terms = ProjectTerms.model_validate(shown["terms"])
    made = AgreedTerms(terms=terms, by="Dr. Day", at=api.clock.now() + timedelta(seconds=ahead))
    return signed(made, "north", key).model_dump(mode="json")


async def test_a_site_sees_what_it_would_join_and_joins_by_the_digest_of_that(api: Api, owner: str, token: str) -> None:
    shown = await api.ok("POST", "/v1/join/preview", body={"token": token})
    assert (shown["project"], shown["participant"], shown["schema"]["classes"]) == ("beds", "north", 10)
    terms = ProjectTerms.model_validate(shown["terms"])
    assert terms.digest == shown["terms_digest"]
    listed = await api.ok("GET", f"{PLACE}/invitations", owner)
    assert [each["state"] for each in listed["invitations"]] == ["open"], "it was looked at, and not used"

    site, stranger = Site(), SigningKey.create()
    older = shown["terms"] | {"version": 7}
    for wrong, code in (
        (None, "conflict"), (agreed(api, {"terms": older}, site.signing), "conflict"),
        (agreed(api, shown, stranger), "tampered"), (agreed(api, shown, site.signing, ahead=9000), "clock-skew"),
        (agreed(api, shown, site.signing) | {"by": "somebody else"}, "tampered"),
    ):  # fmt: skip
        refused = await api.refused("POST", "/v1/join", body=await site.body(api, token, consent=wrong))
        assert refused[1] == code
    joined = await api.ok(
        "POST", "/v1/join", body=await site.body(api, token, consent=agreed(api, shown, site.signing))
    )
    seen = await api.ok("GET", f"{PLACE}/participants/north", joined["api_key"])
    assert (seen["consent"]["terms"], seen["consent"]["by"], seen["consent"]["current"]) == (
        terms.digest, "Dr. Day", True,
    )  # fmt: skip
    (entry,) = (await api.ok("GET", f"{PLACE}/audit?action=participant.consent", owner))["events"]
    assert entry["actor"] == "participant:north"
    assert entry["detail"]["terms"] == terms.digest
    kept = base64.b64decode(entry["detail"]["signature"])
    site.signing.verify_key.verify(kept, signed_bytes(entry["detail"]), what="the audit's")


def signed_bytes(detail: dict[str, Any]) -> bytes:
    fields = {name: detail[name] for name in ("terms", "by", "at")}
    return SiteConsent.model_validate({"project": "beds", "participant": "north", **fields}).canonical()


async def test_other_terms_are_another_version_to_which_a_site_agrees_anew_by_its_key(
    api: Api, owner: str, token: str
) -> None:
    first = await api.ok("GET", PLACE, owner)
    site = Site()
    shown = {"terms": first["terms"]}
    await api.ok("POST", "/v1/join", body=await site.body(api, token, consent=agreed(api, shown, site.signing)))
    same = await api.ok("POST", f"{PLACE}/terms", owner, ASKED)
    assert same["terms_digest"] == first["terms_digest"], "nothing has changed"
    changed = await api.ok("POST", f"{PLACE}/terms", owner, ASKED | {"masked": True})
    assert changed["terms"]["version"] == 2
    assert changed["terms_digest"] != first["terms_digest"]
    (seen,) = (await api.ok("GET", f"{PLACE}/participants", owner))["participants"]
    assert (seen["consent"]["terms"], seen["consent"]["current"]) == (first["terms_digest"], False)

    def said(consent: dict[str, Any]) -> dict[str, Any]:
        return {"project": "beds", "participant": "north", "consent": consent}

    _, code, message = await api.refused("POST", "/v1/consent", body=said(agreed(api, shown, site.signing)))
    assert (code, changed["terms_digest"] in message) == ("conflict", True)
    _, code, _ = await api.refused("POST", "/v1/consent", body=said(agreed(api, changed, SigningKey.create())))
    assert code == "tampered"
    _, code, _ = await api.refused(
        "POST", "/v1/consent", body=said(agreed(api, changed, site.signing)) | {"participant": "south"}
    )
    assert code == "tampered"
    for _ in range(2):  # again after a crash, and the audit has it once
        await api.ok("POST", "/v1/consent", body=said(consent := agreed(api, changed, site.signing)))
    (seen,) = (await api.ok("GET", f"{PLACE}/participants", owner))["participants"]
    assert seen["consent"]["current"]
    told = (await api.ok("GET", f"{PLACE}/audit?action=participant.consent", owner))["events"]
    assert [each["detail"]["terms"] for each in told] == [first["terms_digest"], consent["terms"]]
    written = (await api.ok("GET", f"{PLACE}/audit?action=project.terms", owner))["events"]
    assert [each["detail"]["version"] for each in written] == ["1", "1", "2"]


async def test_a_job_beyond_the_terms_is_no_run_and_a_run_keeps_the_terms_it_began_under(
    api: Api, owner: str, token: str
) -> None:
    digest = (await api.ok("POST", "/v1/join/preview", body={"token": token}))["terms_digest"]
    run = await api.ok("POST", f"{PLACE}/runs", owner, {"job": JOB})
    record = await api.hub.buckets.runs.require(project="beds", run=run["run"])
    assert record.value.terms == digest
    await api.ok("POST", f"{PLACE}/terms", owner, ASKED | {"masked": True})
    _, code, message = await api.refused("POST", f"{PLACE}/runs", owner, {"job": JOB})
    assert code == "invalid-input"
    assert "secure_aggregation: none; agreed" in message
    status, answer = await api.call("POST", f"{PLACE}/check", owner, {"job": JOB})
    assert (status, answer["error"]["code"]) == (400, "invalid-input")
    record = await api.hub.buckets.runs.require(project="beds", run=run["run"])
    assert record.value.terms == digest


async def test_a_token_that_is_no_longer_good_shows_nothing_and_a_project_without_terms_goes_on_as_before(
    api: Api, owner: str, token: str
) -> None:
    api.clock.advance(3601)
    assert (await api.refused("POST", "/v1/join/preview", body={"token": token}))[1] == "gone"
    for nobody in ("join_" + "a" * 12 + "_" + "b" * 40, "nothing"):
        assert (await api.refused("POST", "/v1/join/preview", body={"token": nobody}))[0] in (400, 401)
    answer = await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"})
    shown = await api.ok("POST", "/v1/join/preview", body={"token": answer["token"]})
    assert (shown["terms"], shown["terms_digest"]) == (None, None)
    await api.ok("POST", "/v1/join", body=await Site().body(api, answer["token"]))
    seen = await api.ok("GET", "/v1/projects/alpha/participants/north", owner)
    assert seen["consent"] is None
    site_key = await api.make_key("site", "beds", participant="north")
    assert (await api.refused("POST", f"{PLACE}/terms", site_key, ASKED))[1] == "forbidden"
