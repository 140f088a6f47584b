"""The window's routes: the page's files for everybody on this machine, and the site's state for who has entered."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from hanse_datapod.window.guard import SECURITY, check_name, check_page
from hanse_datapod.window.links import use_link
from hanse_datapod.window.sessions import HEADER, Sessions
from hanse_datapod.window.site import WindowSite
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import explain

PAGE = Path(__file__).parent / "page"
_BODY, _BODY_S, _AT_ONCE = 16 << 10, 10.0, 4
_SITES = web.RequestKey("sites", frozenset[str])
_LOG = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Body(BaseModel):
    """Bodies of requests; each route takes some of it."""

    model_config = ConfigDict(extra="forbid", strict=True)

    secret: str = ""
    reason: str = ""
    at_once: bool = False
    digest: str = ""


class Window:
    """The window of the sites that this process serves, by the names of their folders."""

    def __init__(self, sites: Mapping[str, WindowSite], clock: Clock) -> None:
        self._sites, self._clock = sites, clock
        self._sessions = Sessions(clock)
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._files = {path.name: path.read_bytes() for path in PAGE.iterdir() if path.is_file()}

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=_BODY, middlewares=[self._guarded])
        app.on_response_prepare.append(_told)
        app.router.add_post("/api/enter", self._enter)
        app.router.add_post("/api/leave", self._leave)
        app.router.add_get("/api/sites", self._list)
        app.router.add_get("/api/status", self._status)
        app.router.add_get("/api/outbox", self._outbox)
        app.router.add_get("/api/code", self._code)
        for name in ("verify", "pause", "resume", "approve", "withdraw", "agree"):
            app.router.add_post(f"/api/{name}", self._act(name))
        app.router.add_get("/{name:[a-z.]*}", self._file)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            check_name(request)
            if request.path.startswith("/api/"):
                check_page(request)
                if request.path != "/api/enter":
                    request[_SITES] = self._sessions.require(self._cookie(request), request.headers.get(HEADER))
            return await handler(request)
        except HanseError as error:
            return _refusal(error)
        except web.HTTPException as error:
            return _refusal(HanseError(ErrorCode.NOT_FOUND, f"{error.status}: {error.reason}"), error.status)
        except Exception:
            _LOG.exception("the window has failed at a request")
            return _refusal(HanseError(ErrorCode.INTERNAL, "the window has failed", hint="see the datapod's log"))

    def _cookie(self, request: web.Request) -> str:
        return request.cookies.get(self._sessions.cookie, "")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"] or "index.html"
        body = self._files.get(name)
        if body is None:
            raise HanseError(ErrorCode.NOT_FOUND, f"there is no page {name[:80]!r}", hint="the window begins at /")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return web.Response(body=body, content_type=kind, charset="utf-8" if kind.startswith("text/") else None)

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        secret, now = (await self._asked(request)).secret, self._clock.now()
        let_in = await asyncio.to_thread(
            lambda: frozenset(name for name, site in self._sites.items() if use_link(site.home, secret, now))
        )
        if not let_in:
            _LOG.warning("a link into the window was refused: it is not good, or no longer")
            raise HanseError(
                ErrorCode.UNAUTHENTICATED, "this link was used already, is older than ten minutes, or never was one",
                hint="make a new one at the site: hanse site window --home DIR",
            )  # fmt: skip
        value, token = self._sessions.begin(let_in)
        _LOG.info("somebody has entered the window, by a one-time link", extra={"sites": sorted(let_in)})
        answer = web.json_response({"token": token})
        answer.set_cookie(self._sessions.cookie, value, path="/", httponly=True, samesite="Strict")
        return answer

    async def _leave(self, request: web.Request) -> web.StreamResponse:
        self._sessions.end(self._cookie(request))
        answer = web.json_response({})
        answer.del_cookie(self._sessions.cookie, path="/", httponly=True, samesite="Strict")
        return answer

    async def _list(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"sites": list(self._entered(request))})

    async def _status(self, request: web.Request) -> web.StreamResponse:
        return await self._do(self._site(request).status)

    async def _outbox(self, request: web.Request) -> web.StreamResponse:
        site, query = self._site(request), request.query
        before = query.get("before") or None
        if before is not None and not (before.isascii() and before.isdigit() and len(before) < 16):
            raise invalid("before", before[:40], "the number of an entry")
        return await self._do(
            lambda: site.outbox(
                before=None if before is None else int(before), search=query.get("search", "")[:200],
                signs=query.get("signs") == "1",
            )
        )  # fmt: skip

    async def _code(self, request: web.Request) -> web.StreamResponse:
        return await self._do(self._site(request).code)

    def _act(self, name: str) -> Handler:
        async def acted(request: web.Request) -> web.StreamResponse:
            site, asked = self._site(request), await self._asked(request)
            acts: dict[str, Callable[[], Any]] = {
                "verify": site.verify,
                "pause": lambda: site.pause(asked.reason, at_once=asked.at_once),
                "resume": site.resume,
                "approve": lambda: site.approve(asked.digest),
                "withdraw": lambda: site.withdraw(asked.digest),
                "agree": lambda: site.agree(asked.digest),
            }
            return await self._do(acts[name])

        return acted

    def _entered(self, request: web.Request) -> dict[str, WindowSite]:
        """Those sites whose homes the session's link was made in."""
        return {name: site for name, site in self._sites.items() if name in request[_SITES]}

    def _site(self, request: web.Request) -> WindowSite:
        entered = self._entered(request)
        name = request.query.get("site") or next(iter(entered))
        site = entered.get(name)
        if site is None:
            raise HanseError(ErrorCode.NOT_FOUND, f"site: your link leads to no {name[:80]!r}")
        return site

    async def _asked(self, request: web.Request) -> _Body:
        try:
            async with self._clock.timeout(_BODY_S):
                return _Body.model_validate_json(await request.read() or b"{}")
        except TimeoutError:
            raise HanseError(ErrorCode.TIMEOUT, f"body: not whole after {_BODY_S:g} s", hint="send it again") from None
        except ValidationError as error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"body: {explain(error)}") from None

    async def _do(self, work: Callable[[], Any]) -> web.Response:
        async with self._turns:
            return web.json_response(await asyncio.to_thread(work) or {})


async def _told(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SECURITY)


def _refusal(error: HanseError, status: int | None = None) -> web.Response:
    told = {"code": error.code.code, "message": error.message, "hint": error.hint}
    return web.json_response({"error": told}, status=status or error.http_status)
