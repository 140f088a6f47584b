"""The project's terms at the hub, after a site has joined: what they are now, and that the site agrees to them."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError

from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.explained import explain
from hanse_schemas.http.joining import ToConsent
from hanse_schemas.http.participants import ParticipantView
from hanse_schemas.http.projects import ProjectView
from hanse_schemas.http.reading import read, write
from hanse_schemas.terms import ProjectTerms
from hanse_site.consent import AgreedTerms, signed
from hanse_site.identity import SiteIdentity
from hanse_site.joining import get, post

View = TypeVar("View", ProjectView, ParticipantView)
_TIMEOUT_S = 30.0


async def terms_now(identity: SiteIdentity, clock: Clock = SYSTEM_CLOCK) -> ProjectTerms | None:
    """What the project asks of its sites now; None: nothing.

    Raises:
        HanseError: UNAVAILABLE; TAMPERED for terms of another project, or of other data than the site joined for; else
            what the hub answered.
    """
    terms = (await _read(ProjectView, identity, "", clock)).terms
    if terms is not None and (terms.project, terms.data_schema) != (identity.project, identity.schema):
        raise HanseError(
            ErrorCode.TAMPERED, "the hub tells terms of another project, or of other data than this site joined for",
            hint="ask the project's owner, by another way",
        )  # fmt: skip
    return terms


async def agreed_at_hub(identity: SiteIdentity, clock: Clock = SYSTEM_CLOCK) -> str | None:
    """Digest of the terms that this site has agreed to, as the hub has it; None: none. Raises as `terms_now`."""
    view = await _read(ParticipantView, identity, f"/participants/{identity.participant}", clock)
    return None if view.consent is None else view.consent.terms


async def tell_agreement(identity: SiteIdentity, made: AgreedTerms, clock: Clock = SYSTEM_CLOCK) -> None:
    """Tell the hub that the site agrees. Telling it twice is telling it once. Raises as `terms_now`."""
    consent = signed(made, identity.participant, identity.signing_key)
    body = write(ToConsent, project=identity.project, participant=identity.participant, consent=consent)
    await post(consent_url(identity), body, identity.hub_ca, _TIMEOUT_S, clock)


def consent_url(identity: SiteIdentity) -> str:
    """Where agreements are told."""
    return f"{identity.record.hub}/v1/consent"


async def _read(form: type[View], identity: SiteIdentity, place: str, clock: Clock) -> View:
    record = identity.record
    url = f"{record.hub}/v1/projects/{record.project}{place}"
    told = await get(url, record.api_key, identity.hub_ca, _TIMEOUT_S, clock)
    try:
        return read(form, told)
    except ValidationError as error:
        raise HanseError(ErrorCode.UNAVAILABLE, f"{url}: {explain(error, form)}", hint="is this a Hanse hub?") from None
