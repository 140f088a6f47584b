"""What all verbs share: recorded outcomes, the boundary where a run may pause, what is told, what is tidied."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from hanse_coordinator.workflow.failures import Paused
from hanse_coordinator.workflow.journal import EntryKind, Journal
from hanse_coordinator.workflow.notices import Notices
from hanse_fabric.errors import HanseError

_LOG = logging.getLogger(__name__)


class Steps:
    """The steps of one run in this coordinator's hands.

    Attributes:
        live: set at the first step that is not recorded: here replay ends.
    """

    def __init__(self, journal: Journal, notices: Notices, *, run: str, pause: asyncio.Event) -> None:
        self._journal, self._notices, self._run, self._pause = journal, notices, run, pause
        self.live = asyncio.Event()
        self._at_live: list[Coroutine[Any, Any, None]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._held: list[tuple[str, str, int, dict[str, Any]]] = []

    def recorded(self, step: str) -> dict[str, Any] | None:
        """The outcome of a step that was closed before; None where there is work to do."""
        closed = self._journal.take_closed(step)
        if closed is not None:
            # What was noted before this step was closed had been told before it was.
            self._held.clear()
        return closed

    def passed(self, step: str) -> None:
        """A step of which nothing need be known, since what was made of it is recorded."""
        self._journal.take_closed(step)
        self._journal.take_opened(step)

    async def begin(self) -> None:
        """Called by each verb that has work to do: here the run may pause; here replay ends.

        Raises:
            Paused: as the owner wants.
        """
        self.check_pause()
        if not self.live.is_set():
            self.live.set()
            self._tell_held()
            for work in self._at_live:
                self.later(work)
            self._at_live.clear()

    def check_pause(self) -> None:
        """Raises Paused where the owner wants it."""
        if self._pause.is_set():
            raise Paused

    async def paused(self) -> None:
        """Return when the owner wants a pause."""
        await self._pause.wait()

    def opened(self, step: str) -> dict[str, Any] | None:
        """What was recorded at the opening of a step that was not closed."""
        return self._journal.take_opened(step)

    async def record(self, kind: EntryKind, step: str, body: dict[str, Any]) -> None:
        """Journal one entry; durable when this returns."""
        await self._journal.append(kind, step, body)

    async def close(self, step: str, body: dict[str, Any]) -> None:
        """Record a step's outcome."""
        # What was told up to here is durable before the step is: a replay does not tell it again.
        await self._notices.flush()
        await self._journal.append("closed", step, body)

    def note(self, kind: str, about: str, round: int, data: dict[str, Any]) -> None:  # noqa: A002
        """Tell those who watch. What is replayed is not told again."""
        self._held.append((kind, about, round, data))
        if self.live.is_set():
            self._tell_held()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Tidy in the background."""
        task = asyncio.get_running_loop().create_task(self.tolerant(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def when_live(self, work: Coroutine[Any, Any, None], *, keep: int) -> None:
        """Tidy what a replayed step may have left; of many such, the last `keep` are enough."""
        if self.live.is_set():
            self.later(work)
            return
        self._at_live.append(work)
        for dropped in self._at_live[:-keep]:
            dropped.close()
        del self._at_live[:-keep]

    async def tolerant(self, work: Coroutine[Any, Any, None]) -> None:
        """Tidying never stops a run: the end of the run tidies everything once more."""
        try:
            await work
        except HanseError as error:
            _LOG.warning("run %s: tidying failed: %s", self._run, error)

    async def settle(self) -> None:
        """Wait for what was started in the background: notices, purges."""
        self._tell_held()
        while self._background:
            await asyncio.gather(*self._background)
        await self._notices.flush()

    async def abandon(self) -> None:
        """Stop the background work at once."""
        for work in self._at_live:
            work.close()
        self._at_live.clear()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._journal.abandon()

    def _tell_held(self) -> None:
        for kind, about, round_number, data in self._held:
            self._notices.event(kind, about, round=round_number, **data)
        self._held.clear()


def attempt_key(step: str, attempt: int) -> str:
    """The key of an attempt at a step; the first has the step's own."""
    return step if attempt == 1 else f"{step}-a{attempt}"
