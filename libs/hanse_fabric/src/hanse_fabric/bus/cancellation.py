"""Cancellations that nats-py loses.

It waits by `asyncio.wait_for`, which in Python 3.11 drops a cancellation that comes together with what is waited for
(CPython issue 86296; mended in 3.12). Who was told to end, or whose time was over, would go on for ever.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def keeps_cancellation(work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """The function, which ends with a cancellation that came while it ran, also where that was lost on its way.

    Former ones of its task do not count: what tidies up after a cancellation is done.
    """

    @functools.wraps(work)
    async def kept(*args: P.args, **kwargs: P.kwargs) -> T:
        before = cancellations()
        try:
            made = await work(*args, **kwargs)
        except Exception:
            if cancellations() > before:
                raise asyncio.CancelledError from None
            raise
        if cancellations() > before:
            raise asyncio.CancelledError
        return made

    return kept


def cancellations() -> int:
    """How often this task was asked to end, and has not answered for."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
