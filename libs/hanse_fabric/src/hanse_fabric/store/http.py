"""HTTP to an object store: one connection pool, patience across restarts, and the store's answers as errors."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from hanse_fabric.errors import ErrorCode, HanseError

T = TypeVar("T")
Body = bytes | memoryview | BinaryIO | None

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 60.0
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_STATUS = {
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    409: ErrorCode.CONFLICT,
    412: ErrorCode.CONFLICT,
    416: ErrorCode.INVALID_INPUT,
}


class StoreHttp:
    """A pool of connections. Thread-safe.

    Args:
        ca: PEM file of the authority behind the store's certificate; None for the system's.
        patience: seconds for which an unreachable or failing store is tried again.
    """

    def __init__(self, *, ca: Path | None = None, patience: float = 30.0, connections: int = 16) -> None:
        self.patience = patience
        context = ssl.create_default_context(cafile=str(ca)) if ca is not None else None
        self.pool = urllib3.PoolManager(
            num_pools=8,
            maxsize=connections,
            retries=False,
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
            ssl_context=context,
        )

    def send(
        self,
        method: str,
        url: Callable[[], str],
        *,
        body: Callable[[], Body] = lambda: None,
        headers: Mapping[str, str] | None = None,
        read: Callable[[urllib3.BaseHTTPResponse], T],
        what: str,
    ) -> T:
        """One request, tried again with growing pauses while the store is away.

        Args:
            url, body: made anew for each try (links expire, files are read again).
            read: takes what is wanted from a successful response.
            what: names the object in errors.

        Raises:
            HanseError: what the store's refusal means; UNAVAILABLE when patience has ended.
        """
        give_up = time.monotonic() + self.patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._once(method, url(), body(), headers, read, what)
            except (HTTPError, OSError) as error:
                problem = f"{type(error).__name__}: {error}"
            except _ServerError as error:
                problem = str(error)
            if time.monotonic() + pause > give_up:
                raise HanseError(
                    ErrorCode.UNAVAILABLE, f"object store: {what}: no answer in {self.patience:.0f} s ({problem[:200]})"
                )
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the tries of many clients
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _once(
        self,
        method: str,
        url: str,
        body: Body,
        headers: Mapping[str, str] | None,
        read: Callable[[urllib3.BaseHTTPResponse], T],
        what: str,
    ) -> T:
        response = self.pool.request(
            method,
            url,
            body=cast("bytes", body),
            headers=headers,
            preload_content=False,
            redirect=False,
            decode_content=False,
        )
        try:
            if response.status >= 500:
                raise _ServerError(f"HTTP {response.status}")
            if response.status >= 300:
                raise _refusal(response, what)
            result = read(response)
            response.drain_conn()
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()
        return result

    def answers(self, url: str) -> bool:
        """Whether anything but a server's error comes back now."""
        try:
            response = self.pool.request("HEAD", url, timeout=1.0, redirect=False)
        except (HTTPError, OSError):
            return False
        return response.status < 500

    def close(self) -> None:
        self.pool.clear()


class _ServerError(Exception):
    """An answer that may be better a moment later."""


def _refusal(response: urllib3.BaseHTTPResponse, what: str) -> HanseError:
    said = response.read(2048).decode(errors="replace")
    code = said.partition("<Code>")[2].partition("</Code>")[0]
    hint = {
        "SignatureDoesNotMatch": "the store's secret key is wrong",
        "InvalidAccessKeyId": "the store does not know this access key",
        "NoSuchBucket": "make the bucket first",
        "AccessDenied": "the link has expired, or this identity may not do that",
    }.get(code, "")
    return HanseError(
        _STATUS.get(response.status, ErrorCode.INVALID_INPUT),
        f"object store: {what}: refused (HTTP {response.status} {code})".replace(" )", ")"),
        hint=hint,
    )


def check_url(url: str) -> None:
    """Links are http or https, nothing else.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise HanseError(ErrorCode.INVALID_INPUT, f"link: {urlsplit(url).scheme!r} is not http or https")
