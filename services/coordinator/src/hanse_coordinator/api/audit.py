"""The audit: who did what, when, on whose authority. It is only ever added to."""

from __future__ import annotations

from hanse_coordinator.api.hub import HUB_AUDIT, Hub
from hanse_coordinator.api.route import OPERATE, OWN, Request, Route
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
    records = await hub.bus.snapshot(_STREAM, AUDIT.of(project=project))
    wanted = [record for record in records if record.sequence > query.after][: query.limit]
    return AuditLog(
        events=tuple(AuditEntry(sequence=record.sequence, **dict(AuditEvent.decode(record.data))) for record in wanted)
    )


ROUTES = (
    Route("GET", "/v1/projects/{project}/audit", OWN, project_audit, AuditLog, "A project's audit", query=AuditQuery),
    Route("GET", "/v1/audit", OPERATE, hub_audit, AuditLog, "The audit of what belongs to no project", query=AuditQuery,
          unscoped=True),
)  # fmt: skip
