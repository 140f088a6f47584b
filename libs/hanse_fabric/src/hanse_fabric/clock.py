"""Time as a parameter: the machine's clock, or a virtual one for tests and simulations."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What services ask about time. Durations are in seconds."""

    def now(self) -> datetime:
        """The current time, in UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` have passed on this clock."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualClock:
    """A clock that stands still until `advance` is called; sleepers wake in the order of their times."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._order = itertools.count()
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + timedelta(seconds=seconds), next(self._order), wake))
        await wake

    async def advance(self, seconds: float) -> None:
        """Move time on by `seconds`, waking every sleeper whose time has come and letting it run."""
        target = self._now + timedelta(seconds=seconds)
        while self._sleepers and self._sleepers[0][0] <= target:
            when, _, wake = heapq.heappop(self._sleepers)
            self._now = when
            if not wake.done():
                wake.set_result(None)
            for _ in range(20):
                await asyncio.sleep(0)
        self._now = target
