"""The verb `ask`: tasks to participants on the bus, and their answers.

Payloads of answers that are too large for the journal stay on the bus, and the journal has their digests: a masking
protocol's shares are 20 KB of each of a hundred sites, needed until the sum is made and never again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from hanse_coordinator.doors import mark_of
from hanse_coordinator.open_steps import open_steps_of
from hanse_coordinator.runs.roster import Roster
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.runs.task_room import task_room_of
from hanse_coordinator.verbs.collector import Collector
from hanse_coordinator.verbs.inbox import Inbox
from hanse_coordinator.verbs.ledgers import Ledgers
from hanse_coordinator.verbs.objects import RunObjects
from hanse_coordinator.verbs.steps import Steps
from hanse_coordinator.watching.notices import Notices
from hanse_coordinator.watching.vitals import BACKLOG, RunVitals, count_bytes
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.doors.byte_ledger import Passed, ledger_of, message_bytes
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import ExchangeJob, ObjectRef, Result
from hanse_fabric.messages.doors import OpenFor
from hanse_fabric.subjects import JOB, OPENS, RESULT, TASK, TASK_MARK, TELL, Stream
from hanse_fabric.telemetry import inject
from hanse_fabric.waiting import all_of
from hanse_privacy.ring.plan import AVERAGE
from hanse_privacy.witness import beside
from hanse_workflows.answers import Terms, largest_update
from hanse_workflows.ask import Ask
from hanse_workflows.attendance import refuse_strangers
from hanse_workflows.failures import RunFailure
from hanse_workflows.outcomes import Gathered
from hanse_workflows.verbs import Body

_LOG = logging.getLogger(__name__)
_TASKS: Stream = TASK.stream or Stream("")
_RESULTS: Stream = RESULT.stream or Stream("")
_REPLAYED_STEPS_TIDIED = 4
_EXCHANGES = "exchanges"
_TOLD_AT_ONCE = 1000
_Own = dict[str, dict[str, Any]]


class TaskSteps:
    """Opens steps, sends their tasks, closes them. One per run."""

    def __init__(
        self,
        bus: Bus,
        clock: Clock,
        steps: Steps,
        *,
        inbox: Inbox,
        notices: Notices,
        objects: RunObjects,
        settings: WorkflowSettings,
        vitals: RunVitals,
        ledgers: Ledgers,
        roster: Roster,
        project: str,
        run: str,
        workflow: str,
        terms: str | None = None,
    ) -> None:
        self._bus, self._clock, self._steps = bus, clock, steps
        self._inbox, self._notices, self._objects, self._settings = inbox, notices, objects, settings
        self._vitals, self._project, self._run, self._workflow = vitals, project, run, workflow
        self._ledgers, self._roster, self._ledger = ledgers, roster, ledger_of(bus)
        self._open_steps, self._terms = open_steps_of(bus), terms

    async def ask(self, step: str, ask: Ask) -> Gathered:
        if not self._steps.binds:
            ask = replace(ask, bound=None)
        question = ask.question(self._project, self._run, self._workflow)

        async def do() -> Body:
            gathered = await self._collected(step, ask, question)
            fresh.append(gathered)
            return (gathered.digested() if ask.keep else gathered).body()

        def replayed(body: Body) -> None:
            gathered = Gathered.of(body)
            self._inbox.remember(step, set(gathered.asked) - set(gathered.silent))
            self.tidy_later(step, results=not ask.keep, beside=ask.beside)

        fresh: list[Gathered] = []
        body = await self._steps.once(step, question, do, replayed=replayed)
        if not fresh:
            return Gathered.of(body)
        self._steps.later(self._purge(step, results=not ask.keep))
        return fresh[0]

    async def _collected(self, step: str, ask: Ask, question: Mapping[str, Any]) -> Gathered:
        """Send the step's tasks, and collect until it closes."""
        refuse_strangers(step, [name for name in ask.missing if not await self._roster.knows(self._project, name)])
        issued = self._clock.now()
        opening = {"issued": issued.isoformat(), "deadline": (issued + timedelta(seconds=ask.deadline)).isoformat()}
        opening, resumed = await self._steps.opened(step, question, lambda: opening)
        issued, deadline = datetime.fromisoformat(opening["issued"]), datetime.fromisoformat(opening["deadline"])
        own = {name: ask.own(self._run, step, name) for name in ask.missing}
        tasks = {name: each["id"] for name, each in own.items()}
        before = ask.before.answers if ask.before is not None else ()
        largest = largest_update(ask.model, ask.masking, self._settings.largest_model)
        terms = Terms.of(ask, self._project, self._run, largest)
        rests = partial(self._roster.rests, self._project, run=self._run)
        collector = Collector(tasks, needed=ask.needed - len(before), terms=terms, rests=rests)
        phase = self._vitals.phase(ask.kind.value, step, collector.missing)
        known_open = self._open_steps.collecting(self._project, self._run, step)
        room = task_room_of(self._bus).step(self._project, self._run, self._settings.tasks)
        with phase, self._inbox.collecting(step, collector, ask.round), known_open as marks, room as take:
            if resumed:
                await self._inbox.recall(step)
            with BACKLOG.waiting(_EXCHANGES, self._clock) if ask.exchange else nullcontext():
                if ask.exchange:
                    await self._open_exchange(step, ask.missing, deadline, ask)
                await self._send(step, ask, own, issued, deadline, collector, marks, take)
                await collector.closed(self._clock, deadline, ask.grace, spare=ask.spare)
        await self._ledgers.keep(now=ask.privacy is not None)
        gathered = ask.gathered((*collector.answers.values(), *collector.failures.values()))
        whole = [] if ask.travels is None else [ask.travels] * sum(name not in ask.shorter for name in tasks)
        ways = [delta.ref for delta in (ask.deltas or ())[-1:]] * sum(ask.shorter.get(name, 0) > 0 for name in tasks)
        extras = list(ask.extras.values()) * len(tasks)
        count_bytes((*whole, *ways, *extras), collector.answers.values())
        self._tell_closed(step, ask, gathered)
        return gathered

    def tidy_later(self, step: str, *, results: bool = True, beside: int = 1) -> None:
        """Remove what a replayed step may have left, once the run is live. Of the last few steps, of as many as were
        open at once: those before have been tidied."""
        self._steps.when_live(self._purge(step, results=results), keep=_REPLAYED_STEPS_TIDIED * beside)

    async def _send(
        self, step: str, ask: Ask, own: _Own, issued: datetime, deadline: datetime, collector: Collector,
        marks: dict[str, str], take: Callable[[int], None],
    ) -> None:  # fmt: skip
        model = None if ask.travels is None else await self._resting(ask.travels, len(own))
        extras = {name: await self._resting(ref, len(own)) for name, ref in ask.extras.items()}
        ways = [each.model_copy(update={"ref": await self._resting(each.ref, len(own))}) for each in ask.deltas or ()]
        resting = replace(ask, model=model, encoded=None, extras=extras, deltas=tuple(ways))
        common = resting.task(self._project, self._run, self._workflow, step, issued, deadline)

        if ask.hands_in:
            await self._tell_open(step, tuple(own))

        async def send(name: str) -> None:
            more: dict[str, Any] = {} if ask.payload is None else {"payload": await ask.payload(name)}
            if self._terms is not None:
                more["terms"] = self._terms
            if ask.privacy is not None:
                more["ledger"] = await self._ledgers.newest(name)
            task = common.model_copy(update=own[name] | more)
            subject = TASK.of(project=task.project, participant=name, run=task.run, step=task.step)
            headers = inject() | beside(await self._ledgers.outbox(name))
            data = task.encode()
            take(len(data))
            sequence = await self._bus.publish(subject, data, headers=headers, message_id=task.id)
            marks[name] = mark_of(subject, sequence)
            told = headers | {TASK_MARK: marks[name]}
            region = self._roster.region_of(task.project, name)
            self._ledger.opened(task.project, name, task.run, task.step)
            down = Passed(bus_down=message_bytes(data, told))
            self._ledger.count(task.project, name, down, run=task.run, step=task.step)
            await self._bus.tell(TELL.of(region=region, project=task.project, participant=name), data, headers=told)

        await all_of(send(name) for name in own if name not in collector.answers and name not in collector.failures)

    async def _tell_open(self, step: str, names: tuple[str, ...]) -> None:
        """Tell aggregators for whom the step opens; a few messages for a great many. Whoever misses it asks."""
        subject = OPENS.of(project=self._project, run=self._run, step=step)
        for start in range(0, len(names), _TOLD_AT_ONCE):
            await self._bus.tell(subject, OpenFor(participants=names[start : start + _TOLD_AT_ONCE]).encode())

    async def _open_exchange(self, step: str, names: tuple[str, ...], deadline: datetime, ask: Ask) -> None:
        session = ExchangeJob(
            id="exchange", project=self._project, run=self._run, step=step, participants=names, deadline=deadline,
            patience=ask.patience, ring=None if ask.masking is None else ask.masking.ring.entries[AVERAGE],
        )  # fmt: skip
        subject = JOB.of(project=self._project, run=self._run, step=step, job=session.id)
        await self._bus.publish(subject, session.encode(), headers=inject(), message_id=f"{self._run}/{step}/exchange")

    async def _resting(self, ref: ObjectRef, tasks: int) -> ObjectRef:
        """The same object, in the store where it is too large to be in so many tasks."""
        if ref.size > self._settings.inline_limit or ref.size * tasks > self._settings.inline_total:
            return await self._objects.stored(ref)
        return ref

    def _tell_closed(self, step: str, ask: Ask, gathered: Gathered) -> None:
        met = len(gathered.answers) >= ask.needed
        missing = {failure.participant: failure.reason or failure.code for failure in gathered.failures}
        self._notices.audit(
            "step.close" if met else "step.quorum-missed", step, step=step, round=ask.round,
            answered=len(gathered.answers), asked=len(gathered.asked), needed=ask.needed,
            silent=list(gathered.silent), failed=missing,
        )  # fmt: skip
        if gathered.silent or missing:
            self._notices.event(
                "note", f"{step}/missing", round=ask.round, step=step, quorum=met,
                silent=list(gathered.silent), failed=missing,
            )  # fmt: skip

    async def payloads(self, step: str, gathered: Gathered) -> dict[str, bytes]:
        """The payloads of the step's answers, by participant: those at hand, and from the bus after a restart.

        Raises:
            RunFailure: NOT_FOUND when they are not on the bus any more.
        """
        found = {answer.participant: answer.payload for answer in gathered.answers if answer.payload is not None}
        wanted = {
            answer.participant: answer.payload_digest
            for answer in gathered.answers
            if answer.payload_digest is not None and answer.participant not in found
        }
        if wanted:
            pattern = RESULT.wildcard(project=self._project, run=self._run)
            for record in await self._bus.snapshot(_RESULTS, pattern):
                name = RESULT.parse(record.subject)["participant"]
                if name in wanted and (payload := _payload(record.data, wanted[name])) is not None:
                    found[name] = payload
                    del wanted[name]
        if wanted:
            raise RunFailure(
                ErrorCode.NOT_FOUND, f"step {step}: what {', '.join(sorted(wanted))} answered is not there any more"
            )
        return found

    def release(self, step: str) -> None:
        """The step's payloads are not needed any more. What a repeated attempt has left, the run's end removes."""
        self._steps.when_live(self._purge_results(step), keep=_REPLAYED_STEPS_TIDIED)

    async def _purge(self, step: str, *, results: bool) -> None:
        await self._bus.purge(_TASKS, TASK.wildcard(project=self._project, run=self._run, step=step))
        if results:
            await self._purge_results(step)

    async def _purge_results(self, step: str) -> None:
        await self._bus.purge(_RESULTS, RESULT.wildcard(project=self._project, run=self._run, step=step))


def _payload(data: bytes, digest: str) -> bytes | None:
    """The payload with this digest, of a result that was verified when it came."""
    try:
        payload = Result.decode(data).payload
    except HanseError as error:
        _LOG.warning("a stored result cannot be read: %s", error)
        return None
    return payload if payload is not None and hashlib.sha256(payload).hexdigest() == digest else None
