"""The audit: who did what, when, on whose authority. It is only ever added to.

All projects' entries are in one stream, for good. So a page is read from the end that it is near to, in stretches that
grow, and no more of them than it takes to fill it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from hanse_coordinator.api.hub import HUB_AUDIT, Hub
from hanse_coordinator.api.route import OPERATE, OWN, Request, Route
from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import AuditEvent
from hanse_fabric.subjects import AUDIT, Stream
from hanse_schemas.http.audit import AuditEntry, AuditLog, AuditQuery

_STREAM: Stream = AUDIT.stream or Stream("")
_FIRST, _MOST = 512, 65_536
"""Sequences of a page's first stretch, and of the longest."""
_WITHIN_S = 10.0


async def project_audit(hub: Hub, request: Request) -> AuditLog:
    await hub.project(request.project)
    return await _page(hub, request.project, request.query)


async def hub_audit(hub: Hub, request: Request) -> AuditLog:
    return await _page(hub, HUB_AUDIT, request.query)


async def _page(hub: Hub, project: str, query: AuditQuery) -> AuditLog:
    _check_zones(query)
    found: list[AuditEntry] = []
    async with aclosing(_stretches(hub.bus, AUDIT.of(project=project), query)) as stretches:
        async for records in stretches:
            found += await asyncio.to_thread(_chosen, records, query, query.limit - len(found))
            if len(found) == query.limit:
                break
    return AuditLog(events=tuple(found))


async def _stretches(bus: Bus, subject: str, query: AuditQuery) -> AsyncGenerator[Sequence[Record], None]:
    """A project's entries between `after` and `before`, a stretch at a time, from the end that the page begins at."""
    newest = await bus.last(_STREAM, subject)
    if newest is None:
        return
    first = query.after + 1
    stop = newest.sequence + 1 if query.before is None else min(query.before, newest.sequence + 1)
    width = _FIRST
    while first < stop:
        if query.newest:
            start, stop_here = max(first, stop - width), stop
            stop = start
        else:
            start, stop_here = first, min(first + width, stop)
            first = stop_here
        yield await _between(bus, subject, start, stop_here, newest.sequence)
        width = min(2 * width, _MOST)


async def _between(bus: Bus, subject: str, start: int, stop: int, newest: int) -> list[Record]:
    """The entries with sequences from `start` to before `stop`. One at or behind that is there, or `newest` is the
    last: entries are never removed."""
    found: list[Record] = []
    try:
        async with bus.clock.timeout(_WITHIN_S), bus.follow(_STREAM, subject, after=start - 1) as records:
            async for record in records:
                if record.sequence < stop:
                    found.append(record)
                if record.sequence >= min(stop, newest):
                    return found
    except TimeoutError:
        raise HanseError(ErrorCode.TIMEOUT, "audit: the bus does not give it", hint="try again") from None
    return found


def _chosen(records: Sequence[Record], query: AuditQuery, most: int) -> list[AuditEntry]:
    """The wanted ones, at most so many; of the others no more is read than it takes to see that they are. Pure."""
    found: list[AuditEntry] = []
    for record in reversed(records) if query.newest else records:
        event = AuditEvent.decode(record.data)
        if _is_wanted(event, query):
            found.append(AuditEntry(sequence=record.sequence, **dict(event)))
        if len(found) == most:
            break
    return found


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
