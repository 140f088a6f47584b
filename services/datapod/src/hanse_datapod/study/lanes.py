"""Tasks of studies, several at once: one computes while others are fetched, masked and sent. Tasks of the masking
protocol are quick, and have a lane of their own so that they wait for no computation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from hanse_datapod.home.folders import TaskFolders
from hanse_datapod.study.tasks import is_study_step, says_run_ended
from hanse_datapod.worker.port import Worker
from hanse_fabric.messages import Task
from hanse_site import OpenTask, SiteLink
from hanse_site.link import open_or_unknown

_HANDED_IN = 8
_log = logging.getLogger(__name__)


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


class StudyLanes:
    """Works off the tasks of studies. Tasks of one run do not supersede each other; one whose step was closed is
    dropped, and so is all of a run that has ended.

    Args:
        do: does a task and hands its answer in.
        lanes: how many steps are under way at once.
    """

    def __init__(
        self, link: SiteLink, worker: Worker, folders: TaskFolders, do: Callable[[OpenTask], Awaitable[None]], *,
        lanes: int,
    ) -> None:  # fmt: skip
        self._link, self._worker, self._folders, self._do = link, worker, folders, do
        self._lanes = lanes
        self._steps, self._protocol = StudyQueue(), StudyQueue()
        self._under_way: dict[str, tuple[Task, asyncio.Future[None]]] = {}
        self._given_up: set[str] = set()
        self._handed_in: dict[str, Task] = {}
        self._worth_a_look = _HANDED_IN
        self._many_handed_in = asyncio.Event()

    @property
    def working_on(self) -> str | None:
        """The run of the oldest task that is under way."""
        return next((task.run for task, _ in self._under_way.values()), None)

    async def offer(self, opened: OpenTask) -> None:
        """Take a task in; where it says that its run has ended, remove what that has left."""
        if not says_run_ended(opened.task):
            (self._steps if is_study_step(opened.task) else self._protocol).offer(opened)
            return
        run = opened.task.run
        self._steps.drop(run)
        self._protocol.drop(run)
        ended = [work for task, work in self._under_way.values() if task.run == run]
        for work in ended:
            work.cancel()
        if ended:
            await asyncio.wait(ended)
        self._handed_in = {name: task for name, task in self._handed_in.items() if task.run != run}
        # Never more than before, or runs that end one after the other would put the next look off for ever.
        self._worth_a_look = min(self._worth_a_look, self._twice_as_many())
        if await asyncio.to_thread(self._folders.forget, run):
            _log.info("the study has ended: what it left here is removed", extra={"run": run})
            if self.working_on is None:
                await self._worker.rest()

    def give_up(self) -> None:
        """Stop what is under way, and take it in again."""
        self._given_up.update(self._under_way)
        for _, work in self._under_way.values():
            work.cancel()

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.to_thread(self._folders.forget_old)
        async with asyncio.TaskGroup() as group:
            for number in range(self._lanes):
                group.create_task(self._lane(self._steps), name=f"study lane {number}")
            group.create_task(self._lane(self._protocol), name="protocol lane")
            group.create_task(self._clear(), name="clearing")

    async def _lane(self, queue: StudyQueue) -> None:
        while True:
            opened = await queue.take()
            task = opened.task
            # It may have waited for long.
            if task.id in self._under_way or not await open_or_unknown(self._link, task):
                continue
            work = asyncio.ensure_future(self._do(opened))
            self._under_way[task.id] = (task, work)
            try:
                await asyncio.wait({work})
            finally:
                del self._under_way[task.id]
                if not work.done():
                    work.cancel()
                    await asyncio.wait({work})
            if task.id in self._given_up:
                self._given_up.discard(task.id)
                if work.cancelled():
                    queue.offer(opened)
                    continue
            if not work.cancelled():
                work.result()
            if is_study_step(task):
                self._handed_in[task.id] = task
                if len(self._handed_in) >= self._worth_a_look:
                    self._many_handed_in.set()

    async def _clear(self) -> None:
        """Remove large answers of steps that are closed: until then, one may have to be sent again.

        No lane waits for it, since it takes several looks to be sure that a step is closed. Where steps stay open, the
        next look waits until there are twice as many: else each answer would ask for all that came before it.
        """
        while True:
            await self._many_handed_in.wait()
            self._many_handed_in.clear()
            tasks = list(self._handed_in.values())
            still_open = await asyncio.gather(*(open_or_unknown(self._link, task) for task in tasks))
            for task, opened in zip(tasks, still_open, strict=True):
                if not opened and self._handed_in.pop(task.id, None) is not None:
                    await asyncio.to_thread(self._folders.drop, task)
            self._worth_a_look = self._twice_as_many()

    def _twice_as_many(self) -> int:
        return max(_HANDED_IN, 2 * len(self._handed_in))
