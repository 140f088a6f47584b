"""Invitations: one-time join tokens that expire. The token is shown once; the hub keeps its hash."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from hanse_coordinator.absence import was_away_too_long
from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.paging import page_of
from hanse_coordinator.api.route import OWN, Request, Route, view
from hanse_coordinator.records import InvitationRecord
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.secrets import make_join_token
from hanse_fabric.names import HUB_REGION
from hanse_schemas.http.invitations import InvitationList, InvitationView, Invite, IssuedInvitation
from hanse_schemas.http.paging import Page


def _view(record: InvitationRecord, now: datetime) -> InvitationView:
    state: Literal["open", "used", "expired", "revoked"] = "open"
    if record.revoked:
        state = "revoked"
    elif record.used_by is not None:
        state = "used"
    elif record.expires_at <= now:
        state = "expired"
    return view(InvitationView, record, state=state, region=record.region or HUB_REGION)


async def create_invitation(hub: Hub, request: Request) -> IssuedInvitation:
    body: Invite = request.body
    project = await hub.project(request.project)
    regions = await hub.credentials.regions()
    if body.region not in regions:
        known = f"one of {', '.join(regions)}"
        raise invalid("region", body.region, known, hint="the hub's operator adds regions (docs/scale.md)")
    enrolled = await hub.buckets.participants.get(project=request.project, participant=body.participant)
    if enrolled is not None and not (enrolled.value.revoked or was_away_too_long(project, enrolled.value, hub.clock)):
        raise HanseError(
            ErrorCode.CONFLICT,
            f"participant: {body.participant!r} is enrolled already",
            hint="choose another name, or revoke the participant first and invite it again",
        )
    token, now = make_join_token(), hub.clock.now()
    ttl = hub.info.invitation_ttl if body.expires_in is None else body.expires_in
    record = InvitationRecord(
        id=token.id,
        project=request.project,
        participant=body.participant,
        hash=token.hash,
        created_at=now,
        created_by=request.caller.actor,
        expires_at=now + timedelta(seconds=ttl),
        region=None if body.region == HUB_REGION else body.region,
    )
    await hub.buckets.invitations.create(record, invitation=token.id)
    await hub.audit(
        request.caller, request.project, "participant.invite", f"participant:{body.participant}",
        invitation=token.id, region=body.region,
    )  # fmt: skip
    return IssuedInvitation(
        id=token.id, token=token.text, participant=body.participant, region=body.region, expires_at=record.expires_at
    )


async def list_invitations(hub: Hub, request: Request) -> InvitationList:
    await hub.project(request.project)
    now = hub.clock.now()
    found = [entry.value for entry in await hub.buckets.invitations.list()]
    own = sorted((record for record in found if record.project == request.project), key=lambda item: item.created_at)
    page = page_of(own, request.query, lambda record: record.id)
    return InvitationList(invitations=tuple(_view(record, now) for record in page))


async def revoke_invitation(hub: Hub, request: Request) -> InvitationView:
    entry = await hub.buckets.invitations.get(invitation=request.path["invitation"])
    if entry is None or entry.value.project != request.project:
        raise HanseError(ErrorCode.NOT_FOUND, f"there is no invitation {request.path['invitation']!r} in this project")

    def alter(record: InvitationRecord) -> InvitationRecord:
        if record.used_by is not None:
            raise HanseError(
                ErrorCode.GONE,
                f"invitation {record.id}: it was used already by {record.participant}",
                hint="revoke the participant instead",
            )
        return record.model_copy(update={"revoked": True})

    changed = await hub.buckets.invitations.change(alter, invitation=entry.value.id)
    await hub.audit(request.caller, request.project, "invitation.revoke", f"invitation:{entry.value.id}")
    return _view(changed.value, hub.clock.now())


_BASE = "/v1/projects/{project}/invitations"
ROUTES = (
    Route("POST", _BASE, OWN, create_invitation, IssuedInvitation, "Invite a site: a one-time join token",
          body=Invite, status=201),
    Route("GET", _BASE, OWN, list_invitations, InvitationList, "A project's invitations", query=Page),
    Route("DELETE", _BASE + "/{invitation}", OWN, revoke_invitation, InvitationView, "Void a token that is not used",
          ends=True),
)  # fmt: skip
