"""A process behind a slow or long link, as a site may be: `gwas_link.py --mbit 10 --ports 1,2 -- program`.

The program runs in a network of its own (a Linux namespace, as root), in which the hub's ports of this machine answer.
Bytes go through sockets of the file system, as fast as the link lets them, in either direction, in the order in which
they came, and each `--delay` seconds later. A new connection costs its way there and back before it carries a byte, as
by TCP.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

_NEW_NETWORK = 0x40000000
_DIE_WITH_PARENT = 1
_SET_FLAGS, _UP = 0x8914, 0x1
_PIECE = 16 << 10
_LIBC = ctypes.CDLL(None, use_errno=True)


class Direction:
    """One direction of the link: `bits` a second, shared by all connections, each `delay` s late; `sent` so far."""

    def __init__(self, bits: float, delay: float = 0.0) -> None:
        self._bits, self._free, self.delay = bits, 0.0, delay
        self.sent = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until the sender ends."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.create_task(_arrive(under_way, writer))
        try:
            while data := await reader.read(_PIECE):
                self._free = max(self._free, loop.time()) + 8 * len(data) / self._bits
                await asyncio.sleep(self._free - loop.time())
                self.sent += len(data)
                under_way.put_nowait((loop.time() + self.delay, data))
        except OSError:
            pass
        under_way.put_nowait((loop.time() + self.delay, b""))
        await arriving


async def _arrive(under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
    loop = asyncio.get_running_loop()
    try:
        while True:
            at, data = await under_way.get()
            await asyncio.sleep(at - loop.time())
            if not data:
                break
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def outside(folder: Path, ports: list[int], bits: float, delay: float, counts: Path | None) -> None:
    """Lead the sockets in `folder` to the ports, and write down how many bytes went up and down."""
    up, down = Direction(bits, delay), Direction(bits, delay)

    def leading_to(port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(2 * delay)
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(up.carry(reader, back), down.carry(there, writer))

        return joined

    for port in ports:
        await asyncio.start_unix_server(leading_to(port), folder / str(port))
    while True:
        if counts is not None:
            counts.write_text(json.dumps({"up": up.sent, "down": down.sent}))  # noqa: ASYNC240 - a few bytes
        await asyncio.sleep(0.25)


async def inside(folder: Path, ports: list[int]) -> None:
    """Answer on the ports, within the program's network."""
    endless = Direction(float("inf"))

    def leading_to(path: Path) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there, back = await asyncio.open_unix_connection(path)
            await asyncio.gather(endless.carry(reader, back), endless.carry(there, writer))

        return joined

    for port in ports:
        await asyncio.start_server(leading_to(folder / str(port)), "127.0.0.1", port)
    await asyncio.Event().wait()


def beside(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Do work in a process of its own, which ends with this one."""
    if os.fork() == 0:
        _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        asyncio.run(work())


def own_network() -> None:
    """Leave this machine's network for one in which nobody is."""
    if _LIBC.unshare(_NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "a network of its own needs root, on Linux")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP))


def main() -> None:
    """Become the program, behind the link."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mbit", type=float, default=float("inf"))
    parser.add_argument("--delay", type=float, default=0.0, help="seconds of either direction")
    parser.add_argument("--counts", type=Path, help="file of the bytes that went up and down")
    parser.add_argument("--ports", required=True)
    parser.add_argument("program", nargs="+")
    arguments = parser.parse_args()
    folder, ports = Path(tempfile.mkdtemp(prefix="hanse-link-")), [int(port) for port in arguments.ports.split(",")]
    beside(partial(outside, folder, ports, arguments.mbit * 1e6, arguments.delay, arguments.counts))
    own_network()
    beside(partial(inside, folder, ports))
    os.execvp(arguments.program[0], arguments.program)  # noqa: S606 - without a shell is what is wanted


if __name__ == "__main__":
    main()
