"""`python -m hanse.embedded.forward HOST PORT TO`: bytes that come in at HOST:PORT go to port TO here, and back.

The object store listens on one address with all its parts, of which only the one with TLS is for other machines. What
passes is not looked at. A connection ends with either side, or when nothing passed for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time

_HERE = "127.0.0.1"
_AT_ONCE = 1024
_IDLE_S = 300.0
_PIECE = 1 << 18


async def serve(host: str, port: int, to: int) -> None:
    """Pass on until cancelled."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if free.locked():  # strangers may connect, too: they shall not take all that this machine has
            writer.close()
            return
        async with free:
            await _both_ways(reader, writer, to)

    server = await asyncio.start_server(take, host, port, limit=_PIECE)
    async with server:
        await server.serve_forever()


async def _both_ways(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: int) -> None:
    with contextlib.suppress(OSError):
        try:
            inner_reader, inner_writer = await asyncio.open_connection(_HERE, to, limit=_PIECE)
        except OSError:
            writer.close()
            return
        passed = _Passed()
        ways = [
            asyncio.create_task(_pass(reader, inner_writer, passed)),
            asyncio.create_task(_pass(inner_reader, writer, passed)),
        ]
        try:
            await asyncio.wait(ways)
        finally:
            for way in ways:
                way.cancel()
            writer.close()
            inner_writer.close()


class _Passed:
    """When something passed last, either way: who sends for long is not answered meanwhile."""

    def __init__(self) -> None:
        self.now()

    def now(self) -> None:
        self._last = time.monotonic()

    def is_idle(self) -> bool:
        return time.monotonic() - self._last > _IDLE_S


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passed: _Passed) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        while not passed.is_idle():
            try:
                piece = await asyncio.wait_for(reader.read(_PIECE), _IDLE_S)
            except TimeoutError:
                continue
            if not piece:
                break
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), _IDLE_S)
            passed.now()
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
