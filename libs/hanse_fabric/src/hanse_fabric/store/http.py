"""HTTP to an object store: one pool of connections; patience with a server that restarts; errors with their meaning."""

from __future__ import annotations

import functools
import random
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import urllib3

from hanse_fabric import tls
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.proxies import Proxy, proxy_for
from hanse_fabric.store.files import READ_BYTES

T = TypeVar("T")
CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
_BYTES = "application/octet-stream"
"""Of every body. SeaweedFS compresses a part of unknown type that begins with bytes much alike, as updates with zeros
do: it takes a quarter longer to write, and twice as long to read by ranges."""

_RETRIED = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent: `content` gives it from the start, for each attempt anew."""

    size: int
    content: Callable[[], Iterable[bytes | memoryview]]

    @classmethod
    def of_bytes(cls, data: bytes | memoryview) -> Body:
        view = memoryview(data).cast("B")

        # So much at a time, because a socket's timeout is for the whole of what one call sends.
        def content() -> Iterator[memoryview]:
            for start in range(0, len(view), READ_BYTES):
                yield view[start : start + READ_BYTES]

        return cls(len(view), content)

    @classmethod
    def of_file(cls, path: Path, start: int = 0, size: int | None = None) -> Body:
        count = path.stat().st_size - start if size is None else size

        def content() -> Iterator[memoryview]:
            buffer, left = memoryview(bytearray(READ_BYTES)), count
            with path.open("rb", buffering=0) as file:
                file.seek(start)
                while left > 0:
                    got = file.readinto(buffer[: min(left, READ_BYTES)])
                    if not got:
                        raise HanseError(ErrorCode.CONFLICT, f"{path}: became shorter while it was sent")
                    left -= got
                    yield buffer[:got]

        return cls(count, content)


class Refused(Exception):  # noqa: N818 - an answer, which callers turn into a HanseError
    """The store answered with a status that is not a success."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code} {message}".strip())
        self.status = status
        self.code = code
        self.message = message

    def explain(self, what: str) -> HanseError:
        """The error for a person; `what` names the object or the request."""
        said = f"{what}: the object store answered {self}"
        if "expired" in self.message.lower() or self.code == "ExpiredToken":
            return HanseError(ErrorCode.GONE, said, hint="ask for a new link; if it is new, compare the clocks")
        if self.code in ("SignatureDoesNotMatch", "InvalidAccessKeyId"):
            return HanseError(ErrorCode.UNAUTHENTICATED, said, hint="check the store's access key and secret key")
        if self.status == 404:
            return HanseError(ErrorCode.NOT_FOUND, said, hint="it was never stored whole, or has been removed")
        if 300 <= self.status < 400:
            return HanseError(ErrorCode.FORBIDDEN, said, hint="redirects are not followed; use the final address")
        codes = {
            400: ErrorCode.INVALID_INPUT, 401: ErrorCode.UNAUTHENTICATED, 403: ErrorCode.FORBIDDEN,
            409: ErrorCode.CONFLICT, 412: ErrorCode.CONFLICT, 413: ErrorCode.TOO_LARGE,
            416: ErrorCode.INVALID_INPUT, 507: ErrorCode.NO_SPACE,
        }  # fmt: skip
        return HanseError(codes.get(self.status, ErrorCode.UNAVAILABLE), said)


@functools.cache
def _system() -> ssl.SSLContext:
    """Trusts the system's certificates: reading them takes up to 0.1 s, so once for all participants of a process.

    For urllib3 alone, which sets a context's options by its own judgement.
    """
    return tls.client_context()


def _through(proxy: Proxy, options: dict[str, Any]) -> urllib3.PoolManager:
    """Connections through a proxy."""
    proxy.require("urllib3")
    if proxy.is_socks:
        from urllib3.contrib.socks import SOCKSProxyManager

        return SOCKSProxyManager(proxy.url, **options)
    known = proxy.credentials
    headers = urllib3.make_headers(proxy_basic_auth=known) if known else None
    return urllib3.ProxyManager(proxy.shown, proxy_headers=headers, **options)


class HttpClient:
    """Requests over one pool of connections; may be used by any thread.

    Args:
        ca: PEM file of the CA of an https server; None: the system's.
        patience: seconds for which a request is tried again when the server cannot be reached, breaks off, or answers
            that it cannot serve now.
        connections: kept open per server.
    """

    def __init__(self, ca: Path | None = None, *, patience: float = 30.0, connections: int = 16) -> None:
        self.patience = patience
        self._closed = threading.Event()
        self._options: dict[str, Any] = {
            "maxsize": connections, "retries": False,
            "timeout": urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        }  # fmt: skip
        self._named_ca = None if ca is None else tls.client_context(ca)
        self._plain = urllib3.PoolManager(**self._options)
        self._secured: dict[Proxy | None, urllib3.PoolManager] = {}

    def request(
        self,
        method: str,
        url: str,
        read: Callable[[urllib3.BaseHTTPResponse], T],
        *,
        body: Body | None = None,
        headers: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
        patience: float | None = None,
    ) -> T:
        """Send a request, and `read` the answer's headers and body if it is a success.

        Args:
            read: called for each attempt that succeeds so far; what it returns is returned.
            headers: or what gives them, for each attempt anew.

        Raises:
            Refused: for every other answer.
            HanseError: UNAVAILABLE when no answer came in time; what `read` raises.
        """

        def attempt() -> T:
            sent = dict(headers() if callable(headers) else headers or {})
            if body is not None:
                sent |= {"Content-Length": str(body.size), "Content-Type": _BYTES}
            response = self.begin(method, url, body=body, headers=sent)
            try:
                return read(response)
            except BaseException:
                # What is left unread would be taken for the next answer.
                response.close()
                raise
            finally:
                response.release_conn()

        return self.persist(attempt, f"{method} {_place(url)}", patience=patience)

    def begin(
        self, method: str, url: str, *, body: Body | None = None, headers: Mapping[str, str] | None = None
    ) -> urllib3.BaseHTTPResponse:
        """Send a request once; returns an answer that succeeds so far, whose body is to be read, and then released.

        Raises:
            Refused: for every other answer.
            urllib3.exceptions.HTTPError: when there is none.
        """
        response = self._pool_to(url).request(
            method, url, body=_content(body), headers=headers,
            preload_content=False, decode_content=False, redirect=False,
        )  # fmt: skip
        if response.status < 300:
            return response
        try:
            raise _refused(response)
        finally:
            # What is left unread would be taken for the next answer.
            response.close()
            response.release_conn()

    def _pool_to(self, url: str) -> urllib3.PoolManager:
        """The connections to `url`: direct ones, or through a proxy."""
        proxy = proxy_for(url)
        return self.direct(url) if proxy is None else self._checking(proxy)

    def direct(self, url: str) -> urllib3.PoolManager:
        """The connections to `url` through no proxy."""
        return self._checking(None) if url.lower().startswith("https:") else self._plain

    def _checking(self, proxy: Proxy | None) -> urllib3.PoolManager:
        """Connections that check certificates. Reading the system's takes 0.1 s: not where there is no TLS."""
        if proxy not in self._secured:
            options = {**self._options, "ssl_context": self._named_ca or _system()}
            self._secured[proxy] = urllib3.PoolManager(**options) if proxy is None else _through(proxy, options)
        return self._secured[proxy]

    def persist(self, attempt: Callable[[], T], what: str, *, patience: float | None = None) -> T:
        """Try, and again with growing pauses while the server does not serve.

        Raises:
            HanseError: UNAVAILABLE when `patience` seconds have passed so.
        """
        end = time.monotonic() + (self.patience if patience is None else patience)
        pause = 0.05
        while True:
            try:
                return attempt()
            except urllib3.exceptions.HTTPError as error:
                cause: Exception = error
                if not _may_pass(error) and not tls.load_renewed():
                    raise HanseError(ErrorCode.UNAVAILABLE, f"{what}: {_reason(error)}") from None
            except Refused as refused:
                if refused.status not in _RETRIED:
                    raise
                cause = refused
            left = end - time.monotonic()
            if left <= 0 or self._closed.is_set():
                raise HanseError(
                    ErrorCode.UNAVAILABLE, f"{what}: {_reason(cause)}", hint="is the object store running?"
                ) from None
            self._closed.wait(min(left, pause * random.uniform(0.5, 1.0)))  # noqa: S311 - spreads retries, no secret
            pause = min(pause * 2, 2.0)

    def close(self) -> None:
        """Drop the connections; requests that wait for a server give up."""
        self._closed.set()
        for pool in (self._plain, *self._secured.values()):
            pool.clear()


def _content(body: Body | None) -> Iterable[bytes] | None:
    # urllib3 sends any buffer; only its types do not say so.
    return cast("Iterable[bytes]", body.content()) if body is not None and body.size else None


def _refused(response: urllib3.BaseHTTPResponse) -> Refused:
    text = (response.read(16 << 10) or b"").decode(errors="replace")
    return Refused(response.status, xml_text(text, "Code"), xml_text(text, "Message"))


def xml_text(text: str, name: str) -> str:
    """The text of the first element `name` of an S3 answer; empty if there is none.

    By a pattern: the answers are flat, and an XML parser would expand entities.
    """
    found = re.search(rf"<{name}>([^<]*)</{name}>", text)
    return unescape(found[1]) if found else ""


def _may_pass(error: Exception) -> bool:
    # A certificate that is not trusted now will not be trusted in a second: no use in trying again.
    return not isinstance(error, urllib3.exceptions.SSLError) and not isinstance(
        error, urllib3.exceptions.LocationValueError
    )


def _reason(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "cannot be reached"
    return str(error).rsplit(">: ", maxsplit=1)[-1] or type(error).__name__


def _place(url: str) -> str:
    # Without the query: it holds the signature, and whoever has that may use the link.
    address = urlsplit(url)
    return f"{address.scheme}://{address.netloc}{address.path}"
