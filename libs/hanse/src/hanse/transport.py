"""The hub's HTTP API over httpx: authentication, errors, patience, event streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeVar

import httpx

from hanse.calls import Call
from hanse.views import Event, RunView
from hanse.wire import (
    EVENT_TIMEOUT,
    RETRY_EVERY,
    EventReader,
    Patience,
    bear,
    client_options,
    raise_for,
    read_answer,
    trace_headers,
)
from hanse_fabric.errors import HanseError

T = TypeVar("T")


class Transport:
    """Calls of one hub.

    Args:
        patience: seconds for which a hub that does not answer is tried again.

    Raises:
        HanseError: INVALID_INPUT for what is no address, no key, or no certificate.
    """

    def __init__(self, url: str, api_key: str | None, *, ca: Path | None = None, patience: float = 10.0) -> None:
        self.url, self.ca, self.patience = url.rstrip("/"), ca, patience
        self._client = httpx.AsyncClient(**client_options(url, api_key, ca))

    async def send(self, call: Call[T]) -> T:
        """Make a call.

        A call that was possibly received is repeated only where that is harmless (GET).

        Raises:
            HanseError: what the hub answered, or UNAVAILABLE.
        """
        patience, headers = Patience(self.patience), trace_headers()
        while True:
            try:
                return read_answer(
                    call, await self._client.request(call.method, call.path, json=call.body, headers=headers)
                )
            except (httpx.TransportError, HanseError) as error:
                bear(self.url, call, error, patience)
            await asyncio.sleep(RETRY_EVERY)

    async def events(self, run: Call[RunView], *, after: int = 0) -> AsyncIterator[Event]:
        """The events of a run from sequence `after` on, each once, until its final one; reconnects where it was."""
        reader, patience, over = EventReader(after), Patience(self.patience), False
        while True:
            try:
                async with self._client.stream(
                    "GET", f"{run.path}/events", headers=reader.headers, timeout=EVENT_TIMEOUT
                ) as response:
                    if not response.is_success:
                        await response.aread()
                        raise_for(response)
                    reader.reconnected()
                    async for line in response.aiter_lines():
                        patience.succeeded()
                        if event := reader.feed(line):
                            yield event
                            if reader.ended:
                                return
            except (httpx.TransportError, HanseError) as error:
                bear(self.url, run, error, patience)
            else:
                # The hub has closed. Of a run that ended without saying so, everything is told by now.
                if over:
                    return
                over = (await self.send(run)).ended
            await asyncio.sleep(RETRY_EVERY)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
