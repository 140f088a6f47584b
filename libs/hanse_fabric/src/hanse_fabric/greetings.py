"""TLS connections before they are any: handshakes that strangers begin, and do not end.

To an HTTP server such a connection is none yet, so it neither counts it nor closes it; asyncio waits a minute for each.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import cast

_AT_ONCE = 64
"""The share of them that is closed at once where there are too many."""


class Greetings:
    """Handshakes under way at a server. Where there are too many, the oldest go.

    Args:
        most: under way at once.
        within_s: seconds that one may take.
        welcome: makes the protocol of a connection whose handshake is over.
    """

    def __init__(
        self, context: ssl.SSLContext, welcome: Callable[[], asyncio.Protocol], *, most: int, within_s: float
    ) -> None:
        self._context, self._welcome, self._most, self._within_s = context, welcome, most, within_s
        self._under_way: dict[_Greeting, asyncio.Transport] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def one(self) -> asyncio.Protocol:
        """The protocol of a connection that was accepted just now."""
        return _Greeting(self)

    def begin(self, greeting: _Greeting, transport: asyncio.Transport) -> None:
        """Begin the handshake of a connection that reads nothing yet."""
        self._under_way[greeting] = transport
        if len(self._under_way) > self._most:
            for oldest in tuple(self._under_way)[: max(1, self._most // _AT_ONCE)]:
                self._under_way.pop(oldest).abort()
        task = asyncio.get_running_loop().create_task(self._shake(greeting, transport))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        """Close all that are under way."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _shake(self, greeting: _Greeting, transport: asyncio.Transport) -> None:
        try:
            over = await asyncio.get_running_loop().start_tls(
                transport, greeting, self._context, server_side=True, ssl_handshake_timeout=self._within_s
            )
        except OSError:  # it says no TLS, or nothing in time, or was closed; by whom does not matter
            transport.abort()
            return
        except BaseException:
            transport.abort()
            raise
        finally:
            self._under_way.pop(greeting, None)
        if over is None or over.is_closing():
            return
        protocol = self._welcome()
        over.set_protocol(protocol)
        protocol.connection_made(over)
        if greeting.early:
            protocol.data_received(greeting.early)


class _Greeting(asyncio.Protocol):
    """Of a connection before its handshake is over.

    Attributes:
        early: what came right behind the handshake.
    """

    def __init__(self, greetings: Greetings) -> None:
        self._greetings = greetings
        self.early = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        accepted = cast(asyncio.Transport, transport)
        accepted.pause_reading()
        self._greetings.begin(self, accepted)

    def data_received(self, data: bytes) -> None:
        self.early += data
