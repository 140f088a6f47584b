"""One simulated process: it crashes, dies in the middle of what it does, comes back, and is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hanse_fabric.bus.memory import MemoryBroker, MemoryBus
from hanse_fabric.errors import HanseError
from simulation.network import Death, DistantBus, Network


class Process:
    """What a process runs on a bus connection of its own, again a second after it failed.

    Attributes:
        failures: what it ended with.
        death: when it dies by itself.
    """

    def __init__(
        self, name: str, main: Callable[[MemoryBus], Awaitable[None]], broker: MemoryBroker, network: Network,
        *, site: bool = False,
    ) -> None:  # fmt: skip
        self._site = site
        self.name, self._main, self._broker, self._network = name, main, broker, network
        self.failures: list[HanseError] = []
        self.death = Death(self._end)
        self._dead = asyncio.Event()
        self._bus: DistantBus | None = None
        self._task: asyncio.Task[None] | None = None
        self._crashed = False

    def start(self, group: asyncio.TaskGroup) -> None:
        self._crashed = False
        self._task = group.create_task(self._run(), name=self.name)

    async def _run(self) -> None:
        """Whatever is no HanseError is a defect, and ends the simulation."""
        while not self._crashed:  # a task group that fails while it is cancelled tells of the failure alone
            self._bus = DistantBus(self._broker, self._network, self.death, site=self._site)
            try:
                await self._main(self._bus)
            except* HanseError as group:
                self.failures.append(_first(group))
            await self._bus.close()
            await self._bus.clock.sleep(1.0)

    def cut(self, seconds: float) -> None:
        """Cut its connection for so long; it works on, and its messages wait or are lost."""
        if self._bus is not None:
            self._bus.cut_until = self._bus.clock.monotonic() + seconds

    async def crash(self) -> None:
        """End it as a power cut does: its connection is gone before it can say anything."""
        if self._task is not None:
            await self._end()
            await asyncio.wait({self._task})

    async def stop(self) -> None:
        """End it in good order, as SIGTERM does."""
        self._crashed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def died(self, at: int, *, stored: bool) -> None:
        """Have it die at its n-th publication from now on, and return when it has."""
        self._dead.clear()
        self.death.at, self.death.stored = self.death.publications + at, stored
        await self._dead.wait()
        assert self._task is not None
        await asyncio.wait({self._task})

    async def _end(self) -> None:
        self._crashed = True
        self._dead.set()
        if self._bus is not None:
            await self._bus.close()
        if self._task is not None:
            self._task.cancel()


def _first(group: BaseExceptionGroup[HanseError]) -> HanseError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
