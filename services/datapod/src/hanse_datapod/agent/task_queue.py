"""The training tasks that wait: of each run only the newest, so that a site that was away does the open round."""

from __future__ import annotations

import asyncio

from hanse_datapod.agent.sums_under_way import waits_for_others
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.messages import Task
from hanse_site import OpenTask

SETTLE_S = 0.25


class TaskQueue:
    """Open tasks, one a run. Runs are taken in the order in which they came, but among those that wait for other sites
    in the middle of a task the run with the least id is first.

    Two sites that began with different runs would each wait for the other for ever; so all begin with the least.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._tasks: dict[str, OpenTask] = {}
        self._ready = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()

    def offer(self, opened: OpenTask) -> None:
        """Take a task in, in place of an older one of its run. `take` waits until all open ones are in."""
        self._tasks[opened.task.run] = opened
        if opened.pending == 0:
            self._ready.set()
        else:
            # The pending rest may have been purged on the bus, so the wait for it ends after a moment.
            settling = asyncio.create_task(self._settle())
            self._settling.add(settling)
            settling.add_done_callback(self._settling.discard)

    async def _settle(self) -> None:
        await self._clock.sleep(SETTLE_S)
        self._ready.set()

    def put_back(self, opened: OpenTask) -> None:
        """Take back a task that made way for another, unless a newer one of its run is there."""
        self._tasks.setdefault(opened.task.run, opened)
        self._ready.set()

    async def take(self) -> OpenTask:
        """The next task to do."""
        while True:
            await self._ready.wait()
            if self._tasks:
                return self._tasks.pop(self._next())
            self._ready.clear()

    def _next(self) -> str:
        first = next(iter(self._tasks))
        if len(self._tasks) == 1 or not waits_for_others(self._tasks[first].task):
            return first
        return min(run for run, opened in self._tasks.items() if waits_for_others(opened.task))


def makes_way(current: Task, arrived: Task) -> bool:
    """Whether a task at work is given up for another run's, to be done again after it. Pure.

    What it has contributed stands, and contributing the same again is contributing once.
    """
    return arrived.run < current.run and waits_for_others(current) and waits_for_others(arrived)
