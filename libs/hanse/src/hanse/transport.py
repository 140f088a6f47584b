"""The hub's HTTP API over httpx, synchronously and asynchronously: authentication, errors, patience, event streams."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx

from hanse.calls import Call
from hanse.views import FINAL_STATES, Event
from hanse_fabric.errors import ErrorCode, HanseError

T = TypeVar("T")

_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
_EVENT_TIMEOUT = httpx.Timeout(60.0, connect=5.0)  # the hub sends a heartbeat well within
_RETRY_EVERY = 0.25


def _verify(ca: Path | None) -> ssl.SSLContext | bool:
    return ssl.create_default_context(cafile=str(ca)) if ca else True


def _headers(api_key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _read(call: Call[T], response: httpx.Response) -> T:
    _raise_for(response)
    return call.parse(response.json())


def _raise_for(response: httpx.Response) -> None:
    if response.is_success:
        return
    try:
        error = response.json()["error"]
        raise HanseError(ErrorCode.of(error["code"]), error["message"], hint=error.get("hint", ""))
    except (ValueError, KeyError, TypeError):
        raise HanseError(
            ErrorCode.UNAVAILABLE if response.status_code >= 500 else ErrorCode.INVALID_INPUT,
            f"{response.request.url}: the answer is HTTP {response.status_code}, not Hanse's",
            hint="check the hub's address",
        ) from None


def _unreachable(url: str, error: Exception) -> HanseError:
    return HanseError(
        ErrorCode.UNAVAILABLE,
        f"the hub at {url} does not answer ({type(error).__name__}: {error})",
        hint="is it running? `hanse doctor` checks the way to it",
    )


class _Events:
    """Reads server-sent events line by line."""

    def __init__(self) -> None:
        self._id = 0
        self._data: list[str] = []

    def feed(self, line: str) -> Event | None:
        if line.startswith("id:"):
            self._id = int(line[3:])
        elif line.startswith("data:"):
            self._data.append(line[5:].strip())
        elif not line and self._data:
            body = json.loads("\n".join(self._data))
            self._data = []
            return Event.model_validate({**body, "sequence": self._id})
        return None


def _is_final(event: Event) -> bool:
    return event.kind == "state" and event.data.get("state") in FINAL_STATES


class SyncTransport:
    """Blocking calls. `patience`: seconds for which an unreachable hub is tried again."""

    def __init__(self, url: str, api_key: str | None, *, ca: Path | None = None, patience: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self.patience = patience
        self._verify = _verify(ca)
        self._client = httpx.Client(
            base_url=self.url, headers=_headers(api_key), timeout=_TIMEOUT, verify=self._verify, trust_env=False
        )

    def send(self, call: Call[T]) -> T:
        """Make a call.

        A call that was possibly received is repeated only where that is harmless (GET).

        Raises:
            HanseError: what the hub answered, or UNAVAILABLE.
        """
        give_up = time.monotonic() + self.patience
        while True:
            try:
                return _read(call, self._client.request(call.method, call.path, json=call.body))
            except httpx.TransportError as error:
                repeatable = call.method == "GET" or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if not repeatable or time.monotonic() > give_up:
                    raise _unreachable(self.url, error) from None
                time.sleep(_RETRY_EVERY)

    def events(self, path: str, *, after: int = 0) -> Iterator[Event]:
        """The events of a run from sequence `after` on, until its final one; reconnects where it was."""
        give_up = time.monotonic() + self.patience
        while True:
            reader = _Events()
            try:
                headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
                with self._client.stream("GET", path, headers=headers, timeout=_EVENT_TIMEOUT) as response:
                    if not response.is_success:
                        response.read()
                        _raise_for(response)
                    for line in response.iter_lines():
                        give_up = time.monotonic() + self.patience
                        if event := reader.feed(line):
                            after = event.sequence
                            yield event
                            if _is_final(event):
                                return
            except httpx.TransportError as error:
                if time.monotonic() > give_up:
                    raise _unreachable(self.url, error) from None
            except HanseError as error:
                if error.code is not ErrorCode.UNAVAILABLE or time.monotonic() > give_up:
                    raise
            time.sleep(_RETRY_EVERY)

    def download(self, url: str, path: Path, size: int) -> None:
        """Fetch a presigned URL into `path`; a partial file never has that name."""
        partial = path.with_name(path.name + ".partial")
        try:
            with (
                httpx.stream("GET", url, timeout=_TIMEOUT, verify=self._verify, trust_env=False) as response,
                partial.open("wb") as file,
            ):
                if not response.is_success:
                    raise HanseError(ErrorCode.UNAVAILABLE, f"the object store answered HTTP {response.status_code}")
                received = 0
                for chunk in response.iter_bytes(1 << 20):
                    received += len(chunk)
                    if received > size:
                        raise HanseError(ErrorCode.TOO_LARGE, f"{path.name}: more than the announced {size} bytes")
                    file.write(chunk)
            partial.replace(path)
        except httpx.TransportError as error:
            raise _unreachable(str(httpx.URL(url).copy_with(query=None)), error) from None
        finally:
            partial.unlink(missing_ok=True)

    def close(self) -> None:
        self._client.close()


class AsyncTransport:
    """The same for asyncio."""

    def __init__(self, url: str, api_key: str | None, *, ca: Path | None = None, patience: float = 10.0) -> None:
        self.url = url.rstrip("/")
        self.patience = patience
        self._client = httpx.AsyncClient(
            base_url=self.url, headers=_headers(api_key), timeout=_TIMEOUT, verify=_verify(ca), trust_env=False
        )

    async def send(self, call: Call[T]) -> T:
        """As `SyncTransport.send`."""
        give_up = time.monotonic() + self.patience
        while True:
            try:
                return _read(call, await self._client.request(call.method, call.path, json=call.body))
            except httpx.TransportError as error:
                repeatable = call.method == "GET" or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                if not repeatable or time.monotonic() > give_up:
                    raise _unreachable(self.url, error) from None
                await asyncio.sleep(_RETRY_EVERY)

    async def events(self, path: str, *, after: int = 0) -> AsyncIterator[Event]:
        """As `SyncTransport.events`."""
        give_up = time.monotonic() + self.patience
        while True:
            reader = _Events()
            try:
                headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
                async with self._client.stream("GET", path, headers=headers, timeout=_EVENT_TIMEOUT) as response:
                    if not response.is_success:
                        await response.aread()
                        _raise_for(response)
                    async for line in response.aiter_lines():
                        give_up = time.monotonic() + self.patience
                        if event := reader.feed(line):
                            after = event.sequence
                            yield event
                            if _is_final(event):
                                return
            except httpx.TransportError as error:
                if time.monotonic() > give_up:
                    raise _unreachable(self.url, error) from None
            except HanseError as error:
                if error.code is not ErrorCode.UNAVAILABLE or time.monotonic() > give_up:
                    raise
            await asyncio.sleep(_RETRY_EVERY)

    async def close(self) -> None:
        await self._client.aclose()


def metrics_table(rounds: list[dict[str, Any]]) -> Any:
    """Rounds' metrics as a pandas DataFrame indexed by round."""
    import pandas

    frame = pandas.DataFrame([{"round": item["round"], **item.get("metrics", {})} for item in rounds])
    return frame.set_index("round") if len(frame) else frame
