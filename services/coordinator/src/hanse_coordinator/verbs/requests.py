"""Requests of one run to the workers of a queue, and their answers: submitted, found again after a crash, awaited.

A request's id says everything about it, so one whose answer is on the bus already is never made again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Generic, TypeVar

from hanse_coordinator.watching.vitals import BACKLOG
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Message
from hanse_fabric.subjects import Stream, Subject
from hanse_fabric.telemetry import inject
from hanse_fabric.waiting import first_of
from hanse_workflows.failures import RunFailure

A = TypeVar("A", bound=Message)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an answer may take.

    Attributes:
        timeout: seconds until an unanswered request is made again.
        tries: how often it is made before the run fails.
    """

    timeout: float = 600.0
    tries: int = 3


class Requests(Generic[A]):
    """The requests of one run on one subject.

    Args:
        questions, answers: the rows of the table: a queue, and a stream that keeps the last answer.
        answer: the class of an answer.
        named_by: the subjects' token that is a request's id.
        who: the workers, for people.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        *,
        project: str,
        run: str,
        questions: Subject,
        answers: Subject,
        answer: type[A],
        named_by: str,
        who: str,
        patience: Patience,
    ) -> None:
        self._bus, self._clock, self._project, self._run = bus, clock, project, run
        self._questions, self._answers, self._answer, self._named_by = questions, answers, answer, named_by
        self._stream: Stream = answers.stream or Stream("")
        self._who, self._patience = who, patience
        self._waiting: dict[str, asyncio.Future[A]] = {}
        self._recovering = self._lasting = False

    def recover(self, *, lasting: bool) -> None:
        """To be called after a restart: requests of before may have been answered already, so answers are looked for
        before anything is asked again.

        Args:
            lasting: to the end; else until the first outcome (`recovered`), where one request is open at a time.
        """
        self._recovering, self._lasting = True, lasting

    def recovered(self) -> None:
        """What comes now was not asked before, unless many requests were open at once."""
        self._recovering = self._lasting

    async def follow(self) -> None:
        """Receive answers until cancelled."""
        pattern = self._answers.wildcard(project=self._project, run=self._run)
        async with self._bus.follow(self._stream, pattern) as records:
            async for record in records:
                future = self._waiting.get(self._answers.parse(record.subject)[self._named_by])
                if future is not None:
                    self._settle(future, record.data)

    async def outcome(self, identity: str, request: Message, **tokens: str) -> A:
        """The answer to a request.

        Args:
            identity: the value of the request's `named_by`.
            tokens: the subjects' other tokens besides project and run.

        Raises:
            RunFailure: TIMEOUT when nobody answers; or why the answer cannot be read.
        """
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        try:
            with BACKLOG.waiting(self._who, self._clock):
                return await self._submit(identity, request.encode(), tokens, future)
        finally:
            del self._waiting[identity]

    async def _submit(self, identity: str, data: bytes, tokens: dict[str, str], future: asyncio.Future[A]) -> A:
        named = {"project": self._project, "run": self._run, self._named_by: identity, **tokens}
        for attempt in range(1, self._patience.tries + 1):
            if self._recovering or attempt > 1:
                record = await self._bus.last(self._stream, self._answers.of(**named))
                if record is not None:
                    self._settle(future, record.data)
            if not future.done():
                await self._bus.publish(
                    self._questions.of(**named), data, headers=inject(), message_id=f"{self._run}/{identity}/{attempt}"
                )
                await first_of(asyncio.wait([future]), self._clock.sleep(self._patience.timeout))
            if future.done():
                return future.result()
            _LOG.warning("%s of run %s has no answer after %s s", identity, self._run, self._patience.timeout)
        raise RunFailure(
            ErrorCode.TIMEOUT,
            f"{identity}: none of the {self._who} answered in {self._patience.tries} times "
            f"{self._patience.timeout:g} s",
            hint=f"see that {self._who} are running and ready",
        )

    def _settle(self, future: asyncio.Future[A], data: bytes) -> None:
        if future.done():
            return
        try:
            future.set_result(self._answer.decode(data))
        except HanseError as error:
            future.set_exception(RunFailure(error.code, f"answer of the {self._who}: {error.message}", hint=error.hint))
