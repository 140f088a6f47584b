"""The training tasks that wait: of each run only the newest, so that a site that was away does the open round."""

from __future__ import annotations

import asyncio

from hanse_datapod.agent.sums_under_way import waits_for_others
from hanse_fabric.clock import SYSTEM_CLOCK, Clock
from hanse_fabric.messages import Task
from hanse_site import OpenTask

SETTLE_S = 0.25


class TaskQueue:
    """Open tasks by run, runs in the order in which they came; of those that wait for other sites, the least run first.

    Two sites that began with different runs would wait crosswise, each in one for the other. All begin with the least.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._tasks: dict[str, OpenTask] = {}
        self._ready = asyncio.Event()
        self._settling: set[asyncio.Task[None]] = set()

    def offer(self, opened: OpenTask) -> None:
        """Take a task in; it replaces an older one of its run. Those waiting are offered out once caught up."""
        self._tasks[opened.task.run] = opened
        if opened.pending == 0:
            self._ready.set()
        else:
            # The rest may have been purged meanwhile, so its announcement is not waited for without end.
            settling = asyncio.create_task(self._settle())
            self._settling.add(settling)
            settling.add_done_callback(self._settling.discard)

    async def _settle(self) -> None:
        await self._clock.sleep(SETTLE_S)
        self._ready.set()

    def put_back(self, opened: OpenTask) -> None:
        """A task that made way for another; a newer one of its run stands."""
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
