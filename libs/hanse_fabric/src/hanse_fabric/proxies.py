"""The proxy through which a process goes out, where it may not go itself: to the hub's door, its bus, and its store.

HANSE_PROXY names it; the standard HTTPS_PROXY is not used, for it may be meant for others, and who is named here sees
whom a site speaks to. What is said goes through by TLS (HTTP's CONNECT, SOCKS 5), so a proxy reads none of it. To this
machine, and to hosts that NO_PROXY names, the way stays direct.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.wheels import to_install

VARIABLE = "HANSE_PROXY"
SCHEMES = ("http", "socks5h")
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_EXPECTED = "an address such as http://proxy.example.org:3128 or socks5h://name:password@proxy.example.org:1080"
_FOR_SOCKS = {"aiohttp": "aiohttp_socks", "urllib3": "socks", "httpx": "socksio"}
_named: str | None = None


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy.

    Attributes:
        url: its address with name and password, which no message may have.
        shown: its address without.
    """

    url: str = field(repr=False)
    shown: str

    @property
    def is_socks(self) -> bool:
        """Whether SOCKS 5 is spoken; otherwise HTTP's CONNECT."""
        return not self.url.startswith("http:")

    @property
    def credentials(self) -> str | None:
        """`name:password`, where there are any."""
        parts = urlsplit(self.url)
        return None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"

    def require(self, client: str) -> None:
        """Check that `client` (aiohttp, urllib3, httpx) can speak to it.

        Raises:
            HanseError: NOT_FOUND where a package is missing.
        """
        if self.is_socks and importlib.util.find_spec(_FOR_SOCKS[client]) is None:
            raise HanseError(
                ErrorCode.NOT_FOUND, f"{VARIABLE}: no package is here that speaks SOCKS",
                hint=to_install("hanse[socks]"),
            )  # fmt: skip


def use(url: str) -> None:
    """Have this process go out through `url`, whatever the environment says; "" is the environment again.

    Raises:
        HanseError: INVALID_INPUT for what is no address of a proxy.
    """
    global _named
    _named = url or None
    _read(url)


def proxy_for(url: str) -> Proxy | None:
    """The proxy to what `url` names; None for a direct way.

    Raises:
        HanseError: INVALID_INPUT for what is no address of a proxy.
    """
    found = _read(_named if _named is not None else os.environ.get(VARIABLE, ""))
    host = urlsplit(url).hostname or ""
    direct = host in _HERE or host.startswith("127.") or _is_excepted(host)
    return None if direct else found


def _is_excepted(host: str) -> bool:
    """Whether NO_PROXY names a host, or a domain that it is in."""
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    domains = [each.strip().lower().lstrip(".") for each in named.split(",") if each.strip()]
    return any(each == "*" or host == each or host.endswith(f".{each}") for each in domains)


def session_options(url: str) -> dict[str, Any]:
    """What a `ClientSession` of aiohttp needs besides, to speak to `url`."""
    found = proxy_for(url)
    if found is None:
        return {}
    found.require("aiohttp")
    if not found.is_socks:
        return {"proxy": found.url}
    from aiohttp_socks import ProxyConnector

    # aiohttp-socks names by `rdns` what others write as socks5h: the proxy looks names up.
    return {"connector": ProxyConnector.from_url(found.url.replace("socks5h:", "socks5:", 1), rdns=True)}


def refusals() -> tuple[type[Exception], ...]:
    """What a session of aiohttp raises where a proxy lets nobody through."""
    from aiohttp import ClientHttpProxyError

    if "aiohttp_socks" not in sys.modules:
        return (ClientHttpProxyError,)
    from aiohttp_socks import ProxyError

    return (ClientHttpProxyError, ProxyError)


def unreached() -> tuple[type[Exception], ...]:
    """What a session of aiohttp raises beside its own errors where a proxy is not reached."""
    if "aiohttp_socks" not in sys.modules:
        return ()
    from aiohttp_socks import ProxyConnectionError, ProxyTimeoutError

    return (ProxyConnectionError, ProxyTimeoutError)


def refused_by_proxy(url: str, error: Exception) -> HanseError:
    """The error of one of `refusals`."""
    found, status = proxy_for(url), getattr(error, "status", None)
    said = f"answers {status} {getattr(error, 'message', '')}" if status else f"refuses: {error}"
    denied = status in (None, 407)
    hint = f"check the name and the password in {VARIABLE}" if denied else "may this proxy lead to the hub?"
    return HanseError(ErrorCode.UNAVAILABLE, f"hub {url}: the proxy {found.shown if found else ''} {said}", hint=hint)


def _read(url: str) -> Proxy | None:
    if not url:
        return None
    try:
        parts = urlsplit(url)
        sound = parts.scheme in SCHEMES and bool(parts.hostname) and bool(parts.port)
        sound = sound and not parts.query and not parts.fragment and parts.path in ("", "/")
    except ValueError:
        sound = False
    if not sound:  # it may hold a password, and so is not shown
        raise invalid(VARIABLE, "what it holds" if "@" in url else url, _EXPECTED)
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return Proxy(url.rstrip("/"), f"{parts.scheme}://{host}:{parts.port}")
