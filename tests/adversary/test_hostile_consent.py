"""Whoever reaches the hub says that a site agrees to something: a stranger without any key, and the site itself, again
and again. What is said of a site is in the project's audit for good, so it must be the site's own word, and once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import HandClock
from hanse_coordinator.api import terms as terms_api
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.participants import Consent, ParticipantRecord
from hanse_schemas.terms import AskedTerms, ProjectTerms
from hanse_site.consent import AgreedTerms, signed
from hub_api import SCHEMA, START, Api, Site, replica

ASKED = AskedTerms(owner="Ward 5", purpose="who needs a bed")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with replica(MemoryBroker(), tmp_path, HandClock(START)) as hub:
        yield hub


async def joined(api: Api, *, asked: AskedTerms | None) -> tuple[Site, str, ProjectTerms]:
    """North in project alpha, the owner's key, and terms: the project's own, or some of the attacker's."""
    owner, site = await api.make_key("owner"), Site()
    body = {"name": "alpha", "schema": SCHEMA} | ({} if asked is None else {"terms": asked.model_dump(mode="json")})
    view = await api.ok("POST", "/v1/projects", owner, body)
    terms = ProjectTerms.model_validate(
        view["terms"] or {"project": "alpha", "version": 1, "asked": ASKED, "data_schema": SCHEMA}
    )
    token = (await api.ok("POST", "/v1/projects/alpha/invitations", owner, {"participant": "north"}))["token"]
    consent = None if asked is None else said(terms, site.signing, api.clock.now())
    await api.ok("POST", "/v1/join", body=await site.body(api, token, consent=consent))
    return site, owner, terms


def said(terms: ProjectTerms, key: SigningKey, at: datetime) -> dict[str, Any]:
    return signed(AgreedTerms(terms=terms, by="Dr. Day", at=at), "north", key).model_dump(mode="json")


async def told(api: Api, owner: str) -> list[dict[str, Any]]:
    """What the audit has of the sites' consent."""
    events = (await api.ok("GET", "/v1/projects/alpha/audit?action=participant.consent", owner))["events"]
    return [each["detail"] for each in events]


async def strangers(api: Api) -> list[dict[str, Any]]:
    """A stranger says of a project without terms that its site agrees to the stranger's own."""
    _, owner, terms = await joined(api, asked=None)
    consent = said(terms, SigningKey.create(), api.clock.now())
    await api.call("POST", "/v1/consent", body={"project": "alpha", "participant": "north", "consent": consent})
    return await told(api, owner)


async def test_nobody_else_says_that_a_site_agrees_where_a_project_has_no_terms(api: Api) -> None:
    assert await strangers(api) == []


@pytest.mark.control("test_nobody_else_says_that_a_site_agrees_where_a_project_has_no_terms")
async def test_control_where_consent_to_nothing_is_not_looked_at_a_stranger_writes_a_sites_consent(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def anybody(hub: Any, *_: Any, project: str, participant: str, **_more: Any) -> ParticipantRecord:
        return (await hub.buckets.participants.require(project=project, participant=participant)).value

    monkeypatch.setattr(terms_api, "who_signed", anybody)
    monkeypatch.setattr(terms_api, "check_consent", lambda *_: None)
    (forged,) = await strangers(api)
    assert forged["by"] == "Dr. Day"


async def again_and_again(api: Api) -> list[dict[str, Any]]:
    """A site agrees to the same terms twenty times, each time at another moment."""
    site, owner, terms = await joined(api, asked=ASKED)
    for number in range(20):
        consent = said(terms, site.signing, api.clock.now() + timedelta(milliseconds=number))
        await api.ok("POST", "/v1/consent", body={"project": "alpha", "participant": "north", "consent": consent})
    return await told(api, owner)


async def test_a_site_that_agrees_again_and_again_does_not_fill_the_audit(api: Api) -> None:
    assert len(await again_and_again(api)) == 1


@pytest.mark.control("test_a_site_that_agrees_again_and_again_does_not_fill_the_audit")
async def test_control_where_each_other_consent_is_news_each_is_written_down(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(_record: ParticipantRecord, _consent: Consent) -> bool:
        return True

    monkeypatch.setattr(terms_api, "is_news", always)
    assert len(await again_and_again(api)) == 21


@pytest.mark.no_attack("what anybody may send by mistake")
async def test_a_name_that_is_none_is_refused_and_no_defect_of_the_hub(api: Api) -> None:
    site, _, terms = await joined(api, asked=ASKED)
    consent = said(terms, site.signing, api.clock.now())
    for name in ("", "Dr. Day\nadmin"):
        body = {"project": "alpha", "participant": "north", "consent": consent | {"by": name}}
        status, code, message = await api.refused("POST", "/v1/consent", body=body)
        assert (status, code, "by" in message) == (400, "invalid-input", True)


@pytest.mark.no_attack("an honest site")
async def test_a_site_that_could_not_tell_the_hub_for_days_is_heard_all_the_same(api: Api) -> None:
    """Its administrator agrees while the datapod is stopped, or the hub is away."""
    site, owner, _ = await joined(api, asked=ASKED)
    changed = await api.ok("POST", "/v1/projects/alpha/terms", owner, ASKED.model_dump(mode="json") | {"masked": True})
    consent = said(ProjectTerms.model_validate(changed["terms"]), site.signing, api.clock.now())
    api.clock.advance(3 * 86_400)
    await api.ok("POST", "/v1/consent", body={"project": "alpha", "participant": "north", "consent": consent})
    assert [each["terms"] for each in await told(api, owner)][-1] == changed["terms_digest"]
