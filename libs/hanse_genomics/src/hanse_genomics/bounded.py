"""Many computations in flight, a few at once; the first failure ends all of them. No numpy here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def run_bounded(begin: Sequence[Callable[[], Awaitable[T]]], at_once: int) -> list[T]:
    """Run them all, begun in their order, and return what they return, in their order.

    Raises:
        Exception: of the failed one that was begun first; the others have been cancelled and have ended by then.
    """
    room = asyncio.Semaphore(at_once)

    async def run(one: Callable[[], Awaitable[T]]) -> T:
        async with room:
            return await one()

    tasks = [asyncio.ensure_future(run(one)) for one in begin]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
