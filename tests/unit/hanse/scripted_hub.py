"""The HTTP server behind the tests of the SDK: routes answer from a script, and requests are kept."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from pydantic import BaseModel

from hanse_schemas.http.outputs import OutputLink
from hanse_schemas.http.participants import ParticipantView
from hanse_schemas.http.projects import ProjectView
from hanse_schemas.http.runs import RunView

NOON = "2026-01-01T12:00:00Z"
JOB = {"rounds": 3, "model": {"name": "mlp"}, "participants": {"minimum": 2}}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any = None


@dataclass
class ScriptedHub:
    """Answers: a status and a body, or a handler; the last of a list is repeated."""

    seen: list[Seen] = field(default_factory=list)
    _script: dict[tuple[str, str], list[Any]] = field(default_factory=dict)
    url: str = ""

    def answer(self, method: str, path: str, *answers: tuple[int, Any] | Handler) -> None:
        self._script[(method, path)] = list(answers)

    def calls(self, method: str, path: str) -> list[Seen]:
        return [one for one in self.seen if (one.method, one.path) == (method, path)]

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        text = await request.text()
        path = request.raw_path
        self.seen.append(Seen(request.method, path, dict(request.headers), json.loads(text) if text else None))
        answers = self._script.get((request.method, path.partition("?")[0]))
        if not answers:
            return web.json_response(
                {"error": {"code": "not-found", "message": f"{path}: none", "hint": ""}}, status=404
            )
        chosen = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(chosen):
            return await chosen(request)
        status, body = chosen
        return web.json_response(body, status=status)


def error(code: str, message: str = "it is so", hint: str = "do this") -> dict[str, Any]:
    """A body of the catalogue's form."""
    return {"error": {"code": code, "message": message, "hint": hint}}


def frame(sequence: int, kind: str, **data: Any) -> bytes:
    """A server-sent event as the coordinator writes it."""
    body = {"kind": kind, "at": "2026-01-01T12:00:00Z", "round": data.pop("round", 0), "data": data}
    return f"id: {sequence}\nevent: {kind}\ndata: {json.dumps(body)}\n\n".encode()


def stream(*chunks: bytes, broken: bool = False) -> Handler:
    """Answer an event stream; `broken`: the connection is cut instead of ended."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if broken:
            assert request.transport is not None
            request.transport.close()
        else:
            await response.write_eof()
        return response

    return handle


async def cut(request: web.Request) -> web.StreamResponse:
    """Take the request, and cut the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def run_view(state: str = "running", **fields: Any) -> dict[str, Any]:
    """A run as the hub tells it."""
    told = {
        "project": "triage", "run": "run000000001", "state": state, "wanted": "run", "created_at": NOON,
        "created_by": "key:k", "updated_at": NOON, "round": 1, "rounds": 3, "reason": "", "metrics": {},
        "model_version": None, "model_digest": None, "outputs": (), "job": JOB, "privacy": "",
    }  # fmt: skip
    return as_json(RunView.model_validate({**told, **fields}))


def project_view(name: str = "triage", **fields: Any) -> dict[str, Any]:
    """A project as the hub tells it."""
    told = {"name": name, "schema": {"kind": "open"}, "description": "", "created_at": NOON, "created_by": "key:k"}
    return as_json(ProjectView.model_validate({**told, **fields}))


def site_view(participant: str = "north", **fields: Any) -> dict[str, Any]:
    """A participant as the hub tells it."""
    told = {
        "participant": participant, "enrolled_at": NOON, "revoked": False, "public_key": "", "version": "0.1.0",
        "device": "", "last_seen": None, "online": False, "clock_difference": None, "working_on": None,
    }  # fmt: skip
    return as_json(ParticipantView.model_validate({**told, **fields}))


def output_link(url: str, output: dict[str, Any]) -> dict[str, Any]:
    """A presigned link to an output as the hub tells it."""
    return as_json(OutputLink.model_validate({"url": url, "expires_at": NOON, "output": output}))


def as_json(body: BaseModel) -> dict[str, Any]:
    """An answer as it crosses the wire: as the coordinator's server writes it."""
    found: dict[str, Any] = json.loads(body.model_dump_json(by_alias=True))
    return found
