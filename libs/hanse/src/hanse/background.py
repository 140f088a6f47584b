"""An event loop in a thread of its own, so that blocking calls work everywhere: also where a loop runs already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers that block. A daemon: it does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def start(self, work: Awaitable[T]) -> Future[T]:
        """Begin, and do not wait."""

        async def awaited() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop)

    def do(self, work: Awaitable[T]) -> T:
        """Wait for the result. What interrupts the wait (ctrl-C) ends the work, too."""
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End what still runs, then the thread."""
        if self.closed:
            return
        self.do(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
