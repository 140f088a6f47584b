"""A network between simulated processes: latencies, messages that are lost, and connections that are cut, by a seed."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hanse_fabric.bus.broker import Follower, MemoryBroker
from hanse_fabric.bus.memory import MemoryBus
from hanse_fabric.bus.port import Record
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Weather:
    """What the network does.

    Attributes:
        latency_s: mean time of a message from one end to the other; each is drawn from an exponential distribution.
        away_s: of sites, what each message takes besides.
        lost: probability that a request to the bus, or its answer, is lost.
    """

    latency_s: float = 0.02
    away_s: float = 0.0
    lost: float = 0.0


QUICK = Weather(latency_s=0.0)
"""Where how long messages take is not the point: a message that takes its time costs the processor a timer."""


@dataclass(frozen=True, slots=True)
class Published:
    """A message that arrived at the bus."""

    subject: str
    data: bytes
    headers: dict[str, str]


class Network:
    """The network of one simulation. All that happens by chance is drawn here, from one generator.

    Attributes:
        lost: messages that were lost.
        published: all that arrived at the bus, in order.
    """

    def __init__(self, clock: Clock, weather: Weather, seed: int) -> None:
        self.clock, self._weather, self._chance = clock, weather, random.Random(seed)
        self.lost = 0
        self.published: list[Published] = []

    async def cross(self, *, site: bool = False) -> None:
        """Return when a message has arrived; `site`: to or from one."""
        if site and self._weather.away_s:
            await self.clock.sleep(self._weather.away_s)
        if self._weather.latency_s:
            await self.clock.sleep(self._chance.expovariate(1 / self._weather.latency_s))

    def loses(self) -> bool:
        """By chance, and without a draw where nothing is ever lost."""
        gone = self._weather.lost > 0 and self._chance.random() < self._weather.lost
        self.lost += gone
        return gone

    async def lose(self, timeout: float) -> None:
        """By chance, wait in vain for an answer and raise UNAVAILABLE."""
        if self.loses():
            await self.clock.sleep(timeout)
            raise lost()


@dataclass(slots=True)
class Death:
    """When a process dies: at its n-th publication, just before the message is stored or just after it. A site's
    requests count as well.

    Attributes:
        at: n, of all its connections; 0: it lives.
        die: ends the process.
        publications: so far.
    """

    die: Callable[[], Awaitable[None]]
    at: int = 0
    stored: bool = False
    publications: int = 0

    async def before(self) -> bool:
        """Whether to die after this publication."""
        self.publications += 1
        if self.publications != self.at:
            return False
        if not self.stored:
            await self.now()
        return True

    async def now(self) -> None:
        """Never return: a dead process does nothing more."""
        await self.die()
        await asyncio.get_running_loop().create_future()


class DistantBus(MemoryBus):
    """A process's connection to a broker at the other end of a network.

    Attributes:
        cut_until: when the connection works again, on the monotonic face of the clock.
    """

    def __init__(self, broker: MemoryBroker, network: Network, death: Death, *, site: bool = False) -> None:
        super().__init__(broker)
        self._network, self._death, self._site = network, death, site
        self.cut_until = 0.0

    async def publish(self, subject: str, data: bytes, *, timeout: float = 30.0, **more: Any) -> int:
        last = await self._death.before()

        async def store() -> int:
            try:
                sequence = await super(DistantBus, self).publish(subject, data, **more)
                self._network.published.append(Published(subject, data, dict(more.get("headers") or {})))
                return sequence
            finally:  # stored, or refused because another was first
                if last:
                    await self._death.now()

        return await self._ask(store, timeout)

    async def last(self, *args: Any, timeout: float = 10.0) -> Record | None:
        return await self._ask(lambda: super(DistantBus, self).last(*args), timeout)

    async def snapshot(self, *args: Any, timeout: float = 10.0) -> list[Record]:
        return await self._ask(lambda: super(DistantBus, self).snapshot(*args), timeout)

    async def purge(self, *args: Any, timeout: float = 10.0) -> None:
        await self._ask(lambda: super(DistantBus, self).purge(*args), timeout)

    async def request(self, *args: Any, timeout: float = 10.0) -> bytes:
        # What a site hands in is a request: it dies at these as the hub's processes do at their publications.
        last = self._site and await self._death.before()

        async def hand_in() -> bytes:
            try:
                return await super(DistantBus, self).request(*args, timeout=timeout)
            finally:
                if last:
                    await self._death.now()

        return await self._ask(hand_in, timeout)

    async def tell(self, subject: str, data: bytes, **more: Any) -> None:
        """What is told crosses in order, and is lost where a request would be, or where the connection is cut."""
        if self.clock.monotonic() >= self.cut_until and not self._network.loses():
            await super().tell(subject, data, **more)

    async def _told(self, queue: asyncio.Queue[Record | None]) -> AsyncIterator[Record | None]:
        async for told in super()._told(queue):
            if self.clock.monotonic() < self.cut_until:
                while not queue.empty():
                    queue.get_nowait()
                await self._connected()
                self._check_open()
                yield None  # as after a reconnection
                continue
            await self._network.cross(site=self._site)
            self._check_open()
            yield told

    async def _ask(self, act: Callable[[], Awaitable[T]], timeout: float) -> T:
        """Send a request and wait for its answer; UNAVAILABLE after `timeout` seconds where one of them is lost."""
        await self._connected(timeout)
        await self._network.cross(site=self._site)
        await self._network.lose(timeout)
        answer = await act()
        await self._network.lose(timeout)
        await self._network.cross(site=self._site)
        await self._connected(timeout)
        return answer

    async def _connected(self, timeout: float = math.inf) -> None:
        left = self.cut_until - self.clock.monotonic()
        if left > 0:
            await self.clock.sleep(min(left, timeout))
        if left > timeout:
            raise lost()

    async def _records(self, follower: Follower) -> AsyncIterator[Record]:
        async for record in super()._records(follower):
            await self._network.cross(site=self._site)
            await self._connected()
            yield record


def lost() -> HanseError:
    return HanseError(ErrorCode.UNAVAILABLE, "simulation: the message was lost")
