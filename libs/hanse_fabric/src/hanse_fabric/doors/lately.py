"""What a process was told lately, by name: so that it need not ask. Whoever may have missed it asks all the same."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from hanse_fabric.clock import Clock


class Lately:
    """Names, each for `seconds` after it was last added."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds
        self._until: OrderedDict[str, float] = OrderedDict()
        self._awaited: dict[str, asyncio.Event] = {}

    def add(self, name: str) -> None:
        """It is so now."""
        now = self._clock.monotonic()
        self._until[name] = now + self._seconds
        self._until.move_to_end(name)
        while next(iter(self._until.values())) < now:
            self._until.popitem(last=False)
        if (event := self._awaited.get(name)) is not None:
            event.set()

    def until(self, name: str) -> float:
        """The end of its time, on the clock's monotonic face; 0.0 where it was not added."""
        return self._until.get(name, 0.0)

    def has(self, name: str) -> bool:
        """Whether it was added so lately."""
        return self.until(name) > self._clock.monotonic()

    async def soon(self, name: str, seconds: float) -> bool:
        """Whether it was, or is within so many seconds."""
        if self.has(name):
            return True
        event = self._awaited.setdefault(name, asyncio.Event())
        try:
            async with self._clock.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return self.has(name)  # of two who wait, the first may have taken the event away
        finally:
            if self._awaited.get(name) is event:
                del self._awaited[name]
        return True
