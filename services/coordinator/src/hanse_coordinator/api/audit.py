"""The audit: who did what, when, on whose authority. It is only ever added to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from hanse_coordinator.api.hub import HUB_AUDIT, Hub
from hanse_coordinator.api.route import OPERATE, OWN, Request, Route
from hanse_fabric.bus.port import Record
from hanse_fabric.errors import invalid
from hanse_fabric.messages import AuditEvent
from hanse_fabric.subjects import AUDIT, Stream
from hanse_schemas.http.audit import AuditEntry, AuditLog, AuditQuery

_STREAM: Stream = AUDIT.stream or Stream("")


async def project_audit(hub: Hub, request: Request) -> AuditLog:
    await hub.project(request.project)
    return await _page(hub, request.project, request.query)


async def hub_audit(hub: Hub, request: Request) -> AuditLog:
    return await _page(hub, HUB_AUDIT, request.query)


async def _page(hub: Hub, project: str, query: AuditQuery) -> AuditLog:
    _check_zones(query)
    records = await hub.bus.snapshot(_STREAM, AUDIT.of(project=project))
    return AuditLog(events=await asyncio.to_thread(_chosen, records, query))


def _chosen(records: Sequence[Record], query: AuditQuery) -> tuple[AuditEntry, ...]:
    """The entries of a page: of the others no more is read than it takes to see that they are others. Pure."""
    found: list[AuditEntry] = []
    for record in reversed(records) if query.newest else records:
        if record.sequence <= query.after or (query.before is not None and record.sequence >= query.before):
            continue
        event = AuditEvent.decode(record.data)
        if _is_wanted(event, query):
            found.append(AuditEntry(sequence=record.sequence, **dict(event)))
        if len(found) == query.limit:
            break
    return tuple(found)


def _is_wanted(event: AuditEvent, query: AuditQuery) -> bool:
    if query.action is not None and event.action != query.action and not event.action.startswith(f"{query.action}."):
        return False
    if query.actor is not None and event.actor != query.actor:
        return False
    if (query.since is not None and event.at < query.since) or (query.until is not None and event.at > query.until):
        return False
    if query.contains is None:
        return True
    told = (event.actor, event.action, event.subject, event.authority, json.dumps(event.detail, ensure_ascii=False))
    return query.contains.casefold() in "\n".join(told).casefold()


def _check_zones(query: AuditQuery) -> None:
    for name, moment in (("since", query.since), ("until", query.until)):
        if moment is not None and moment.tzinfo is None:
            raise invalid(name, moment.isoformat(), "a moment with its zone, such as 2026-05-04T12:00:00Z")


ROUTES = (
    Route("GET", "/v1/projects/{project}/audit", OWN, project_audit, AuditLog, "A project's audit", query=AuditQuery),
    Route("GET", "/v1/audit", OPERATE, hub_audit, AuditLog, "The audit of what belongs to no project", query=AuditQuery,
          unscoped=True),
)  # fmt: skip
