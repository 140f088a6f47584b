"""What the window asks of each request before anything else, and what each of its answers tells the browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.networks import is_loopback

SECURITY = {
    "Content-Security-Policy": "; ".join((
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
        "form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'",
    )),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}  # fmt: skip


def check_name(request: web.Request) -> None:
    """Whether the browser means this machine itself. A name of elsewhere that leads here would make its pages this
    window's own (DNS rebinding).

    Raises:
        HanseError: FORBIDDEN.
    """
    if not _is_this_machine(request.host):
        raise HanseError(
            ErrorCode.FORBIDDEN, f"Host: {request.host[:100]!r} is not this machine's own name",
            hint="open the link as it was printed: http://127.0.0.1:PORT/",
        )  # fmt: skip


def check_page(request: web.Request) -> None:
    """Whether a page of this window asks, as far as the browser says.

    Raises:
        HanseError: FORBIDDEN.
    """
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "same-origin")
    if site != "same-origin" or (origin is not None and origin != f"http://{request.host}"):
        raise HanseError(ErrorCode.FORBIDDEN, "Origin: a page of elsewhere asks", hint="open the window itself")
    if request.method != "GET" and request.content_type != "application/json":
        raise HanseError(ErrorCode.FORBIDDEN, "Content-Type: application/json is expected")


def _is_this_machine(host: str) -> bool:
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
