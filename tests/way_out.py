"""A proxy that asks for a password, by CONNECT and by SOCKS 5: `python way_out.py HOST PORT NAME PASSWORD [TO...]`.

It prints a line for each connection that it opens: the way (http or socks) and where to. Both are spoken at one port.
It leads to the ports TO alone, where such are named, as proxies of hospitals do.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import socket
import sys
from collections.abc import Collection, Mapping

_GREETING, _BY_NAME, _REFUSED = 5, 2, b"\x05\xff"


class WayOut:
    """The proxy; `seen` has what was opened, `refused` how many showed no password, or another one, `shut` what it does
    not lead to.

    Args:
        hosts: names that it alone knows; with a port behind it (`hub.test`: `127.0.0.1:8443`), whatever was asked for.
        ports: those that it leads to; None: all.
    """

    def __init__(
        self, name: str, password: str, hosts: Mapping[str, str] | None = None, ports: Collection[int] | None = None
    ) -> None:
        self._name, self._password, self._hosts, self._ports = name, password, hosts or {}, ports
        self.seen: list[tuple[str, str]] = []
        self.refused = 0
        self.shut: list[str] = []

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
        if self._is_shut(host, int(port)):
            writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return None
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
        if self._is_shut(host, port):
            writer.write(b"\x05\x02\x00\x01" + bytes(6))
            return None
        opened = await self._open("socks", host, port)
        writer.write(b"\x05\x00\x00\x01" + bytes(6))
        return opened

    def _is_shut(self, host: str, port: int) -> bool:
        if self._ports is None or port in self._ports:
            return False
        self.shut.append(f"{host}:{port}")
        print("shut", f"{host}:{port}", flush=True)
        return True

    async def _open(self, way: str, host: str, port: int) -> Opened:
        there, _, at = self._hosts.get(host, host).partition(":")
        opened = await asyncio.open_connection(there, int(at or port))
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
    host, port, name, password, *to = sys.argv[1:]
    way = WayOut(name, password, ports=[int(each) for each in to] or None)
    server = await asyncio.start_server(way.serve, host, int(port))
    print("serves", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
