"""Joining: a site shows its token, proves that it has its keys, and gets its credentials.

The token is claimed first, by compare-and-set, for one public key. Everything after it may be repeated: the same site
with the same key completes what a crash cut off, and nobody else can use the token.
"""

from __future__ import annotations

import base64

from hanse_coordinator.absence import check_absence, note_there
from hanse_coordinator.api.by_signature import require_member, who_signed
from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.proof import check_proof, gone, invitation_entry
from hanse_coordinator.api.route import PUBLIC, Request, Route
from hanse_coordinator.api.terms import check_consent, tell_consent
from hanse_coordinator.records import ApiKeyRecord, InvitationRecord, ProjectRecord
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity import secrets
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.names import HUB_REGION
from hanse_fabric.records import Entry
from hanse_schemas.http.joining import Join, Joined, Renew, Renewed, check_clocks, renewal_statement
from hanse_schemas.http.keys import ApiRole

_MOST_BUS_KEYS = 100


async def join(hub: Hub, request: Request) -> Joined:
    body: Join = request.body
    check_clocks(body.sent_at, hub.clock.now(), field="sent_at")
    token = secrets.parse(body.token, secrets.Kind.JOIN_TOKEN)
    known = await invitation_entry(hub, request, token)
    found = known.value
    check_proof(body, token)
    project = await hub.project(found.project)
    there = await _check_place(hub, project, found, body.public_key)
    check_consent(hub, project, found.participant, body.consent, VerifyKey(base64.b64decode(body.public_key)))
    # A credential that cannot be made must not use the token up.
    region = found.region or HUB_REGION
    bus_jwt = await hub.credentials.issue(found.project, found.participant, body.bus_key, region=region)
    invitation = (await _claim(hub, token, body, known)).value
    await _enrol(hub, invitation, body, there)
    api_key = await _give_key(hub, invitation)
    await hub.audit_as(
        f"participant:{invitation.participant}",
        f"invitation {invitation.id} by {invitation.created_by}",
        invitation.project,
        "participant.join",
        f"participant:{invitation.participant}",
        public_key=body.public_key,
        version=body.version,
    )
    if body.consent is not None:
        await tell_consent(hub, invitation.project, invitation.participant, body.consent)
    return Joined(
        project=invitation.project,
        participant=invitation.participant,
        bus_url=hub.info.region_urls.get(region, hub.info.bus_url),
        bus_jwt=bus_jwt,
        bus_ca=hub.info.bus_ca,
        store_ca=hub.info.store_ca,
        data_schema=project.data_schema,
        hub_name=hub.info.name,
        api_key=api_key,
    )


async def renew(hub: Hub, request: Request) -> Renewed:
    """Another token for the bus. Who asks is told by the signature alone: it may have no token that is still good."""
    body: Renew = request.body
    statement = renewal_statement(project=body.project, participant=body.participant, sent_at=body.sent_at)
    record = await who_signed(
        hub, request, statement, body.signature, project=body.project, participant=body.participant, what="renewal"
    )
    require_member(record)
    check_clocks(body.sent_at, hub.clock.now(), field="sent_at")
    check_absence(await hub.project(body.project), record, hub.clock)
    await note_there(hub.buckets.participants, record, hub.clock)
    return Renewed(
        bus_jwt=await hub.credentials.issue(body.project, body.participant, record.bus_key, region=record.connects_in)
    )


async def _check_place(
    hub: Hub, project: ProjectRecord, invitation: InvitationRecord, public_key: str
) -> ParticipantRecord | None:
    """The name must be free, or be this very site's; and a new site one that the project's quota allows.

    Returns:
        Who has or had the name.
    """
    there = await hub.buckets.participants.get(project=invitation.project, participant=invitation.participant)
    if there is not None:
        _check_free(there.value, invitation, public_key)
        if invitation.created_at <= there.value.last_there:  # a token of before, which it may use again
            check_absence(project, there.value, hub.clock)
    if there is None or there.value.revoked:
        await hub.quotas.take_site(invitation.project)
    return None if there is None else there.value


def _check_free(there: ParticipantRecord, invitation: InvitationRecord, public_key: str) -> None:
    if there.revoked:
        if there.api_key == invitation.id:
            raise gone(f"the participant {invitation.participant!r} that it made was revoked")
        return
    if base64.b64encode(there.public_key).decode() != public_key:
        raise HanseError(
            ErrorCode.CONFLICT,
            f"participant: {invitation.participant!r} is enrolled already, with another key",
            hint="the owner revokes it first, or invites by another name",
        )


async def _claim(
    hub: Hub, token: secrets.Credential, body: Join, known: Entry[InvitationRecord]
) -> Entry[InvitationRecord]:
    now = hub.clock.now()

    def claimed(record: InvitationRecord) -> InvitationRecord:
        if record.challenge != body.challenge:
            raise HanseError(
                ErrorCode.CONFLICT, "challenge: it is not the last that was given for this token, or was answered",
                hint="join again; the token is still good for this site",
            )  # fmt: skip
        return record.model_copy(update={"used_by": body.public_key, "challenge": None})

    def alter(record: InvitationRecord) -> InvitationRecord:
        if record.revoked:
            raise gone("it was revoked")
        if record.used_by is not None:
            if record.used_by != body.public_key:
                raise gone("it was used already, by another key")
            return claimed(record)
        if record.expires_at <= now:
            raise gone(f"it expired at {record.expires_at:%Y-%m-%d %H:%M:%S} UTC")
        return claimed(record)

    return await hub.buckets.invitations.change(alter, known, invitation=token.id)


async def _give_key(hub: Hub, invitation: InvitationRecord) -> str:
    """The site's API key. Its id is the invitation's; its secret is new each time, for only its hash is kept."""
    key = secrets.Credential(secrets.Kind.API_KEY, invitation.id, secrets.make_api_key().secret)
    record = ApiKeyRecord(
        id=key.id,
        hash=key.hash,
        role=ApiRole.SITE,
        project=invitation.project,
        participant=invitation.participant,
        name=f"site {invitation.participant}",
        created_at=hub.clock.now(),
        created_by=invitation.created_by,
    )
    try:  # most sites join once: to look first, here and where one is enrolled, would be one more question for each
        entry = await hub.buckets.keys.create(record, key=key.id)
    except HanseError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise
        entry = await hub.buckets.keys.change(
            lambda old: old if old.revoked else old.model_copy(update={"hash": key.hash}), key=key.id
        )
    hub.keys.note(entry.value, entry.revision)
    return key.text


async def _enrol(hub: Hub, invitation: InvitationRecord, body: Join, seen: ParticipantRecord | None) -> None:
    record = ParticipantRecord.model_validate(
        {
            "project": invitation.project,
            "participant": invitation.participant,
            "public_key": body.public_key,
            "bus_key": body.bus_key,
            "api_key": invitation.id,
            "enrolled_at": hub.clock.now(),
            "version": body.version,
            "region": invitation.region,
            "consent": body.consent,
        }
    )
    name = {"project": invitation.project, "participant": invitation.participant}
    if seen is None:
        try:
            await hub.buckets.participants.create(record, **name)
        except HanseError as error:
            if error.code is not ErrorCode.CONFLICT:
                raise
        else:
            return
    there = await hub.buckets.participants.require(**name)
    # Read again: the owner or another token may have changed it meanwhile.
    _check_free(there.value, invitation, body.public_key)
    if there.value.revoked and (seen is None or not seen.revoked):
        raise gone(f"the participant {invitation.participant!r} was revoked while it joined")
    if there.value.api_key != record.api_key or there.value.bus_key != record.bus_key:
        had = {*(there.value.former_bus_keys or ()), there.value.bus_key} - {record.bus_key}
        if len(had) > _MOST_BUS_KEYS:
            raise HanseError(
                ErrorCode.CONFLICT, f"bus_key: {invitation.participant!r} has had {_MOST_BUS_KEYS} others already",
                hint="join with the bus key of before; or the owner revokes the site and invites it anew",
            )  # fmt: skip
        # First: whoever is cut off here does it again. A site that has lost its keys is rid of whoever has them.
        if had:
            await hub.credentials.revoke(there.value.connects_in, *sorted(had))
        record = record.model_copy(update={"former_bus_keys": tuple(sorted(had)) or None})
        await hub.buckets.participants.update(record, there.revision, **name)


ROUTES = (
    Route("POST", "/v1/join", PUBLIC, join, Joined, "Join a project with a one-time token and proof of one's keys",
          body=Join),
    Route("POST", "/v1/renew", PUBLIC, renew, Renewed, "Renew a token for the bus; signed by the site",
          body=Renew),
)  # fmt: skip
