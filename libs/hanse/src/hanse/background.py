"""An event loop in a thread of its own, so that blocking calls work everywhere: also where a loop runs already."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from hanse_fabric.errors import ErrorCode, HanseError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for callers that block. A daemon: it does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._closing = threading.Lock()
        self.closed = False

    def start(self, work: Awaitable[T]) -> Future[T]:
        """Begin, and do not wait.

        Raises:
            HanseError: GONE after `close`.
        """

        async def awaited() -> T:
            return await work

        with self._closing:
            if not self.closed:
                return asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        if inspect.iscoroutine(work):
            work.close()
        raise _gone()

    def do(self, work: Awaitable[T]) -> T:
        """Wait for the result. What interrupts the wait (ctrl-C) ends the work, too.

        Raises:
            HanseError: GONE after `close`, or when it comes first.
        """
        future = self.start(work)
        try:
            return future.result()
        except CancelledError:
            raise _gone() from None
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End what still runs, then the thread. Whoever waits in another thread gets GONE."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
            ending = asyncio.run_coroutine_threadsafe(_end_others(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _gone() -> HanseError:
    return HanseError(ErrorCode.GONE, "this connection was closed", hint="make a new one to go on")


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
