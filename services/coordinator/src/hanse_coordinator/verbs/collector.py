"""The answers to one opened step, as they come in: who has answered, who counts, and when the step may close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from hanse_fabric.clock import Clock
from hanse_fabric.messages import Result
from hanse_fabric.waiting import first_of
from hanse_workflows.answers import Terms, judge
from hanse_workflows.gathering import IN_VAIN
from hanse_workflows.outcomes import Answer, Failure

_LOOK_S = 2.0
"""Who rests is told without a word to the step, so it is looked at again now and then, once there is a quorum."""


class Collector:
    """Collects the answers of the tasks it is given, each participant's first one.

    Args:
        tasks: task id by participant.
        needed: how many good answers are the quorum.
        rests: whether a participant has said that it begins no task now: beyond the quorum it is not waited for.
    """

    def __init__(
        self, tasks: Mapping[str, str], *, needed: int, terms: Terms, rests: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._tasks, self._needed, self._terms, self._rests = dict(tasks), needed, terms, rests
        self.answers: dict[str, Answer] = {}
        self.failures: dict[str, Failure] = {}
        self._news = asyncio.Event()

    @property
    def complete(self) -> bool:
        return len(self.answers) + len(self.failures) == len(self._tasks)

    def missing(self) -> list[str]:
        """Those who have not answered."""
        return [name for name in self._tasks if name not in self.answers and name not in self.failures]

    @property
    def quorum(self) -> bool:
        return len(self.answers) >= self._needed

    @property
    def rests(self) -> bool:
        """Whether there is a quorum, and nobody else is at work."""
        return self.quorum and all(self._rests(name) for name in self.missing())

    def expects(self, result: Result) -> bool:
        """Whether this is an answer to one of the tasks."""
        return self._tasks.get(result.participant) == result.task

    def take(self, result: Result) -> Answer | Failure | None:
        """Accept a verified result; None where the participant has answered before."""
        name = result.participant
        if name in self.answers or name in self.failures:
            return None
        taken = judge(result, self._terms)
        if isinstance(taken, Answer):
            self.answers[name] = taken
        else:
            self.failures[name] = taken
        if self.complete or self.quorum or self.failures:
            self._news.set()
        return taken

    async def closed(
        self, clock: Clock, deadline: datetime, grace: float | None, *, spare: float | None = None
    ) -> None:
        """Wait until all have answered but those who rest, or `grace` seconds after the quorum, or the deadline.

        Args:
            spare: where all must answer: seconds to wait on after the first who has waited for others in vain; none
                after a failure of another kind.
        """
        limit, met, broken = deadline, False, False
        while not (self.complete or self.rests):
            now = clock.now()
            if spare is not None and self.failures:
                if any(failure.code != IN_VAIN for failure in self.failures.values()):
                    return
                if not broken:
                    limit, broken = min(deadline, now + timedelta(seconds=spare)), True
            if self.quorum and grace is not None and not met:
                limit, met = min(deadline, now + timedelta(seconds=grace)), True
            left = (limit - now).total_seconds()
            if left <= 0:
                return
            self._news.clear()
            await first_of(self._news.wait(), clock.sleep(min(left, _LOOK_S) if self.quorum else left))
