"""Cookies of browsers, and whether a request comes from a page of this hub.

The session's cookie is HttpOnly, SameSite=Strict and Secure, with a name (`__Host-`) that no other host can set; where
the hub is on loopback, without TLS, it is not Secure. What changes something needs a header, too, which is derived from
the session's secret: a page of elsewhere neither knows it nor may send it, and nothing has to be kept for it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import urlsplit

from aiohttp import web

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.networks import is_loopback
from hanse_schemas.http.sessions import CSRF_HEADER

SESSION, BROWSER, SIGN_IN = "hanse_session", "hanse_browser", "hanse_sign_in"
SAFE = frozenset({"GET", "HEAD"})
_SIGN_IN_S = 600
_YEAR_S = 365 * 86_400
_PORTS = {"http": 80, "https": 443}


def on_loopback(http: web.Request) -> bool:
    """Whether the browser has reached the hub on its own machine."""
    try:
        return is_loopback(urlsplit(f"//{http.host}").hostname or "")
    except ValueError:
        return False


def cookie_name(http: web.Request, name: str) -> str:
    """As the browser knows it."""
    return name if on_loopback(http) else f"__Host-{name}"


def read_cookie(http: web.Request, name: str) -> str | None:
    """What the browser has sent."""
    return http.cookies.get(cookie_name(http, name))


def set_cookie(http: web.Request, response: web.StreamResponse, name: str, value: str, *, kept: bool = False) -> None:
    """Give the browser a cookie, for a year or as long as it runs."""
    response.set_cookie(
        cookie_name(http, name), value, max_age=_YEAR_S if kept else None, path="/", httponly=True,
        secure=not on_loopback(http), samesite="Strict",
    )  # fmt: skip


def set_sign_in_cookie(http: web.Request, response: web.StreamResponse, value: str) -> None:
    """A cookie for the way to the provider of identities and back: the browser sends it where a link of the provider's
    leads here (SameSite=Lax), which opens nothing by itself."""
    response.set_cookie(
        cookie_name(http, SIGN_IN), value, max_age=_SIGN_IN_S, path="/", httponly=True, secure=not on_loopback(http),
        samesite="Lax",
    )  # fmt: skip


def drop_cookie(http: web.Request, response: web.StreamResponse, name: str) -> None:
    """Take a cookie from the browser."""
    response.del_cookie(
        cookie_name(http, name), path="/", httponly=True, secure=not on_loopback(http), samesite="Strict"
    )


def csrf_of(secret: str) -> str:
    """What proves that a page was told by this session: HMAC-SHA-256 under its secret, which scripts never see."""
    mac = hmac.digest(secret.encode(), b"hanse csrf 1", hashlib.sha256)
    return base64.urlsafe_b64encode(mac).decode().rstrip("=")


def check_csrf(http: web.Request, secret: str) -> None:
    """FORBIDDEN for a request that changes something and does not come from a page of the hub's."""
    if http.method in SAFE:
        return
    check_origin(http)
    given = http.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(errors="replace"), csrf_of(secret).encode()):
        raise HanseError(
            ErrorCode.FORBIDDEN, f"{CSRF_HEADER}: it is {'another than this session is' if given else 'not'} given",
            hint="send `csrf` of GET /v1/session with all that changes something",
        )  # fmt: skip


def check_origin(http: web.Request) -> None:
    """FORBIDDEN where the browser says that a page of another origin asks."""
    origin = http.headers.get("Origin")
    if http.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none") or (
        origin is not None and not _is_here(origin, http.host)
    ):
        raise HanseError(
            ErrorCode.FORBIDDEN, f"Origin: {(origin or 'another')[:200]!r} is not this hub's, {http.host[:200]!r}",
            hint="a proxy before the hub passes Host on as it is",
        )  # fmt: skip


def check_json(http: web.Request) -> None:
    """FORBIDDEN for what a form of any page could send: a session is opened by a script of the hub's own page."""
    if http.content_type != "application/json":
        raise HanseError(
            ErrorCode.FORBIDDEN, f"Content-Type: {http.content_type[:100]!r} is not application/json",
            hint="send it as application/json",
        )  # fmt: skip


def _is_here(origin: str, host: str) -> bool:
    try:
        given, here = urlsplit(origin), urlsplit(f"//{host}")
        default = _PORTS.get(given.scheme)
        return default is not None and (given.hostname, given.port or default) == (here.hostname, here.port or default)
    except ValueError:
        return False
