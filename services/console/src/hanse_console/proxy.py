"""Requests of the pages, passed on to the hub's HTTP API on the pages' own origin; answers come back as they arrive."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

from hanse_console.slots import Slot, Slots
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.networks import Networks, is_within

_LOG = logging.getLogger(__name__)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
BODY = 256 << 10
"""Bytes of a request's body: what the hub takes."""
_ANSWER = 64 << 20
"""Bytes of an answer that is no stream of events."""
_BLOCK = 64 << 10
_WITHIN_S, _BODY_S, _SILENT_S, _CONNECT_S = 60.0, 20.0, 60.0, 5.0
_ASKED = (
    "Host", "Accept", "Content-Type", "Cookie", "Last-Event-ID", "Origin", "Sec-Fetch-Site", "Hanse-CSRF", "User-Agent",
)  # fmt: skip
_PERSON = "Hanse-Person"
_ANSWERED = ("Content-Type", "Cache-Control", "Retry-After", "Location", "Content-Disposition", "X-Accel-Buffering")


class ApiProxy:
    """Passes requests on. Of their headers those alone that browsers and pages need; keys of programs (Authorization)
    are none of them: programs ask the hub itself.

    Args:
        hub: address of the hub's HTTP API.
        context: of TLS to it.
        requests: at once.
        proxies: networks of proxies before the console, whose word on whose request it is, is passed on.
        secret: that the hub has, too, and by which it knows the console; empty: none.
    """

    def __init__(
        self, hub: str, context: ssl.SSLContext | None, requests: int, clock: Clock,
        proxies: Networks = (), secret: str = "",
    ) -> None:  # fmt: skip
        self._hub, self._context, self._clock, self._proxies = URL(hub), context, clock, proxies
        self._slots = Slots(requests)
        self._shown = {"Hanse-Proxy": secret} if secret else {}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._context if self._context is not None else True)
        self._session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENT_S),
        )  # fmt: skip
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def answers(self) -> bool:
        """Whether the hub does."""
        try:
            async with self._asking().get(self._hub / "v1/hub") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """The hub's answer to a request of a page; or, in the form of the hub's refusals, why there is none."""
        with self._slots.take(request.headers.get("Cookie", ""), self._address(request)) as slot:
            if slot is None:
                return _refusal(
                    ErrorCode.UNAVAILABLE, "the console passes on as many requests as it may, or as one may have",
                    "close other pages of it, or try again in a moment",
                )  # fmt: skip
            try:
                return await self._passed(request, slot)
            except TimeoutError:
                return _refusal(ErrorCode.TIMEOUT, "the hub did not answer in time", "try again in a moment")
            except aiohttp.ClientError as error:
                _LOG.warning("the hub does not answer", extra={"why": type(error).__name__})
                return _refusal(
                    ErrorCode.UNAVAILABLE, "the console does not reach the hub",
                    "it may be restarting; if this stays, tell the hub's operator",
                )  # fmt: skip

    async def _passed(self, request: web.Request, slot: Slot) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in _ASKED if name in request.headers}
        headers["X-Forwarded-For"] = self._whose(request)
        if _climbs(request.rel_url.path):
            return _refusal(ErrorCode.NOT_FOUND, "there is no such path", "parts of a path are not . or ..")
        unfit = [name for name, value in headers.items() if not _is_text(value)]
        if unfit:
            return _refusal(ErrorCode.INVALID_INPUT, f"{unfit[0]}: it is not UTF-8", "send text")
        headers |= self._shown
        headers["Accept-Encoding"] = "identity"  # what is packed here would have to be unpacked for some browsers
        try:
            async with self._clock.timeout(_BODY_S):
                body = await request.read() if request.body_exists else None
        except TimeoutError:
            return _refusal(ErrorCode.TIMEOUT, f"body: not whole after {_BODY_S:g} s", "send it again")
        async with self._clock.timeout(_WITHIN_S) as within:
            target = self._hub.join(URL(request.rel_url.raw_path_qs, encoded=True))
            async with self._asking().request(
                request.method, target, headers=headers, data=body, allow_redirects=False
            ) as answer:
                if _PERSON in answer.headers or answer.status == 401:
                    slot.is_of(answer.headers.get(_PERSON, ""))
                if answer.content_type == "text/event-stream":
                    within.reschedule(None)  # it lasts for as long as both sides speak: the hub does every 15 s
                return await _given_back(request, answer)

    def _whose(self, request: web.Request) -> str:
        """From whom a request came: what others say of it is passed on where they are proxies that are trusted."""
        remote = request.remote or ""
        said = ", ".join(request.headers.getall("X-Forwarded-For", []))
        return f"{said}, {remote}" if said and is_within(remote, self._proxies) else remote

    def _address(self, request: web.Request) -> str:
        """The last address on the way that is no trusted proxy's."""
        way = [each.strip() for each in self._whose(request).split(",")]
        while len(way) > 1 and is_within(way[-1], self._proxies):
            way.pop()
        return way[-1]

    def _asking(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise HanseError(ErrorCode.INTERNAL, "the console's proxy is not open")
        return self._session


def _climbs(path: str) -> bool:
    """Whether a path, decoded, leads elsewhere than it says: out of the API, at the hub or at a server before it."""
    return not {".", ".."}.isdisjoint(path.replace("\\", "/").split("/"))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


async def _given_back(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status)
    for name in _ANSWERED:
        if name in answer.headers:
            response.headers[name] = answer.headers[name]
    response.headers.setdefault("Cache-Control", "no-store")
    for cookie in answer.headers.getall("Set-Cookie", []):
        response.headers.add("Set-Cookie", cookie)
    endless = answer.content_type == "text/event-stream"
    passed = 0
    await response.prepare(request)
    try:
        async for block in answer.content.iter_any():
            passed += len(block)
            if passed > _ANSWER and not endless:
                raise ConnectionError("the hub's answer is too long")
            await response.write(block)
        await response.write_eof()
    except (ConnectionError, aiohttp.ClientError, TimeoutError):
        # Its head was sent already: the browser sees that it breaks off, and asks again.
        _break_off(request)
    except asyncio.CancelledError:  # its time is over: a refusal would stand in the midst of the answer
        _break_off(request)
        raise
    return response


def _break_off(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _refusal(code: ErrorCode, message: str, hint: str) -> web.Response:
    error = HanseError(code, message, hint=hint)
    body = {"error": {"code": code.code, "message": message, "hint": hint}}
    return web.Response(
        text=json.dumps(body), status=error.http_status, content_type="application/json",
        headers={"Cache-Control": "no-store"},
    )  # fmt: skip
