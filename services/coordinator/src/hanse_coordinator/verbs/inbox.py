"""Results as they arrive for one run: decoded, checked against the participant's key, and handed to the open step.

A result that is forged, malformed or late is refused, counted and told of; it never counts as an answer. Nor does a
second answer: the same bytes again say nothing new, and other bytes are refused.
"""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from hanse_coordinator.open_steps import open_steps_of
from hanse_coordinator.refusals import count_refusal
from hanse_coordinator.runs.roster import Roster
from hanse_coordinator.verbs.collector import Collector
from hanse_coordinator.verbs.ledgers import Ledgers
from hanse_coordinator.verbs.verified import verified_result
from hanse_coordinator.watching.notices import Notices
from hanse_coordinator.watching.sparing import Sparing
from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages import LedgerHead, Outcome, Result
from hanse_fabric.subjects import RESULT, Stream
from hanse_fabric.telemetry import extract, span
from hanse_fabric.telemetry.catalogue import LATE_RESULTS, RESULTS
from hanse_privacy.witness import HEADER, found_beside, is_own
from hanse_workflows.outcomes import Answer, Failure

_LOG = logging.getLogger(__name__)
_STREAM: Stream = RESULT.stream or Stream("")
_REMEMBERED_STEPS = 8
_REMEMBERED_RESULTS = 4096
"""Steps that are remembered at least, and results that may be remembered beyond them: of many small steps at once."""


class Inbox:
    """The results of one run. At most one follow of the bus, whatever the number of steps.

    Attributes:
        late: results that came after their step had closed.
        refused: results that were forged or malformed, or other than what their site had answered before.
    """

    def __init__(self, bus: Bus, roster: Roster, notices: Notices, *, ledgers: Ledgers, project: str, run: str) -> None:
        self._bus, self._roster, self._notices = bus, roster, notices
        self._ledgers, self._project, self._run = ledgers, project, run
        self._open_steps = open_steps_of(bus)
        self._open: dict[str, tuple[Collector, int]] = {}
        self._first: dict[str, dict[str, bytes]] = {}
        self._heard: OrderedDict[str, Mapping[str, bytes | None]] = OrderedDict()
        self._results = 0
        self._sparing = Sparing(bus.clock)
        self.late = 0
        self.refused = 0

    async def follow(self) -> None:
        """Receive results until cancelled."""
        pattern = RESULT.wildcard(project=self._project, run=self._run)
        async with self._bus.follow(_STREAM, pattern) as records:
            async for record in records:
                with span("result", parent=extract(record.headers), run=self._run):
                    self._receive(record)

    @contextmanager
    def collecting(self, step: str, collector: Collector, round: int) -> Iterator[None]:  # noqa: A002
        """While inside, results of `step` go to `collector`."""
        self._open[step], self._first[step] = (collector, round), {}
        try:
            yield
        finally:
            del self._open[step]
            self._keep(step, self._first.pop(step))

    async def recall(self, step: str) -> None:
        """Hand over at once what is stored already for an open step: answers that came while no coordinator was."""
        for record in await self._bus.snapshot(_STREAM, self.pattern(step)):
            self._receive(record)

    def remember(self, step: str, heard: Iterable[str]) -> None:
        """A closed step's answers are not late when they are delivered again. The last steps are enough: older ones'
        results have been purged."""
        self._keep(step, dict.fromkeys(heard))

    def _keep(self, step: str, heard: Mapping[str, bytes | None]) -> None:
        self._results += len(heard) - len(self._heard.get(step, ()))
        self._heard[step] = heard
        while len(self._heard) > _REMEMBERED_STEPS and self._results > _REMEMBERED_RESULTS:
            self._results -= len(self._heard.popitem(last=False)[1])

    def pattern(self, step: str) -> str:
        return RESULT.wildcard(project=self._project, run=self._run, step=step)

    def _receive(self, record: Record) -> None:
        tokens = RESULT.parse(record.subject)
        step, name = tokens["step"], tokens["participant"]
        opened, digest = self._open.get(step), hashlib.sha256(record.data).digest()
        if opened is None:
            heard = self._heard.get(step, {})
            if name not in heard or heard[name] not in (None, digest):
                self._count_late(record, step, name)
            return
        collector, round_number = opened
        try:
            result = self._verified(record.data, step, name)
            if not collector.expects(result):
                raise HanseError(ErrorCode.INVALID_INPUT, f"task: {result.task} is not the task of this step")
            if self._first[step].setdefault(name, digest) != digest:
                raise HanseError(
                    ErrorCode.CONFLICT,
                    f"result of {name}: it is another than the site's first answer to this task, which counts",
                    hint="a task is answered once; the same bytes may be sent again",
                )
        except HanseError as error:
            self._refuse(record, round_number, name, error)
            return
        taken = collector.take(result)
        self._ledgers.saw(name, ledger=result.ledger, outbox=self._outbox(record, step, name))
        if taken is None:
            return
        if isinstance(taken, Failure) and taken.outcome is Outcome.REFUSED:
            count_refusal("task", taken.code, self._project, name)
        RESULTS.add(outcome=taken.outcome.value if isinstance(taken, Failure) else "done")
        about = f"{step}/{name}"
        told = {"outcome": "done", "reason": result.reason[:500]}
        if isinstance(taken, Failure):
            told = {"outcome": taken.outcome.value, "code": taken.code, "reason": taken.reason}
        elif not result.reason:
            del told["reason"]
        self._notices.event(
            "task-answered", about, round=round_number, step=step, participant=name,
            examples=result.examples, metrics=taken.metrics if isinstance(taken, Answer) else {},
            seconds=result.seconds, **told,
        )  # fmt: skip

    def _verified(self, data: bytes, step: str, name: str) -> Result:
        key = self._roster.key_of(self._project, name)
        where = {"project": self._project, "run": self._run, "step": step, "participant": name}
        return verified_result(data, key, **where, read=self._open_steps.was_read(data, **where))

    def _outbox(self, record: Record, step: str, name: str) -> LedgerHead | None:
        """The head of the site's log that came beside its answer, if it has signed it: what came at this process's own
        door was verified there."""
        head, key = found_beside(record.headers), self._roster.key_of(self._project, name)
        if head is None or key is None:
            return None
        where = {"project": self._project, "run": self._run, "step": step, "participant": name}
        if self._open_steps.came_beside(record.headers[HEADER], **where):
            return head
        own = is_own(head, project=self._project, participant=name, key=VerifyKey(key), of="outbox")
        return head if own else None

    def _count_late(self, record: Record, step: str, name: str) -> None:
        self.late += 1
        LATE_RESULTS.add()
        if not self._sparing.due(self._project, name):
            return
        about = f"{step}/{name}/{record.sequence}"
        self._notices.event("late-result", about, step=step, participant=name, count=self.late)
        self._notices.audit(
            "result.refuse", about, subject=f"participant:{name}", step=step, reason="late: step closed"
        )

    def _refuse(self, record: Record, round_number: int, name: str, error: HanseError) -> None:
        self.refused += 1
        count_refusal("result", error.code.code, self._project, name)
        if not self._sparing.due(self._project, name):
            return
        about = f"{record.subject}/{record.sequence}"
        _LOG.warning("result on %s refused: %s", record.subject, error)
        self._notices.event(
            "refused", about, round=round_number, participant=name, code=error.code.code, reason=str(error)
        )
        self._notices.audit(
            "result.refuse", about, subject=f"participant:{name}", code=error.code.code, reason=str(error)
        )
