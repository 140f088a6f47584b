"""Waiting for the first of several things, and doing many things a bounded number at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when the first has ended (raising what it raised); the others are cancelled and have ended too."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop(*tasks)
    for task in done:
        task.result()


async def stop(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs and wait for its end. What the tasks raised is left in them."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def all_of(work: Iterable[Coroutine[Any, Any, Any]], *, at_once: int = 128) -> None:
    """Run everything, `at_once` at a time, started in the given order; the first failure ends it all."""
    slots = asyncio.Semaphore(at_once)

    async def one(piece: Coroutine[Any, Any, Any]) -> None:
        async with slots:
            await piece

    pieces = [*work]
    tasks = [asyncio.ensure_future(one(piece)) for piece in pieces]
    try:
        await asyncio.gather(*tasks)
    finally:
        await stop(*tasks)
        for piece in pieces:
            piece.close()  # those that were never begun
