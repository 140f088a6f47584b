"""How the hub is spoken to: how a request is set up, what an answer or a failure means, how long patience lasts."""

from __future__ import annotations

import json
import secrets
import ssl
import sys
import time
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError

from hanse.calls import Call
from hanse.views import Event
from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.explained import explain
from hanse_fabric.proxies import proxy_for
from hanse_schemas.http.errors import ErrorAnswer
from hanse_schemas.http.reading import read
from hanse_schemas.http.runs import FINAL_STATES

T = TypeVar("T")

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
EVENT_TIMEOUT = httpx.Timeout(60.0, connect=5.0)  # the hub sends a heartbeat well within
RETRY_EVERY = 0.25
_TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For an address without TLS: httpx would read the system's authorities, which takes 0.1 s."""


def client_options(url: str, api_key: str | None, ca: Path | None) -> dict[str, Any]:
    """The arguments of an httpx client.

    Raises:
        HanseError: INVALID_INPUT for what is no address, no key, or no certificate.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise invalid("url", url, "a hub's address", hint="such as https://hub.example.org")
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        # Without its value: it may be a real key with a stray character.
        raise HanseError(ErrorCode.INVALID_INPUT, "api_key: it holds characters that no key has")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    proxy = proxy_for(url)
    if proxy is not None:
        proxy.require("httpx")
    return {
        "base_url": url.rstrip("/"),
        "headers": headers,
        "timeout": TIMEOUT,
        "verify": verify(ca) if ca is not None or url.lower().startswith("https:") else _TRUSTS_NOBODY,
        "trust_env": False,
        "proxy": None if proxy is None else proxy.url,
    }


def verify(ca: Path | None) -> ssl.SSLContext | bool:
    """What certificates are checked against: `ca`, or the system's authorities.

    Raises:
        HanseError: INVALID_INPUT when `ca` is no file of certificates.
    """
    if ca is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(ca))
    except (OSError, ssl.SSLError) as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"ca: {ca}: no certificates can be read: {error}") from None


def trace_headers() -> dict[str, str]:
    """The `traceparent` (W3C) of one call: the caller's own span where the program uses OpenTelemetry and is in one,
    else a trace that begins here, by whose id the hub's and the sites' logs and spans of what it asks are found."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(headers)
    return headers or {"traceparent": f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01"}


def read_answer(call: Call[T], response: httpx.Response) -> T:
    """What the hub answered.

    Raises:
        HanseError: the error that it answered, or INVALID_INPUT when the answer is not that of a hub.
    """
    raise_for(response)
    try:
        return call.parse(response.json())
    except ValidationError as error:
        raise _not_a_hub(response, ErrorCode.INVALID_INPUT, explain(error)) from None
    except (ValueError, KeyError, TypeError):
        raise _not_a_hub(response, ErrorCode.INVALID_INPUT) from None


def raise_for(response: httpx.Response) -> None:
    """Raise the error that a hub answered, if it did."""
    if response.is_success:
        return
    try:
        told = read(ErrorAnswer, response.json()).error
        error = HanseError(ErrorCode.of(told.code), told.message, hint=told.hint)
    except ValueError:
        error = _not_a_hub(response, ErrorCode.UNAVAILABLE if response.status_code >= 500 else ErrorCode.INVALID_INPUT)
    raise error


def _not_a_hub(response: httpx.Response, code: ErrorCode, wrong: str = "") -> HanseError:
    return HanseError(
        code,
        f"{response.request.url}: the answer (HTTP {response.status_code}) is not that of a Hanse hub"
        + (f" of this release: {wrong}" if wrong else ""),
        hint="check the hub's address" + ("; upgrade the older of the two sides" if wrong else ""),
    )


def unreachable(what: str, error: httpx.TransportError) -> HanseError:
    """The error for a server that does not answer."""
    if _certificate_refused(error):
        return HanseError(
            ErrorCode.UNAVAILABLE,
            f"{what}: its certificate is refused ({error})",
            hint="for a private authority give its file: ca=..., or HANSE_CA for the command line",
        )
    return HanseError(
        ErrorCode.UNAVAILABLE,
        f"{what} does not answer ({type(error).__name__}: {error})",
        hint="is it running? `hanse doctor` checks the way to it",
    )


def _certificate_refused(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


class Patience:
    """Seconds of failure that are borne: counted from the first failure on, not from the last success."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._failing_since: float | None = None

    def succeeded(self) -> None:
        self._failing_since = None

    def is_over(self) -> bool:
        """Note a failure; whether it was one too many."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since >= self._seconds


def bear(url: str, call: Call[Any], error: httpx.TransportError | HanseError, patience: Patience) -> None:
    """Return when a failed call may be made again: it only reads or never reached the hub, and patience lasts.

    Raises:
        HanseError: the failure, where it may not.
    """
    if not _may_repeat(call, error) or patience.is_over():
        raise error if isinstance(error, HanseError) else unreachable(f"the hub at {url}", error) from None


def _may_repeat(call: Call[Any], error: httpx.TransportError | HanseError) -> bool:
    if isinstance(error, HanseError):
        return error.code is ErrorCode.UNAVAILABLE and call.method == "GET"
    if _certificate_refused(error):
        return False
    return call.method == "GET" or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)


class EventReader:
    """Reads server-sent events line by line, each event once.

    Args:
        after: the sequence of the last event that was seen.
    """

    def __init__(self, after: int) -> None:
        self.after = after
        self.ended = False
        self._id = 0
        self._data: list[str] = []

    @property
    def headers(self) -> dict[str, str]:
        """Of the request that goes on where this reader is."""
        return {"Last-Event-ID": str(self.after), "Accept": "text/event-stream"}

    def reconnected(self) -> None:
        """Forget what a broken connection left half told."""
        self._id, self._data = 0, []

    def feed(self, line: str) -> Event | None:
        """Take a line in; the event that it completes, if any and if new.

        Raises:
            HanseError: INVALID_INPUT for what is not an event.
        """
        if line.startswith("data:"):
            self._data.append(line[5:].strip())
            return None
        if line.startswith("id:"):
            text = line[3:].strip()
            self._id = int(text) if text.isdecimal() else 0
            return None
        if line or not self._data:
            return None
        event = self._event()
        if event.sequence <= self.after:
            return None
        self.after = event.sequence
        self.ended = event.kind == "state" and event.data.get("state") in FINAL_STATES
        return event

    def _event(self) -> Event:
        text, self._data = "\n".join(self._data), []
        try:
            return read(Event, {**json.loads(text), "sequence": self._id})
        except (ValidationError, ValueError, TypeError) as error:
            raise HanseError(ErrorCode.INVALID_INPUT, f"event {self._id}: not that of a Hanse hub: {error}") from None
