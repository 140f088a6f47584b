"""Time as a parameter. Whatever sleeps, waits or reads the time is handed a `Clock`; none asks the machine itself.

`SystemClock` is the machine's; `hanse_fabric.virtual_time` has the one of simulations.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol


class Clock(Protocol):
    """What services ask about time. Durations are in seconds."""

    def now(self) -> datetime:
        """The time of day, in UTC. It may be set back: durations are measured with `monotonic`."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back. For any thread."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`; at the next turn of the event loop where they are 0 or fewer."""
        ...

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """An async context that cancels its body after `seconds` (None: never) and then raises TimeoutError.

        Its `reschedule` is given a time of `monotonic`.
        """
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        return asyncio.timeout(seconds)


async def ends_within(clock: Clock, work: asyncio.Future[Any], seconds: float) -> bool:
    """Whether `work` ends in that time. It goes on either way; what it raises is not raised here."""
    with suppress(TimeoutError):
        async with clock.timeout(seconds):
            await asyncio.wait({work})
    return work.done()


SYSTEM_CLOCK = SystemClock()
"""For what runs in processes of its own, on the machine's time."""
