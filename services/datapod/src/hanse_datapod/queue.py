"""The tasks that wait: of each run that trains only the newest, so that a site that was away does the round that is
open now; of a study all, for its steps are under way side by side.
"""

from __future__ import annotations

import asyncio

from hanse_fabric.site import OpenTask

SETTLE_S = 0.25


class TaskQueue:
    """Open tasks by run, runs in the order in which they came."""

    def __init__(self) -> None:
        self._tasks: dict[str, OpenTask] = {}
        self._ready = asyncio.Event()

    def offer(self, opened: OpenTask) -> None:
        """Take a task in; it replaces an older one of its run. Those waiting are offered out once caught up."""
        self._tasks[opened.task.run] = opened
        if opened.pending == 0:
            self._ready.set()
        else:
            # The rest may have been purged meanwhile, so its announcement is not waited for without end.
            asyncio.get_running_loop().call_later(SETTLE_S, self._ready.set)

    async def take(self) -> OpenTask:
        """The next task to do."""
        while True:
            await self._ready.wait()
            if self._tasks:
                return self._tasks.pop(next(iter(self._tasks)))
            self._ready.clear()


class StudyQueue:
    """Open tasks of studies, in the order in which they came; a step that is opened anew replaces its former task."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], OpenTask] = {}
        self._ready = asyncio.Event()

    def offer(self, opened: OpenTask) -> None:
        """Take a task in."""
        self._tasks[opened.task.run, opened.task.step] = opened
        self._ready.set()

    def drop(self, run: str) -> None:
        """Forget the tasks of a run that has ended."""
        self._tasks = {key: opened for key, opened in self._tasks.items() if key[0] != run}

    async def take(self) -> OpenTask:
        """The next task to do; any number may wait for one."""
        while True:
            await self._ready.wait()
            if self._tasks:
                return self._tasks.pop(next(iter(self._tasks)))
            self._ready.clear()
