"""Watching a run: its events as server-sent events, from the beginning or after `Last-Event-ID`, until it has ended."""

from __future__ import annotations

import asyncio

from aiohttp import web

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.route import OWN, Request, Route
from hanse_fabric.bus.port import Record
from hanse_fabric.clock import ends_within
from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.messages import RunEvent
from hanse_fabric.subjects import EVENT, Stream
from hanse_schemas.http.events import Event, WatchQuery
from hanse_schemas.http.runs import FINAL_STATES

_LONG = frozenset({"sites", "curves"})
HEARTBEAT_S = 15.0
_LOOK_S = 0.5
_GONE_S = 10.0
_TOGETHER_S, _MOST_TOGETHER = 0.05, 256
_STREAM: Stream = EVENT.stream or Stream("")


async def watch_run(hub: Hub, request: Request) -> web.StreamResponse:
    """Events with their stream sequence as id. A comment every 15 s keeps proxies from closing the connection."""
    query: WatchQuery = request.query
    after = max(query.after, _last_seen(request.http))
    tokens = {"project": request.project, "run": str(request.path["run"])}
    await hub.buckets.runs.require(**tokens)
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    await response.prepare(request.http)
    try:
        if query.thinned:
            told, upto = await hub.histories.past(tokens["project"], tokens["run"], after)
            await response.write(b"".join(_frame(at, event, brief=query.brief) for at, event in told))
            after = max(after, upto)
        await _send(hub, request, response, tokens, after, brief=query.brief)
        await response.write_eof()
    except ConnectionError:
        return response  # the watcher has left, perhaps because it has seen the last event
    except HanseError:
        return response  # the bus is away; the watcher comes back with Last-Event-ID
    return response


def _last_seen(request: web.Request) -> int:
    text = request.headers.get("Last-Event-ID", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise invalid("Last-Event-ID", text, "the id of an event: a whole number")
    return int(text)


async def _send(
    hub: Hub,
    request: Request,
    response: web.StreamResponse,
    tokens: dict[str, str],
    after: int,
    *,
    brief: bool,
) -> None:
    subject = EVENT.of(**tokens)
    entry = await hub.buckets.runs.require(**tokens)
    if entry.value.state in FINAL_STATES:
        newest = await hub.bus.last(_STREAM, subject)
        if newest is None or newest.sequence <= after:
            return
        await _send_past(hub, response, subject, after, newest.sequence, brief=brief)
        return
    async with hub.bus.follow(_STREAM, subject, after=after) as records:
        following = asyncio.ensure_future(anext(records))
        written, admitted = 0.0, hub.clock.monotonic()
        try:
            while not await _quiet(hub, request, response, tokens, following):
                # Whoever is told without a pause is looked at as often as in pauses.
                if hub.clock.monotonic() >= admitted + HEARTBEAT_S:
                    if not await hub.admits(request.caller, request.project):
                        return
                    admitted = hub.clock.monotonic()
                # One alone is told at once; of many, all that come within a moment are told together.
                if (pause := written + _TOGETHER_S - hub.clock.monotonic()) > 0:
                    await hub.clock.sleep(pause)
                frames: list[bytes] = []
                over = False
                while following.done() and not over and len(frames) < _MOST_TOGETHER:
                    record = following.result()
                    event = RunEvent.decode(record.data)
                    frames.append(_frame(record.sequence, event, brief=brief))
                    over = event.kind == "state" and event.data.get("state") in FINAL_STATES
                    following = asyncio.ensure_future(anext(records))
                    await hub.clock.sleep(0)  # the next is there by then, if it is at hand
                await response.write(b"".join(frames))
                written = hub.clock.monotonic()
                if over:
                    return
        finally:
            await _stop(following)


async def _send_past(
    hub: Hub, response: web.StreamResponse, subject: str, after: int, upto: int, *, brief: bool
) -> None:
    """What has happened, as it is read: there may be more than memory holds."""
    async with hub.bus.follow(_STREAM, subject, after=after) as records:
        while after < upto:
            try:
                async with hub.clock.timeout(_GONE_S):
                    record = await anext(records)
            except TimeoutError:
                return  # the newest was shed meanwhile
            after = record.sequence
            await response.write(_frame(after, RunEvent.decode(record.data), brief=brief))


async def _quiet(
    hub: Hub,
    request: Request,
    response: web.StreamResponse,
    tokens: dict[str, str],
    following: asyncio.Future[Record],
) -> bool:
    """Wait for the next event; True when none will come, or nobody is there for it, or may be any more."""
    beat = hub.clock.monotonic() + HEARTBEAT_S
    while True:
        if await ends_within(hub.clock, following, _LOOK_S):
            return False
        transport = request.http.transport
        if hub.stopping.is_set() or transport is None or transport.is_closing():
            return True
        if hub.clock.monotonic() >= beat:
            beat = hub.clock.monotonic() + HEARTBEAT_S
            await response.write(b": still here\n\n")
            if not await hub.admits(request.caller, request.project):
                return True
            entry = await hub.buckets.runs.get(**tokens)
            if entry is None or entry.value.state in FINAL_STATES:
                # Its last event was lost, or told while nobody could hear; the record is what counts.
                return not following.done()


async def _stop(following: asyncio.Future[Record]) -> None:
    following.cancel()
    await asyncio.wait({following})


def _frame(sequence: int, event: RunEvent, *, brief: bool) -> bytes:
    data = {name: value for name, value in event.data.items() if not (brief and name in _LONG)}
    told = Event(kind=event.kind, at=event.at, round=event.round, data=data)
    return f"id: {sequence}\nevent: {event.kind}\ndata: {told.model_dump_json()}\n\n".encode()


ROUTES = (
    Route("GET", "/v1/projects/{project}/runs/{run}/events", OWN, watch_run, None,
          "Watch a run: server-sent events; `Last-Event-ID` resumes", query=WatchQuery),
)  # fmt: skip
