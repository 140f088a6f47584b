"""Whether a service on this machine is ready: it is asked for /readyz at its health port."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

PORT_FILE = ".health"
"""How the name of a file with a service's health port ends, in the hub's folder."""
_HERE = "127.0.0.1"


class Readiness:
    """Asks a service's /readyz."""

    def __init__(self, port: int, *, tls: bool) -> None:
        self._port = port
        self._context: ssl.SSLContext | None = None
        if tls:  # it is on loopback, and is asked for nothing but a word: whose certificate it shows does not matter
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE

    async def ask(self) -> bool:
        """Whether it says yes."""
        try:
            opening = asyncio.open_connection(_HERE, self._port, ssl=self._context)
            reader, writer = await asyncio.wait_for(opening, 1)
        except (OSError, TimeoutError):
            return False
        try:
            writer.write(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            line = await asyncio.wait_for(reader.readline(), 2)
            return b" 200 " in line
        except (OSError, TimeoutError):
            return False
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
