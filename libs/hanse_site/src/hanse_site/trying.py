"""Trying again where the hub, or the way to it, is away for a while."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError

T = TypeVar("T")
_RETRIED = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT})


async def keep_trying(action: Callable[[], Awaitable[T]], seconds: float, clock: Clock) -> T:
    """Do `action` until it succeeds, waiting longer each time while servers are unavailable, for `seconds` at most."""
    end = clock.monotonic() + seconds
    wait = 0.1
    while True:
        try:
            return await action()
        except HanseError as error:
            if error.code not in _RETRIED or clock.monotonic() + wait > end:
                raise
        await clock.sleep(wait)
        wait = min(wait * 2, 5.0)
