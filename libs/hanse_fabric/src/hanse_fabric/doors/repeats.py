"""A request that is sent again costs its service nothing more.

Whoever hears no answer sends the same request again, after 2, 6 and 14 seconds (`Bus.request`). A busy service that
worked each of them through would have four times the work in the moment in which it has too much of it already, and
answer ever later: for minutes, where thousands of sites ask.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from hanse_fabric.clock import Clock

REMEMBERED_S = 30.0
"""How long after an answer the same request may still come: it waited as long as its first one did."""
MOST_REMEMBERED_BYTES, MOST_BYTES_EACH = 16 << 20, 64 << 10
_BESIDE_BYTES = 512
"""Of memory, of each answer beside itself."""


class Sized(Protocol):
    """An answer."""

    def __len__(self) -> int: ...


A = TypeVar("A", bound=Sized)


class Repeats(Generic[A]):
    """Requests that are under way, and answers of late, as many as memory allows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way: dict[Hashable, asyncio.Future[A]] = {}
        self._answers: OrderedDict[Hashable, tuple[float, A]] = OrderedDict()
        self._bytes = 0

    async def once(self, request: Hashable, work: Callable[[], Awaitable[A]]) -> A:
        """The answer to a request, for which `work` is called unless it is under way, or was done lately."""
        if (known := self._answers.get(request)) is not None and known[0] > self._clock.monotonic():
            return known[1]
        if (first := self._under_way.get(request)) is not None:
            return await asyncio.shield(first)
        self._under_way[request] = future = asyncio.get_running_loop().create_future()
        try:
            answer = await work()
        except BaseException as error:
            future.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
            future.exception()  # nobody else may have waited for it
            raise
        else:
            future.set_result(answer)
            self._remember(request, answer)
            return answer
        finally:
            del self._under_way[request]

    def _remember(self, request: Hashable, answer: A) -> None:
        if len(answer) > MOST_BYTES_EACH:
            return
        now = self._clock.monotonic()
        self._forget(request)
        self._answers[request] = (now + REMEMBERED_S, answer)
        self._bytes += len(answer) + _BESIDE_BYTES
        while self._bytes > MOST_REMEMBERED_BYTES or next(iter(self._answers.values()))[0] <= now:
            self._forget(next(iter(self._answers)))

    def _forget(self, request: Hashable) -> None:
        if (known := self._answers.pop(request, None)) is not None:
            self._bytes -= len(known[1]) + _BESIDE_BYTES
