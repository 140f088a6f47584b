"""A range of an object as one HTTP answer that is read at leisure, and taken up again where a connection broke."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import urllib3

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.store.files import READ_BYTES
from hanse_fabric.store.http import HttpClient, Refused


class HttpRange:
    """A `RangeReader` of bytes [offset, offset + length); the first request is made at once.

    Args:
        sign: gives an address that is good for a while, at every request anew.
        what: names the object in errors.

    Raises:
        HanseError: NOT_FOUND, INVALID_INPUT where the object ends before, UNAVAILABLE.
    """

    def __init__(self, http: HttpClient, sign: Callable[[], str], what: str, offset: int, length: int) -> None:
        self._http, self._sign, self._what = http, sign, what
        self._at, self._stop = offset, offset + length
        self._response: urllib3.BaseHTTPResponse | None = None
        if length:
            self._persist(self._open)

    def read_into(self, buffer: memoryview) -> None:
        target = buffer.cast("B")
        if len(target) > self._stop - self._at:
            raise invalid(f"{self._what}: range", len(target), f"at most the {self._stop - self._at} bytes left of it")
        end = self._at + len(target)

        def go_on() -> None:
            try:
                while self._at < end:
                    left = end - self._at
                    got = self._open().read(min(READ_BYTES, left))
                    if not got:
                        raise urllib3.exceptions.ProtocolError(f"ended {self._stop - self._at} bytes too early")
                    first = len(target) - left
                    target[first : first + len(got)] = got
                    self._at += len(got)
            except BaseException:
                self.close()
                raise

        self._persist(go_on)
        if self._at == self._stop:
            self.close()

    def close(self) -> None:
        """Give the connection back to the pool; one with bytes to come is dropped."""
        response, self._response = self._response, None
        if response is not None:
            if getattr(response, "length_remaining", None) != 0:
                response.close()
            response.release_conn()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _open(self) -> urllib3.BaseHTTPResponse:
        if self._response is None:
            wanted = self._stop - self._at
            self._response = self._http.begin(
                "GET", self._sign(), headers={"Range": f"bytes={self._at}-{self._stop - 1}"}
            )
            if self._response.status == 200 and self._at:
                self.close()
                raise HanseError(ErrorCode.UNAVAILABLE, f"{self._what}: the store does not serve ranges")
            if int(self._response.headers.get("Content-Length", wanted)) < wanted:
                self.close()
                raise invalid(f"{self._what}: range", f"{self._at}+{wanted}", "inside the object")
        return self._response

    def _persist(self, attempt: Callable[[], object]) -> None:
        try:
            self._http.persist(attempt, f"GET {self._what}")
        except Refused as refused:
            raise refused.explain(self._what) from None
