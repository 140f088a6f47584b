"""The verbs `gather` and `exchange`: a task to participants, and their answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hanse_coordinator.workflow.collector import Collector, Terms
from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.inbox import Inbox
from hanse_coordinator.workflow.notices import Notices
from hanse_coordinator.workflow.outcomes import Failure, Gathered
from hanse_coordinator.workflow.settings import WorkflowSettings
from hanse_coordinator.workflow.sizes import largest_update
from hanse_coordinator.workflow.steps import Steps, attempt_key
from hanse_coordinator.workflow.storage import RunObjects
from hanse_coordinator.workflow.traffic import count_bytes
from hanse_coordinator.workflow.vitals import BACKLOG, RunVitals
from hanse_coordinator.workflow.waiting import all_of
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import ExchangeJob, Masking, ObjectRef, Outcome, PrivacyTerms, Task, TaskKind
from hanse_fabric.names import derive_id
from hanse_fabric.subjects import JOB, RESULT, TASK, Stream
from hanse_fabric.telemetry import inject
from hanse_privacy.ring.plan import AVERAGE

_TASKS: Stream = TASK.stream or Stream("")
_RESULTS: Stream = RESULT.stream or Stream("")
_REPLAYED_STEPS_TIDIED = 4
_EXCHANGES = "exchanges"
_FINAL = frozenset({ErrorCode.INVALID_INPUT.code})
"""Codes of failures that would be the same again: of a study, whose steps are functions of a site's files."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What `gather` sends, and to whom.

    Attributes:
        seed: gives each participant's seed.
        needed: the quorum: how many good answers the step needs.
        grace: seconds to wait on after the quorum; None: until the deadline.
        deadline: seconds from the opening of each attempt.
        retries: how often those who are missing are asked again before the run fails.
    """

    kind: TaskKind
    round: int
    to: tuple[str, ...]
    config: dict[str, Any]
    seed: Callable[[str], int]
    model: ObjectRef | None
    needed: int
    grace: float | None
    deadline: float
    retries: int
    enough: int = 0
    """Fewer than `needed`, that whoever asks can go on with after the last attempt, in another way; 0: no fewer."""
    peers: int = 0
    """How many take part in the round, for the sites' policies; 0: those who are asked."""
    exchange: bool = False
    """Whether aggregators sum small arrays among those who are asked, while the step is open. There is one attempt, and
    it is for whoever asks to see who is missing."""
    patience: float | None = None
    """Seconds that each waits for a sum, where there is such a limit."""
    together: float | None = None
    """Where all must answer: seconds that the step stays open after a first one has told that it waited for others in
    vain. A failure of another kind ends it at once."""
    masking: Masking | None = None
    """How the answers are to be masked."""
    privacy: PrivacyTerms | None = None
    """The noise that the sites add."""
    extras: Mapping[str, ObjectRef] = field(default_factory=dict)
    """What the algorithm's sites need beside the model."""
    answered: tuple[str, ...] = ()
    """Extras that each answer must have."""
    info: tuple[str, ...] = ()
    """Numbers that each answer must have."""
    trained: Mapping[str, int] | None = None
    """The last round in which each participant's answer counted; 0 for those who are not in it. None: not told."""
    payload: Callable[[str], Awaitable[bytes]] | None = None
    """Gives what a privacy protocol has for each participant."""
    partial: bool = False
    """Whether whoever asks goes on with however few have answered after the last attempt."""
    beside: int = 1
    """How many steps of the run are open at once."""
    keep: bool = False
    """Whether the answers' payloads, which may be large, stay on the bus instead of in the journal, until
    `RunContext.release`."""


class Gathering:
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
        project: str,
        run: str,
        workflow: str,
    ) -> None:
        self._bus, self._clock, self._steps = bus, clock, steps
        self._inbox, self._notices, self._objects, self._settings = inbox, notices, objects, settings
        self._vitals, self._project, self._run, self._workflow = vitals, project, run, workflow

    async def gather(self, step: str, ask: Ask) -> Gathered:
        """See `RunContext.gather`."""
        gathered = Gathered(asked=ask.to)
        if ask.exchange:
            return await self._attempt(step, ask, gathered, ask.to)
        for attempt in range(1, ask.retries + 2):
            refused = {failure.participant for failure in gathered.failures if is_final(ask.kind, failure)}
            had = {answer.participant for answer in gathered.answers}
            missing = tuple(name for name in ask.to if name not in had and name not in refused)
            if len(had) + len(missing) < ask.needed:
                break
            gathered = await self._attempt(attempt_key(step, attempt), ask, gathered, missing)
            if len(gathered.answers) >= ask.needed:
                return gathered
        if ask.partial or 0 < ask.enough <= len(gathered.answers):
            return gathered
        raise RunFailure(
            ErrorCode.QUORUM,
            f"step {step}: {len(gathered.answers)} of {len(ask.to)} participants answered, {ask.needed} were needed: "
            f"{gathered.explain()}",
            hint="see these sites' logs, or change participants.quorum or participants.deadline",
        )

    async def _attempt(self, step: str, ask: Ask, before: Gathered, missing: tuple[str, ...]) -> Gathered:
        closed = self._steps.recorded(step)
        if closed is not None:
            gathered = Gathered.of(closed)
            self._inbox.remember(step, set(gathered.asked) - set(gathered.silent))
            self.tidy_later(step, results=not ask.keep, beside=ask.beside)
            return gathered
        await self._steps.begin()
        opened = self._steps.opened(step)
        if opened is None:
            issued = self._clock.now()
            deadline = issued + timedelta(seconds=ask.deadline)
            await self._steps.record("opened", step, {"issued": issued.isoformat(), "deadline": deadline.isoformat()})
        else:
            issued, deadline = datetime.fromisoformat(opened["issued"]), datetime.fromisoformat(opened["deadline"])
        tasks = {name: derive_id(self._run, step, name) for name in missing}
        largest = largest_update(ask.model, ask.masking, self._settings.largest_model)
        terms = Terms(ask.kind, self._project, self._run, largest, ask.masking, ask.answered, ask.info)
        collector = Collector(tasks, needed=ask.needed - len(before.answers), terms=terms)
        phase = self._vitals.phase(ask.kind.value, step, collector.missing)
        with phase, self._inbox.collecting(step, collector, ask.round):
            if opened is not None:
                await self._inbox.recall(step)
            with BACKLOG.waiting(_EXCHANGES) if ask.exchange else nullcontext():
                if ask.exchange:
                    await self._open_exchange(step, missing, deadline, ask)
                await self._send(step, ask, tasks, issued, deadline, collector)
                await collector.closed(self._clock, deadline, ask.grace, together=ask.together)
        gathered = _merged(ask.to, before, collector)
        await self._steps.close(step, (gathered.digested() if ask.keep else gathered).body())
        count_bytes((ask.model, *ask.extras.values()), len(tasks), collector.answers.values())
        self._tell_closed(step, ask, gathered)
        self._steps.later(self._purge(step, results=not ask.keep))
        return gathered

    def tidy_later(self, step: str, *, results: bool = True, beside: int = 1) -> None:
        """Remove what a replayed step may have left, once the run is live. Of the last few steps, of as many as were
        open at once: those before have been tidied."""
        self._steps.when_live(self._purge(step, results=results), keep=_REPLAYED_STEPS_TIDIED * beside)

    async def _send(
        self, step: str, ask: Ask, tasks: dict[str, str], issued: datetime, deadline: datetime, collector: Collector
    ) -> None:
        model = None if ask.model is None else await self._resting(ask.model, len(tasks))
        extras = {name: await self._resting(ref, len(tasks)) for name, ref in ask.extras.items()}
        common = Task(
            id="0" * 32, project=self._project, run=self._run, step=step, participant="all", workflow=self._workflow,
            kind=ask.kind, round=ask.round, config=ask.config, seed=0, model=model, peers=ask.peers or len(ask.to),
            issued_at=issued, deadline=deadline, masking=ask.masking, privacy=ask.privacy, extras=extras or None,
        )  # fmt: skip

        async def send(name: str) -> None:
            own: dict[str, Any] = {"id": tasks[name], "participant": name, "seed": ask.seed(name)}
            if ask.trained is not None:
                own["trained"] = ask.trained.get(name, 0)
            if ask.payload is not None:
                own["payload"] = await ask.payload(name)
            task = common.model_copy(update=own)
            subject = TASK.of(project=task.project, participant=name, run=task.run, step=task.step)
            await self._bus.publish(subject, task.encode(), headers=inject(), message_id=task.id)

        await all_of(send(name) for name in tasks if name not in collector.answers and name not in collector.failures)

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
            return await self._objects.place(ref)
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

    async def _purge(self, step: str, *, results: bool) -> None:
        await self._bus.purge(_TASKS, TASK.wildcard(project=self._project, run=self._run, step=step))
        if results:
            await self._bus.purge(_RESULTS, RESULT.wildcard(project=self._project, run=self._run, step=step))


def is_final(kind: TaskKind, failure: Failure) -> bool:
    """Whether it is in vain to ask this participant again."""
    return failure.outcome is Outcome.REFUSED or (kind is TaskKind.STUDY and failure.code in _FINAL)


def _merged(asked: tuple[str, ...], before: Gathered, collector: Collector) -> Gathered:
    answers = {answer.participant: answer for answer in before.answers} | collector.answers
    failures = {failure.participant: failure for failure in before.failures} | collector.failures
    return Gathered(
        asked=asked,
        answers=tuple(answers[name] for name in sorted(answers)),
        failures=tuple(failures[name] for name in sorted(failures) if name not in answers),
    )
