"""Tasks as they reach a site: told when they open, and asked for wherever a tell may have been lost."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from hanse_fabric.bus.port import Headers, Record
from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.doors import MOST_KNOWN, KnownTasks, OpenTasks
from hanse_fabric.subjects import REFUSED, TASK_MARK, Door

_REMEMBERED = 4096
_LOG = logging.getLogger(__name__)
_AWAY = frozenset({ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT})


@dataclass(frozen=True, slots=True)
class ReceivedTask:
    """A task as it came.

    Attributes:
        mark: `run.step.sequence`: tells one publication from all others.
        pending: how many more are at hand.
    """

    mark: str
    data: bytes
    headers: Headers = field(default_factory=dict)
    pending: int = 0

    @property
    def sequence(self) -> int:
        return _sequence(self.mark)


class Incoming:
    """The tasks of one participant, each publication once, in order.

    What is open is asked for at the start, after each reconnection, and when a sign of life tells of a task that did
    not come (`compare`). What is told meanwhile waits for the answer.
    """

    def __init__(self, doors: Doors) -> None:
        self._doors = doors
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._arrived: asyncio.Queue[Record | HanseError | None] = asyncio.Queue()

    def compare(self, opened: Iterable[str]) -> None:
        """Ask again, if one of these marks has not come."""
        if any(mark not in self._seen for mark in opened):
            self._arrived.put_nowait(None)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[ReceivedTask]]:
        """Tasks while inside."""
        async with self._doors.told() as told:
            passing = asyncio.create_task(self._pass_on(told))
            try:
                yield self._tasks()
            finally:
                passing.cancel()
                await asyncio.gather(passing, return_exceptions=True)

    async def _pass_on(self, told: AsyncIterator[Record | None]) -> None:
        try:
            async for record in told:
                if record is not None and REFUSED in record.headers:
                    _LOG.warning(
                        "the hub refused what was sent",
                        extra={"what": record.headers[REFUSED], "reason": record.data.decode(errors="replace")},
                    )
                else:
                    self._arrived.put_nowait(record)
        except HanseError as error:
            self._arrived.put_nowait(error)

    async def _tasks(self) -> AsyncIterator[ReceivedTask]:
        while True:
            item = await self._arrived.get()
            if isinstance(item, HanseError):
                raise item
            given = await self._asked() if item is None else [_told(item)]
            fresh = [each for each in given if each.mark not in self._seen]
            for place, each in enumerate(fresh):
                self._remember(each.mark)
                yield ReceivedTask(each.mark, each.data, each.headers, len(fresh) - place - 1)

    async def _asked(self) -> list[ReceivedTask]:
        """All that is open and was not seen, and what was told meanwhile and is newer."""
        found: list[ReceivedTask] = []
        while True:
            known = [*self._seen, *(each.mark for each in found)][-MOST_KNOWN:]
            answer = await self._ask(KnownTasks(marks=tuple(known)))
            given = [ReceivedTask(task.mark, task.data, task.headers) for task in answer.tasks]
            new = [each for each in given if each.mark not in self._seen]
            found += new
            if not new or {*answer.open} <= {*self._seen, *(each.mark for each in found)}:
                return found + self._newer_than(max(map(_sequence, answer.open), default=0))

    async def _ask(self, known: KnownTasks) -> OpenTasks:
        """As long as it takes: without the answer the site has nothing to do."""
        pause = 0.1
        while True:
            try:
                return OpenTasks.decode(await self._doors.ask(Door.TASKS, known.encode()))
            except HanseError as error:
                if error.code not in _AWAY:
                    raise
            await self._doors.bus.clock.sleep(pause)
            pause = min(2 * pause, 5.0)

    def _newer_than(self, sequence: int) -> list[ReceivedTask]:
        """What was told while the answer was on its way. What is older and not among it has been closed since."""
        waiting = [self._arrived.get_nowait() for _ in range(self._arrived.qsize())]
        for each in waiting:
            if isinstance(each, HanseError):
                self._arrived.put_nowait(each)
        told = [_told(each) for each in waiting if isinstance(each, Record)]
        return [each for each in told if each.sequence > sequence]

    def _remember(self, mark: str) -> None:
        self._seen[mark] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


def _told(record: Record) -> ReceivedTask:
    return ReceivedTask(record.headers.get(TASK_MARK, ""), record.data, record.headers)


def _sequence(mark: str) -> int:
    number = mark.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0
