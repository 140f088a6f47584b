"""Participants: who is enrolled, when last seen, with which clock; and the end of their membership."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TypeVar

from hanse_coordinator.api.by_signature import who_signed
from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.paging import page_of
from hanse_coordinator.api.route import OWN, PUBLIC, READ, Request, Route, view
from hanse_coordinator.api.terms import digest_of
from hanse_coordinator.records import ApiKeyRecord, InvitationRecord, ProjectRecord
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.secrets import make_api_key
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.records import Bucket, Entry
from hanse_schemas.http.joining import HasLeft, ToLeave, check_clocks, leaving_statement
from hanse_schemas.http.keys import ApiRole
from hanse_schemas.http.paging import Page
from hanse_schemas.http.participants import BudgetView, ConsentView, ParticipantList, ParticipantView


def _view(hub: Hub, project: ProjectRecord, record: ParticipantRecord) -> ParticipantView:
    seen = hub.presence.of(record.project, record.participant)
    return view(
        ParticipantView,
        record,
        region=record.connects_in,
        public_key=base64.b64encode(record.public_key).decode(),
        version=seen.presence.version if seen else record.version,
        device=seen.presence.device if seen else "",
        last_seen=seen.at if seen else None,
        online=not record.revoked and hub.presence.online(seen),
        clock_difference=seen.clock_difference if seen else None,
        unfit=bool(seen and seen.presence.unfit),
        paused=bool(seen and seen.presence.paused),
        rules=seen.presence.rules if seen else None,
        budget=BudgetView(**budget.model_dump()) if seen and (budget := seen.presence.budget) else None,
        working_on=seen.presence.working_on if seen else None,
        consent=None if record.consent is None else ConsentView(
            terms=record.consent.terms, by=record.consent.by, at=record.consent.at,
            current=record.consent.terms == digest_of(project),
        ),
    )  # fmt: skip


async def list_participants(hub: Hub, request: Request) -> ParticipantList:
    project = await hub.project(request.project)
    found = [entry.value for entry in await hub.buckets.participants.list(project=request.project)]
    found.sort(key=lambda record: record.participant)
    page = page_of(found, request.query, lambda record: record.participant, by_name=True)
    return ParticipantList(participants=tuple(_view(hub, project, record) for record in page))


async def get_participant(hub: Hub, request: Request) -> ParticipantView:
    name = str(request.path["participant"])
    if request.caller.role is ApiRole.SITE and request.caller.participant != name:
        raise HanseError(ErrorCode.FORBIDDEN, f"participant: a site's key does not show another site ({name!r})")
    record = (await hub.buckets.participants.require(project=request.project, participant=name)).value
    return _view(hub, await hub.project(request.project), record)


async def revoke_participant(hub: Hub, request: Request) -> ParticipantView:
    """May be repeated."""
    tokens = {"project": request.project, "participant": str(request.path["participant"])}
    entry = await hub.buckets.participants.change(lambda old: old.model_copy(update={"revoked": True}), **tokens)
    record = entry.value
    await hub.audit(
        request.caller, request.project, "participant.revoke", f"participant:{record.participant}", key=record.api_key
    )
    await _void_keys(hub, record)
    return _view(hub, await hub.project(request.project), record)


async def leave(hub: Hub, request: Request) -> HasLeft:
    """A site ends its own membership. Who asks is told by the signature alone: its token may have ended. May be
    repeated, also by a site that the owner has revoked meanwhile."""
    body: ToLeave = request.body
    statement = leaving_statement(
        project=body.project, participant=body.participant, reason=body.reason, sent_at=body.sent_at
    )
    there = await who_signed(
        hub, request, statement, body.signature, project=body.project, participant=body.participant, what="leaving"
    )
    check_clocks(body.sent_at, hub.clock.now(), field="sent_at")
    now, key, first = hub.clock.now(), there.public_key, False

    def left(old: ParticipantRecord) -> ParticipantRecord:
        nonlocal first
        # A site that was let in anew by this name meanwhile has other keys, and stays.
        first = not old.revoked and old.public_key == key
        if not first:
            return old
        return old.model_copy(update={"revoked": True, "left_at": now})

    changed = await hub.buckets.participants.change(left, project=body.project, participant=body.participant)
    if changed.value.public_key != key:
        return HasLeft(participant=body.participant)
    if first:
        await hub.audit_as(
            f"participant:{body.participant}", "its own key", body.project, "participant.leave",
            f"participant:{body.participant}", reason=body.reason,
        )  # fmt: skip
    await _void_keys(hub, changed.value)
    return HasLeft(participant=body.participant)


async def _void_keys(hub: Hub, record: ParticipantRecord) -> None:
    """Of a site whose record says that it is no member, so that results are refused already: its invitations, and all
    API and bus keys that it ever had. The invitation that the record is of is refused by that."""
    await _revoke_all(hub.buckets.invitations, record, lambda one: one.used_by is None or one.id != record.api_key)
    keys = await _revoke_all(hub.buckets.keys, record, lambda _: True)
    if record.api_key and all(key.value.id != record.api_key for key in keys):
        keys.append(await _revoke_before_it_is_made(hub, record))
    for key in keys:
        hub.keys.note(key.value, key.revision)
    await hub.credentials.revoke(record.connects_in, record.bus_key, *(record.former_bus_keys or ()))


async def _revoke_before_it_is_made(hub: Hub, site: ParticipantRecord) -> Entry[ApiKeyRecord]:
    """The key of a site that joins at this very moment: who makes it finds that it is revoked."""
    record = ApiKeyRecord(
        id=site.api_key, hash=make_api_key().hash, role=ApiRole.SITE, project=site.project,
        participant=site.participant, name=f"site {site.participant}", created_at=hub.clock.now(), revoked=True,
    )  # fmt: skip
    try:
        return await hub.buckets.keys.create(record, key=record.id)
    except HanseError as error:
        if error.code is not ErrorCode.CONFLICT:
            raise
    return await hub.buckets.keys.change(lambda old: old.model_copy(update={"revoked": True}), key=record.id)


R = TypeVar("R", InvitationRecord, ApiKeyRecord)


async def _revoke_all(bucket: Bucket[R], site: ParticipantRecord, wanted: Callable[[R], bool]) -> list[Entry[R]]:
    """Revoke what a bucket has of a site and is wanted; returns it as it is now."""
    return [
        await bucket.change(lambda old: old.model_copy(update={"revoked": True}), **entry.tokens)
        for entry in await bucket.list()
        if (entry.value.project, entry.value.participant) == (site.project, site.participant) and wanted(entry.value)
    ]


_BASE = "/v1/projects/{project}/participants"
ROUTES = (
    Route("GET", _BASE, OWN, list_participants, ParticipantList, "A project's participants", query=Page),
    Route("GET", _BASE + "/{participant}", READ, get_participant, ParticipantView,
          "A participant; a site sees itself"),
    Route("POST", _BASE + "/{participant}/revoke", OWN, revoke_participant, ParticipantView,
          "End a site's membership: its keys stop working at once", ends=True),
    Route("POST", "/v1/leave", PUBLIC, leave, HasLeft, "End one's own membership; signed by the site", body=ToLeave),
)  # fmt: skip
