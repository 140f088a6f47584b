"""What strangers can take of an HTTP server before they have said anything, and by saying nothing more: connections,
and time.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.greetings import Greetings

_AT_ONCE = 64
"""The share of all connections that is closed at once where there are too many, so that not each newcomer looks at
all of them."""
_GREETED = 4
"""TLS handshakes under way are as many as this part of all connections at most, beside them."""


class DoorRunner(web.AppRunner):
    """Runs an application behind a `Door`, whose sites are given no TLS context: the door has it."""

    def __init__(
        self, app: web.Application, *, most: int, first_s: float, idle_s: float = 75.0, linger_s: float = 10.0,
        tls: ssl.SSLContext | None = None, **how: Any,
    ) -> None:  # fmt: skip
        super().__init__(app, access_log=None, **how)
        self._limits: dict[str, Any] = {
            "most": _affordable(most), "first_s": first_s, "idle_s": idle_s, "linger_s": linger_s, "tls": tls
        }  # fmt: skip

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return Door(made.request_handler, request_factory=made.request_factory, **self._limits)


class Door(web.Server):
    """A server that closes connections which bring no request, and those that are too many.

    Where there are too many, those go first that bring nothing, and then those whose clients do not read what they have
    asked for; of each kind the oldest. So who holds connections holds them only until somebody else needs one.

    Args:
        most: connections open at once; where all are at work, a further one is closed.
        first_s: seconds from a connection to its first whole request.
        idle_s: seconds from an answer to the next whole request.
        linger_s: seconds from an answer to the end of its request's body, which nobody reads any more.
        tls: of a server of HTTPS; a handshake may take as long as a first request.
    """

    def __init__(
        self, handler: Any, *, most: int, first_s: float, idle_s: float, linger_s: float,
        tls: ssl.SSLContext | None = None, **how: Any,
    ) -> None:  # fmt: skip
        super().__init__(handler, access_log=None, keepalive_timeout=idle_s, lingering_time=linger_s, **how)
        self._most, self._first_s = most, first_s
        self._greetings: Greetings | None = None
        if tls is not None:
            self._greetings = Greetings(tls, super().__call__, most=max(1, most // _GREETED), within_s=first_s)

    def __call__(self) -> Any:
        """The protocol of a connection that was accepted just now."""
        return super().__call__() if self._greetings is None else self._greetings.one()

    async def shutdown(self, timeout: float | None = None) -> None:
        """Close all connections."""
        if self._greetings is not None:
            await self._greetings.end()
        await super().shutdown(timeout)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Let a connection in, for as long as its first request may take."""
        super().connection_made(handler, transport)
        if len(self.connections) > self._most and not self._make_room(handler):
            transport.abort()
            return
        asyncio.get_running_loop().call_later(self._first_s, self._first_request_due, handler, transport)

    def _make_room(self, newest: RequestHandler) -> bool:
        """Close some of the connections that are of no use to anybody; whether there were any."""
        for useless in (_brings_nothing, _takes_nothing):
            # In the order in which they came. One that is closed counts until the loop has told so: not twice.
            found = [each for each in self.connections if each is not newest and useless(each)]
            for each in found[: max(1, self._most // _AT_ONCE)]:
                if each.transport is not None:
                    each.transport.abort()
            if found:
                return True
        return False

    def _first_request_due(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        if handler._request_count == 0 and not transport.is_closing():
            transport.abort()


async def listen(
    runner: web.AppRunner, host: str, port: int, *, settings: str, context: ssl.SSLContext | None = None
) -> int:  # fmt: skip
    """Have a runner, which is set up, listen; returns its port.

    Args:
        settings: that name host and port begin so.

    Raises:
        HanseError: UNAVAILABLE when the address is taken or not this machine's.
    """
    try:
        await web.TCPSite(runner, host, port, ssl_context=context).start()
    except OSError as error:
        raise HanseError(
            ErrorCode.UNAVAILABLE,
            f"{settings}_HOST, {settings}_PORT: cannot listen on {host}:{port}: {error.strerror or error}",
            hint="choose another port",
        ) from None
    return int(runner.addresses[0][1])


def _affordable(most: int) -> int:
    """So many connections, or fewer where the process may not have twice as many files: it needs some for itself, and
    where it has none left, nobody is let in. It has its limit raised as far as that goes."""
    files, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files >= 2 * most:
        return most
    files = 2 * most if highest == resource.RLIM_INFINITY else min(highest, 2 * most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, highest))
    return max(1, files // 2)


def _brings_nothing(handler: RequestHandler) -> bool:
    """Whether no whole request has come, or none since the last answer."""
    return _is_open(handler) and not handler._request_in_progress and not handler._messages


def _takes_nothing(handler: RequestHandler) -> bool:
    """Whether an answer waits for its client to read it."""
    return _is_open(handler) and handler.writing_paused


def _is_open(handler: RequestHandler) -> bool:
    return handler.transport is not None and not handler.transport.is_closing()
