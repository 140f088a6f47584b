"""The console before a hub's real API on a bus in memory, in a thread of its own: for pages that need no sites."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from aiohttp.test_utils import TestServer

from hanse_console.app import application
from hanse_console.bundle import read_bundle
from hanse_console.proxy import ApiProxy
from hanse_fabric.bus.memory import MemoryBroker
from hanse_fabric.clock import SYSTEM_CLOCK
from hub_api import Api, replica

T = TypeVar("T")
_WITHIN_S = 30


class Served(Generic[T]):
    """A console's address, and what was made before it was opened."""

    def __init__(self, url: str, made: T, api: Api, loop: asyncio.AbstractEventLoop) -> None:
        self.url, self.made = url, made
        self._api, self._loop = api, loop

    def do(self, act: Callable[[Api], Awaitable[None]]) -> None:
        """Have something happen at the hub, and wait for it."""

        async def acted() -> None:
            await act(self._api)

        asyncio.run_coroutine_threadsafe(acted(), self._loop).result(_WITHIN_S)


@contextmanager
def served(folder: Path, make: Callable[[Api], Awaitable[T]]) -> Iterator[Served[T]]:
    """Open a console before a hub in which `make` has made what pages show."""
    told: list[Served[T]] = []
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(replica(MemoryBroker(), folder, SYSTEM_CLOCK))
            proxy = await stack.enter_async_context(ApiProxy(str(api.client.make_url("")), None, 64, SYSTEM_CLOCK))
            server = TestServer(application(read_bundle(), proxy, "https://hub.example.org"))
            await stack.enter_async_context(server)
            url = str(server.make_url("")).rstrip("/")
            told.append(Served(url, await make(api), api, asyncio.get_running_loop()))
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(_WITHIN_S)
    try:
        yield told[0]
    finally:
        over.set()
        thread.join(10)
