"""A proxy that asks for a password, by CONNECT and by SOCKS 5: `python way_out.py HOST PORT NAME PASSWORD`.

It prints a line for each connection that it opens: the way (http or socks) and where to. Both are spoken at one port.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import socket
import sys
from collections.abc import Mapping

_GREETING, _BY_NAME, _REFUSED = 5, 2, b"\x05\xff"


class WayOut:
    """The proxy; `seen` has what was opened, `refused` how many showed no password, or another one.

    Args:
        hosts: names that it alone knows.
    """

    def __init__(self, name: str, password: str, hosts: Mapping[str, str] | None = None) -> None:
        self._name, self._password, self._hosts = name, password, hosts or {}
        self.seen: list[tuple[str, str]] = []
        self.refused = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(OSError, EOFError, ValueError, asyncio.CancelledError):
            first = await reader.readexactly(1)
            opened = await (self._socks(reader, writer) if first[0] == _GREETING else self._http(first, reader, writer))
            if opened is not None:
                await asyncio.gather(_copied(reader, opened[1]), _copied(opened[0], writer))
        writer.close()

    async def _http(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Opened | None:
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
        given = fields.get("proxy-authorization", "")
        asked = "Basic " + base64.b64encode(f"{self._name}:{self._password}".encode()).decode()
        if not hmac.compare_digest(given, asked):
            self.refused += 1
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=x\r\n")
            writer.write(b"Content-Length: 0\r\nConnection: close\r\n\r\n")
            return None
        if method != "CONNECT":
            writer.write(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return None
        host, _, port = target.rpartition(":")
        opened = await self._open("http", host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return opened

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Opened | None:
        ways = await reader.readexactly((await reader.readexactly(1))[0])
        if _BY_NAME not in ways:
            self.refused += 1
            writer.write(_REFUSED)
            return None
        writer.write(bytes([_GREETING, _BY_NAME]))
        await reader.readexactly(1)
        name = await reader.readexactly((await reader.readexactly(1))[0])
        password = await reader.readexactly((await reader.readexactly(1))[0])
        if (name.decode(), password.decode()) != (self._name, self._password):
            self.refused += 1
            writer.write(b"\x01\x01")
            return None
        writer.write(b"\x01\x00")
        kind = (await reader.readexactly(4))[3]
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = socket.inet_ntop(socket.AF_INET, await reader.readexactly(4))
        port = int.from_bytes(await reader.readexactly(2))
        opened = await self._open("socks", host, port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        return opened

    async def _open(self, way: str, host: str, port: int) -> Opened:
        opened = await asyncio.open_connection(self._hosts.get(host, host), port)
        self.seen.append((way, f"{host}:{port}"))
        print(way, f"{host}:{port}", flush=True)
        return opened


Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main() -> None:
    host, port, name, password = sys.argv[1:]
    server = await asyncio.start_server(WayOut(name, password).serve, host, int(port))
    print("serves", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
