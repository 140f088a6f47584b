"""HTTP at the edge: from the table of routes to an aiohttp application. Parse, ask who it is, call, answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ValidationError

from hanse_coordinator.api.door import LIMITS, Bodies, HttpLimits, UnderWay
from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.openapi import document
from hanse_coordinator.api.route import PATH_TYPES, Request, Route, answer_json
from hanse_coordinator.auth import Caller
from hanse_coordinator.people.cookies import SAFE
from hanse_coordinator.refusals import count_refusal
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.explained import expected, explain
from hanse_fabric.strict_json import parse_json
from hanse_fabric.telemetry import extract, span
from hanse_fabric.telemetry.catalogue import HTTP_REQUESTS, HTTP_SECONDS
from hanse_schemas.http.errors import ErrorAnswer, ErrorBody

_LOG = logging.getLogger(__name__)
_Aiohttp = Callable[[web.Request], Awaitable[web.StreamResponse]]
_CLOCK = web.AppKey("clock", Clock)
_PERSON = web.RequestKey("person", str)
PERSON_HEADER = "Hanse-Person"
"""Whose session a request came by, for the console, which shares its places by person."""


def application(hub: Hub, routes: Sequence[Route], limits: HttpLimits = LIMITS) -> web.Application:
    """The application for these routes; and the document that describes them at /v1/openapi.json."""
    app = web.Application(client_max_size=limits.body_bytes, middlewares=[_answer_errors])
    given = _Given(
        Bodies(limits, hub.clock), UnderWay("requests", limits.requests), UnderWay("watched runs", limits.watched)
    )
    app[_CLOCK] = hub.clock
    app.on_response_prepare.append(_tell_whose)
    for route in routes:
        app.router.add_route(route.method, route.path, _serve(hub, route, given))

    async def openapi(_request: web.Request) -> web.Response:
        return web.Response(body=_described(tuple(routes)), content_type="application/json")

    app.router.add_get("/v1/openapi.json", openapi)
    return app


@cache
def _described(routes: tuple[Route, ...]) -> bytes:
    return json.dumps(document(routes)).encode()


async def _tell_whose(http: web.Request, response: web.StreamResponse) -> None:
    if http.get(_PERSON):
        response.headers[PERSON_HEADER] = http[_PERSON]


@dataclass(frozen=True, slots=True)
class _Given:
    """What each caller is given of this server."""

    bodies: Bodies
    requests: UnderWay
    watched: UnderWay

    @contextmanager
    def one(self, caller: Caller, route: Route) -> Iterator[None]:
        """A place for a request of somebody who is known."""
        with ExitStack() as stack:
            if caller.role is not None:
                stack.enter_context(self.requests.one(caller.actor))
                if route.answer is None:
                    stack.enter_context(self.watched.one(caller.actor))
            yield


def _serve(hub: Hub, route: Route, given: _Given) -> _Aiohttp:
    async def traced(http: web.Request) -> web.StreamResponse:
        with span("http", parent=extract(http.headers), method=route.method, route=route.path):
            return await serve(http)

    async def serve(http: web.Request) -> web.StreamResponse:
        caller = await _caller(hub, route, http)
        http[_PERSON] = caller.person
        with given.one(caller, route):
            return await answer(http, caller)

    async def answer(http: web.Request, caller: Caller) -> web.StreamResponse:
        path = {name: _path_value(name, text) for name, text in http.match_info.items()}
        query = _validated(route.query, _query(http), "query")
        data = await given.bodies.read(http, caller.actor if caller.role else "", hub.address_of(http))
        request = Request(caller, path, _body(route, data), query, http)
        if "project" in path and route.method not in SAFE:
            hub.quotas.take_change(request.project, ends=route.ends)
        made = await route.handler(hub, request)
        return made if isinstance(made, web.StreamResponse) else answer_json(made, route.status)

    return traced


async def _caller(hub: Hub, route: Route, http: web.Request) -> Caller:
    """Who asks, if they may use the route: by an API key, or by a session's cookie where no key is given."""
    if not route.roles:
        return Caller()
    address, header = hub.address_of(http), http.headers.get("Authorization")
    session = None if header is not None else await hub.sessions.identify(http, address)
    caller = await hub.keys.identify(header, address) if session is None else session[0]
    _check_rights(route, caller)
    project = http.match_info.get("project")
    if project is not None and not caller.sees(project):
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"project: {_called(caller)} is for {caller.scope!r}, not for {project!r}",
            hint="ask the operator" if caller.person else "use the key of that project",
        )
    return caller


def _check_rights(route: Route, caller: Caller) -> None:
    """FORBIDDEN where a route is not for such as ask."""
    what = f"{route.method} {route.path}"
    if caller.role not in route.roles:
        needed = " or ".join(sorted(role.value for role in route.roles))
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"{what} needs an API key of role {needed}; this one's is {caller.role.value if caller.role else 'none'}"
            if not caller.person
            else f"{what} needs the role {needed}; {caller.person}'s is {caller.role.value if caller.role else 'none'}",
            hint="ask the operator for such a key" if not caller.person else "ask the operator",
        )
    if caller.read_only and route.method not in SAFE:
        raise HanseError(ErrorCode.FORBIDDEN, f"{what}: this API key is for reading alone", hint="ask the operator")
    if route.in_person and not caller.person:
        raise HanseError(ErrorCode.FORBIDDEN, f"{what} is for people who are signed in; this is a key", hint="sign in")
    if route.unscoped and caller.projects is not None:
        whose = f"{caller.person} sees" if caller.person else "this one is for"
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"{what} needs a {'person' if caller.person else 'key'} for all projects; {whose} {caller.scope!r} alone",
            hint="ask the operator",
        )


def _called(caller: Caller) -> str:
    return f"what {caller.person} may" if caller.person else "this API key"


def _path_value(name: str, text: str) -> Any:
    try:
        return PATH_TYPES[name].validate_python(text)
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{name}: {expected(error.errors()[0])} (given {text[:80]!r})"
        ) from None


def _query(http: web.Request) -> dict[str, str]:
    twice = sorted({name for name in http.query if len(http.query.getall(name)) > 1})
    if twice:
        raise HanseError(ErrorCode.INVALID_INPUT, f"query: {', '.join(twice)} given more than once")
    return dict(http.query)


def _body(route: Route, data: bytes) -> BaseModel | None:
    if route.body is None:
        if data:
            raise HanseError(
                ErrorCode.INVALID_INPUT, f"body: {route.method} {route.path} takes none, {len(data)} bytes given"
            )
        return None
    return _validated(route.body, parse_json(data, "body"), "body")


def _validated(model: type[BaseModel], value: object, where: str) -> BaseModel:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{where}: {explain(error, model)}",
            hint="the fields are described at /v1/openapi.json",
        ) from None


@web.middleware
async def _answer_errors(request: web.Request, handler: _Aiohttp) -> web.StreamResponse:
    """Every refusal in one form. Defects are logged, and told as such without their details."""
    clock = request.app[_CLOCK]
    began = clock.monotonic()
    try:
        response = await handler(request)
    except HanseError as error:
        response = _refusal(error)
    except web.HTTPRequestEntityTooLarge:
        response = _refusal(HanseError(ErrorCode.TOO_LARGE, f"body: more than {request.client_max_size} bytes"))
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        told = HanseError(
            ErrorCode.NOT_FOUND, f"there is no {request.method} {request.path[:200]}", hint=f"there is: {allowed}"
        )
        response = _refusal(told)
    except web.HTTPNotFound:
        told = HanseError(ErrorCode.NOT_FOUND, f"there is no {request.path[:200]}", hint="see /v1/openapi.json")
        response = _refusal(told)
    except (ConnectionError, web.HTTPException):
        raise
    except Exception:
        _LOG.exception("defect in answering", extra={"method": request.method, "path": request.path})
        response = _refusal(HanseError(ErrorCode.INTERNAL, "a defect in Hanse", hint="the coordinator's log has more"))
    HTTP_REQUESTS.add(status=str(response.status))
    if isinstance(response, web.Response):  # a stream of events lasts for as long as somebody listens
        HTTP_SECONDS.observe(clock.monotonic() - began)
    return response


def _refusal(error: HanseError) -> web.Response:
    count_refusal("request", error.code.code)
    answer = ErrorAnswer(error=ErrorBody(code=error.code.code, message=error.message, hint=error.hint))
    response = answer_json(answer, error.http_status)
    if error.code is ErrorCode.UNAUTHENTICATED:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
