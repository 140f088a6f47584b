"""Stands before the bus or the store, and reads off the wire what passes: NATS messages, bodies of HTTP."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Seen:
    """A message, or the body of a request or answer.

    Attributes:
        way: "up", from the site, or "down".
        name: a message's subject, or a request's line; of an answer the line of its request.
        reply: the subject on which a message is answered.
        size: bytes of content and headers; of the body.
    """

    way: str
    name: str
    reply: str
    size: int
    content: bytes
    headers: bytes = b""


@dataclass
class Wire:
    """What came one way, of which messages are taken from the front; `after`: where their line ends."""

    waiting: bytes = b""
    asked: list[str] = field(default_factory=list)
    after: int = 0

    def line(self) -> list[str] | None:
        end = self.waiting.find(b"\r\n")
        if end < 0:
            return None
        words, self.after = self.waiting[:end].decode().split(" "), end + 2
        return words

    def take(self, size: int) -> bytes | None:
        """So many bytes after the line; None while they are not all there, and the line stays."""
        end = self.after + size
        if len(self.waiting) < end:
            return None
        taken, self.waiting = self.waiting[self.after : end], self.waiting[end:]
        return taken


class CountingProxy:
    """Forwards connections of 127.0.0.1 to `port`, in a thread of its own.

    Args:
        http: whether HTTP passes; else NATS.
    """

    def __init__(self, port: int, *, listen: int, http: bool) -> None:
        self._to, self.port, self._http = port, listen, http
        self.seen: list[Seen] = []
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._up.wait(30)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _run(self) -> None:
        async def serve() -> None:
            self._server = await asyncio.start_server(self._joined, "127.0.0.1", self.port)
            self._up.set()

        self._loop.run_until_complete(serve())
        self._loop.run_forever()

    async def _joined(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        asked: list[str] = []
        read = self._http_message if self._http else self._nats_message
        ways = ("up", reader, back), ("down", there, writer)
        await asyncio.gather(*(self._carry(way, one, other, read, asked) for way, one, other in ways))

    async def _carry(
        self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        read: Callable[[str, Wire], Seen | bool | None], asked: list[str],
    ) -> None:  # fmt: skip
        wire = Wire(asked=asked)
        with suppress(OSError):
            async for data in _blocks(reader):
                wire.waiting += data
                while (found := read(way, wire)) is not False:
                    if isinstance(found, Seen):
                        self.seen.append(found)
                writer.write(data)
                await writer.drain()
        writer.close()

    @staticmethod
    def _nats_message(way: str, wire: Wire) -> Seen | bool | None:
        """The next message; None for what is none; False where there is no more."""
        words = wire.line()
        if words is None:
            return False
        if words[0] not in ("PUB", "HPUB", "MSG", "HMSG"):
            wire.take(0)
            return None
        content = wire.take(int(words[-1]) + 2)
        if content is None:
            return False
        headers = int(words[-2]) if words[0].startswith("H") else 0
        named = words[1 : -2 if headers else -1]
        if words[0].endswith("MSG"):
            del named[1]  # the subscription's number
        body = content[headers:-2]
        return Seen(way, named[0], named[1] if named[1:] else "", len(content) - 2, body, content[:headers])

    @staticmethod
    def _http_message(way: str, wire: Wire) -> Seen | bool | None:
        end = wire.waiting.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = wire.waiting[:end].decode()
        length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
        size = int(length[1]) if length else 0
        wire.after = end + 4
        content = wire.take(size)
        if content is None:
            return False
        name = head.split("\r\n")[0]
        if way == "up":
            wire.asked.append(name)
        else:
            name = wire.asked.pop(0)
        return Seen(way, name, "", size, b"")


async def _blocks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while data := await reader.read(1 << 16):
        yield data
