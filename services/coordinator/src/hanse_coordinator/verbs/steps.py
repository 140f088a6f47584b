"""What all durable verbs share: recorded outcomes, the boundary where a run may pause, what is told, what is tidied."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from hanse_coordinator.runs.journal import Journal
from hanse_coordinator.verbs.failures import Paused
from hanse_coordinator.watching.notices import Notices
from hanse_fabric.errors import HanseError
from hanse_fabric.waiting import first_of
from hanse_workflows.failures import outcome_of
from hanse_workflows.fingerprint import fingerprint
from hanse_workflows.keys import UsedKeys
from hanse_workflows.verbs import Body

_LOG = logging.getLogger(__name__)


def _nothing(_: Body) -> None:
    """Nothing is to be done about a step that was done before."""


class Steps:
    """The steps of one run in this coordinator's hands.

    Attributes:
        live: set at the first step that is not recorded: here replay ends.
        binds: whether requests of masked work are bound.
    """

    def __init__(self, journal: Journal, notices: Notices, *, run: str, pause: asyncio.Event) -> None:
        self._journal, self._notices, self._run, self._pause = journal, notices, run, pause
        self._keys = UsedKeys()
        self.live = asyncio.Event()
        self.binds = not journal.of_first_release
        self._at_live: list[Coroutine[Any, Any, None]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._held: list[tuple[str, str, int, dict[str, Any]]] = []

    async def once(
        self,
        key: str,
        asked: Mapping[str, Any],
        do: Callable[[], Awaitable[Body]],
        *,
        replayed: Callable[[Body], None] = _nothing,
    ) -> Body:
        """The outcome of a step: as it was recorded, or of `do`, which is then recorded.

        Args:
            asked: what the outcome depends on.
            replayed: is told of a recorded outcome.

        Raises:
            RunFailure: STEP_CHANGED for a key that this pass has used before, or whose outcome is of another question.
            Paused: as the owner wants.
        """
        mark = fingerprint(asked)
        body = self._recorded(key, mark)
        if body is not None:
            replayed(body)
            return body
        return await self._done(key, mark, do)

    def beside(
        self,
        key: str,
        asked: Mapping[str, Any],
        do: Callable[[], Awaitable[Body]],
        *,
        needed: asyncio.Event,
        told: Callable[[Body], None],
    ) -> asyncio.Task[None] | None:
        """As `once`, beside the steps that follow, which may be recorded before this one is. So where replay comes to
        it and it is not recorded, replay goes on, and it is done where that ends.

        Args:
            needed: set where the workflow waits for it.
            told: is told of the outcome.

        Returns:
            The task that does it, which is the caller's to wait for; None where it was recorded.

        Raises:
            RunFailure: STEP_CHANGED, as `once`.
        """
        mark = fingerprint(asked)
        body = self._recorded(key, mark)
        if body is not None:
            told(body)
            return None

        async def later() -> None:
            await first_of(self.live.wait(), needed.wait())
            told(await self._done(key, mark, do))

        return asyncio.get_running_loop().create_task(later())

    def _recorded(self, key: str, mark: str) -> Body | None:
        self._keys.use(key, mark, self._journal.fingerprint_of(key))
        body = self._journal.take_closed(key)
        if body is not None:
            # What was noted before this step was closed had been told before it was.
            self._held.clear()
        return body

    async def _done(self, key: str, mark: str, do: Callable[[], Awaitable[Body]]) -> Body:
        self._begin()
        body = await outcome_of(key, do)
        # What was told up to here is durable before the step is: a replay does not tell it again.
        await self._notices.flush()
        await self._journal.append("closed", key, body, fingerprint=mark)
        return body

    def job_id(self, key: str, asked: Mapping[str, Any]) -> str:
        """The id of an aggregators' job: another question has another. (A run that began under release 0.1.0 ends with
        the ids of that release.)"""
        return self._journal.job_id(key, fingerprint(asked))

    def passed(self, key: str) -> None:
        """A step of which nothing need be known, since what was made of it is recorded."""
        self._journal.take_closed(key)
        self._journal.take_opened(key)

    def _begin(self) -> None:
        """Called where there is work to do: here the run may pause; here replay ends.

        Raises:
            Paused: as the owner wants.
        """
        self.check_pause()
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

    async def opened(self, key: str, asked: Mapping[str, Any], make: Callable[[], Body]) -> tuple[Body, bool]:
        """What was recorded at the opening of a step that was not closed, and whether it was before now."""
        before = self._journal.take_opened(key)
        if before is not None:
            return before, True
        body = make()
        await self._journal.append("opened", key, body, fingerprint=fingerprint(asked))
        return body, False

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
        """Stop the background work at once: another coordinator has the run, or this one is stopping."""
        for work in self._at_live:
            work.close()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._journal.abandon()

    def _tell_held(self) -> None:
        for kind, about, round_number, data in self._held:
            self._notices.event(kind, about, round=round_number, **data)
        self._held.clear()
