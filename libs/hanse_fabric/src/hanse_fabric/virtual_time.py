"""Virtual time for simulations: an event loop whose time moves only when nothing else can happen.

The loop's own time is virtual, so timers of any code on it are (`asyncio.sleep`, `asyncio.timeout`, `call_later`), not
only those of a `Clock`. When no callback is ready and no thread works, time jumps to the next timer. Blocking calls
(`asyncio.to_thread`) take no virtual time, and the loop makes each of them itself: a simulation repeats exactly, and no
thread is woken for it. A call that waits for the loop needs a thread: `run_in_executor(loop.threads, ...)`.
"""

from __future__ import annotations

import asyncio
import selectors
import threading
from asyncio import events
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_THREADS = 1024
_RESOLUTION_S = 1e-6
"""Timers so close together are due together: below it, adding to a float of some years would change nothing."""
_ALONE_S = 30.0
"""Real seconds that the loop waits for a thread that neither ends nor calls the loop, before it goes on beside it."""


class VirtualClock:
    """The clock of a simulation: it moves by itself while `run` runs, and at no other time.

    Args:
        start: the time of day at which it begins.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._start, self._elapsed = start, 0.0

    def run(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Run `main` to its end in virtual time and return its result.

        Raises:
            RuntimeError: every task waits, and none of them for a time: nothing would ever happen again.
        """
        made: list[_T] = []

        async def keep() -> None:  # asyncio writes out what its main task has made, however much, and throws it away
            made.append(await main)

        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self)) as runner:
            runner.run(keep())
        return made[0]

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        self._check_loop()
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        self._check_loop()
        return asyncio.timeout(seconds)

    def jump(self, seconds: float) -> None:
        """Move on by `seconds`: for the clock's own loop."""
        self._elapsed += seconds

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop) or loop.clock is not self:
            raise RuntimeError("a virtual clock moves only in its own event loop: start the code with clock.run(...)")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in the time of `clock`."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.working = 0  # calls in threads that have not ended
        self.threads = ThreadPoolExecutor(_THREADS, "virtual-time")
        self._called = threading.Event()
        self._others: list[threading.Thread] | None = None  # that were there when the blocking call began that it makes
        super().__init__(_IdleSelector(self))
        self._clock_resolution = _RESOLUTION_S

    def time(self) -> float:
        return self.clock.monotonic()

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """Run `func` at once and here; or in a thread of `executor`, until it ends or calls the loop: one thing happens
        at a time."""
        if executor is None:
            return self._made_here(func, args)
        self.working += 1
        self._called.clear()
        call = executor.submit(func, *args)
        ended = asyncio.wrap_future(call, loop=self)
        call.add_done_callback(self._ended)  # behind the callback of wrap_future: the result comes first
        self._called.wait(_ALONE_S)
        return ended

    def _made_here(self, func: Callable[[*_Ts], _T], args: tuple[*_Ts]) -> asyncio.Future[_T]:
        """What `func` returns or raises, in the loop's next turn, as from a thread. Like there, no loop runs for it."""
        ended: asyncio.Future[_T] = self.create_future()

        def end(take: Callable[[Any], None], outcome: object) -> None:
            if not ended.done():  # its caller may be cancelled by now
                take(outcome)

        events._set_running_loop(None)
        self._others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
        try:
            made = func(*args)
        except Exception as error:
            self.call_soon(end, ended.set_exception, error)
        else:
            self.call_soon(end, ended.set_result, made)
        finally:
            self._others = None
            events._set_running_loop(self)
        return ended

    def _ended(self, _: Future[Any]) -> None:
        if not self.is_closed():
            # The result came before. By now the loop may wait for the next call, and must not be woken from that.
            super().call_soon_threadsafe(self._one_less)

    def _one_less(self) -> None:
        self.working -= 1

    def call_soon_threadsafe(
        self, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        closing: object = self.create_task  # by which Python closes an async generator that is garbage: nobody waits
        if self._is_of_a_call_made_here() and callback != closing:
            raise RuntimeError("a blocking call that asks the loop needs a thread: run_in_executor(loop.threads, ...)")
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._called.set()
        return handle

    def _is_of_a_call_made_here(self) -> bool:
        """Whether this is the blocking call that the loop makes now, or a thread that it has started. The loop turns to
        nobody before the call ends, which may wait for that thread."""
        return self._others is not None and threading.current_thread() not in self._others

    def answer(self, asked: Coroutine[Any, Any, _T]) -> _T:
        """Called in a thread: run `asked` in the loop and wait for its result. Meanwhile the thread does not work, so
        that virtual time may pass."""
        result: Future[_T] = Future()

        def begin() -> None:
            self.working -= 1
            self.create_task(asked).add_done_callback(end)

        def end(task: asyncio.Task[_T]) -> None:
            self.working += 1
            self._called.clear()
            if task.cancelled():
                result.cancel()
            elif (error := task.exception()) is not None:
                result.set_exception(error)
            else:
                result.set_result(task.result())
            self._called.wait(_ALONE_S)

        self.call_soon_threadsafe(begin)
        return result.result()

    def close(self) -> None:
        self.threads.shutdown(cancel_futures=True)
        super().close()


class _IdleSelector(selectors.DefaultSelector):
    """Asked to wait for sockets, it moves time on instead.

    The loop asks with a timeout above 0 only when no callback is ready: that is the moment to jump to the next timer.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self._loop.working:
            return super().select(None)  # a thread that ends or calls wakes the loop through its own socket
        if timeout is not None:
            self._loop.clock.jump(timeout)
            return []
        if len(self.get_map()) > 1:  # besides the loop's own, sockets or pipes of other processes: real time
            return super().select(None)
        waiting = ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self._loop)))
        raise RuntimeError(f"virtual time stands still: every task waits, none of them for a time ({waiting})")
