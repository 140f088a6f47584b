"""Why a hub was not reached, in words: aiohttp tells of its own objects beside."""

from __future__ import annotations

import os
import ssl

import aiohttp

from hanse_fabric import proxies
from hanse_fabric.errors import ErrorCode, HanseError


def failures() -> tuple[type[Exception], ...]:
    """What a session of aiohttp raises where nobody is reached."""
    return (aiohttp.ClientError, TimeoutError, OSError, *proxies.unreached())


def unreached(url: str, error: BaseException) -> HanseError:
    """The error of a hub that is not reached; with the proxy, where there is one, for it may be that which is not."""
    proxy = proxies.proxy_for(url)
    by = "" if proxy is None else f", through the proxy {proxy.shown}"
    return HanseError(
        ErrorCode.UNAVAILABLE, f"hub {url}{by}: {why(error)}", hint="check the address and the network"
    )  # fmt: skip


def why(error: BaseException) -> str:
    """What the system or TLS says of it."""
    if (refused := certificate_error(error)) is not None:
        return getattr(refused, "verify_message", "") or str(refused)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, proxies.unreached()):
        cause = cause.__cause__ or cause
    if isinstance(cause, ssl.SSLError):
        return f"no TLS: {cause.reason or cause}"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    return (isinstance(cause, OSError) and cause.strerror) or str(cause) or type(cause).__name__


def certificate_error(error: BaseException | None) -> BaseException | None:
    """The refusal of a certificate that an error tells of; aiohttp and proxies wrap it in others."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return getattr(error, "certificate_error", error)
