"""The verbs that a workflow is written in: gather, reduce, publish, note (and `participants`, who is there).

Each verb has a step key that is the same at every replay. Its outcome is journalled before it is returned; when the
journal has the outcome already, it is returned and nothing is done. So a workflow is an ordinary async function, and
one that is started again from its top goes on where it stood.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hanse_coordinator.workflow.collector import Collector, Terms
from hanse_coordinator.workflow.failures import Paused, RunFailure
from hanse_coordinator.workflow.inbox import Inbox
from hanse_coordinator.workflow.journal import Journal
from hanse_coordinator.workflow.notices import Notices
from hanse_coordinator.workflow.outcomes import Answer, Gathered, Published, Reduction
from hanse_coordinator.workflow.progress import ProgressRelay
from hanse_coordinator.workflow.reductions import Reductions, without
from hanse_coordinator.workflow.roster import Roster
from hanse_coordinator.workflow.settings import WorkflowSettings
from hanse_coordinator.workflow.storage import RunObjects
from hanse_coordinator.workflow.waiting import all_of, first_of
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.job import Job
from hanse_fabric.messages import (
    ExchangeJob,
    JobKind,
    Lineage,
    ObjectRef,
    Outcome,
    PublishModel,
    ReduceJob,
    RegistryReply,
    Task,
    TaskKind,
    UpdateInput,
)
from hanse_fabric.names import derive_id
from hanse_fabric.subjects import EXCHANGE, EXCHANGED, JOB, PUBLISH_MODEL, REDUCED, RESULT, TASK, UPDATE, Stream
from hanse_fabric.telemetry import inject, span
from hanse_fabric.telemetry.catalogue import ROUND_SECONDS, ROUNDS

_LOG = logging.getLogger(__name__)
_TASKS: Stream = TASK.stream or Stream("")
_RESULTS: Stream = RESULT.stream or Stream("")
_SIZE_SLACK = 64 << 10


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
    peers: int = 0
    """How many take part in the round, for the sites' policies; 0: those who are asked."""
    exchange: bool = False
    """Whether aggregators sum small arrays among those who are asked, while the step is open."""


class RunContext:
    """A run in this coordinator's hands. Made by the supervisor; workflows see only the verbs and `job`."""

    def __init__(
        self,
        *,
        bus: Bus,
        clock: Clock,
        settings: WorkflowSettings,
        project: str,
        run: str,
        job: Job,
        journal: Journal,
        roster: Roster,
        notices: Notices,
        objects: RunObjects,
        progressed: Callable[..., None],
        pause: asyncio.Event,
    ) -> None:
        self.project, self.run, self.job = project, run, job
        self._bus, self._clock, self._settings = bus, clock, settings
        self._journal, self._roster, self._notices, self._objects = journal, roster, notices, objects
        self._progressed = progressed
        self._inbox = Inbox(bus, roster, notices, project=project, run=run)
        self._progress = ProgressRelay(bus, notices, project=project, run=run)
        self._reductions = Reductions(bus, clock, project=project, run=run, limits=settings.reduce)
        self._reductions.recovering = journal.replaying
        self._live = asyncio.Event()
        self._to_purge: list[str] = []
        self._background: set[asyncio.Task[None]] = set()
        self._held: list[tuple[str, str, int, dict[str, Any]]] = []
        self._last_published = ""
        self._last_state: list[ObjectRef] = []
        self._pause = pause

    async def follow(self) -> None:
        """Receive what others send to this run, once the workflow has come to a step that is not recorded yet."""
        await self._live.wait()
        await first_of(self._inbox.follow(), self._reductions.follow(), self._progress.follow())

    async def settle(self) -> None:
        """Wait for what was started in the background: notices, purges."""
        self._tell_held()
        while self._background:
            await asyncio.gather(*self._background)
        await self._notices.flush()

    async def participants(self, step: str) -> tuple[str, ...]:
        """Enrolled participants that are there, sorted; waits for the job's minimum.

        Raises:
            RunFailure: QUORUM when they do not come within the job's patience.
        """
        closed = self._recorded(step)
        if closed is not None:
            return tuple(closed["present"])
        await self._begin()
        wanted = self.job.participants
        until = self._clock.now() + timedelta(seconds=wanted.patience)
        while len(there := self._roster.present(self.project, self._settings.present_within)) < wanted.minimum:
            left = (until - self._clock.now()).total_seconds()
            if left <= 0:
                raise RunFailure(
                    ErrorCode.QUORUM,
                    f"participants: {len(there)} present ({', '.join(there) or 'none'}) after {wanted.patience:g} s, "
                    f"the job's minimum is {wanted.minimum}",
                    hint="start the sites' datapods, or lower participants.minimum",
                )
            # Presence ages without any message, so look again now and then.
            await first_of(self._roster.changed(), self._clock.sleep(min(left, 10.0)), self._pause.wait())
            self._check_pause()
        self._progressed(state="running")
        await self._close(step, {"present": list(there)})
        return there

    async def gather(self, step: str, ask: Ask) -> Gathered:
        """Send a task to participants and collect their answers, until all have answered or the deadline passed with
        the quorum met. When the quorum is missed, those who are missing are asked again.

        Raises:
            RunFailure: QUORUM, naming who was silent and who failed for what reason.
        """
        gathered = Gathered(asked=ask.to)
        for attempt in range(1, ask.retries + 2):
            refused = {failure.participant for failure in gathered.failures if failure.outcome is Outcome.REFUSED}
            had = {answer.participant for answer in gathered.answers}
            missing = tuple(name for name in ask.to if name not in had and name not in refused)
            if len(had) + len(missing) < ask.needed:
                break
            gathered = await self._attempt(attempt_key(step, attempt), ask, gathered, missing)
            if len(gathered.answers) >= ask.needed:
                return gathered
        raise RunFailure(
            ErrorCode.QUORUM,
            f"step {step}: {len(gathered.answers)} of {len(ask.to)} participants answered, {ask.needed} were needed: "
            f"{gathered.explain()}",
            hint="see these sites' logs, or change participants.quorum or participants.deadline",
        )

    async def exchange(self, step: str, ask: Ask) -> Gathered:
        """`gather`, with a session in which the participants sum small arrays among each other *inside* their tasks
        (`hanse_fabric.exchange`). All must contribute to every sum, so the quorum should be all of them.

        Raises:
            RunFailure: as `gather`.
        """
        return await self.gather(step, replace(ask, exchange=True))

    async def reduce(
        self,
        step: str,
        *,
        round: int,  # noqa: A002 - the messages' word
        answers: tuple[Answer, ...],
        model: ObjectRef | None,
        state: dict[str, ObjectRef],
        needed: int,
    ) -> Reduction:
        """Have the answers' updates reduced to the next model. Updates that are tampered with or not finite are left
        out, as long as `needed` remain.

        Raises:
            RunFailure: QUORUM when too few remain; TIMEOUT when no aggregator answers.
        """
        closed = self._recorded(step)
        if closed is not None:
            outcome = Reduction.of(closed)
            self._last_state = [*outcome.state.values()]
            return outcome
        await self._begin()
        job = self._reduce_job(step, round, answers, model, state)
        refused: dict[str, str] = {}
        for attempt in range(1, len(answers) + 2):
            key = attempt_key(step, attempt)
            left = without(job.updates, set(refused))
            if len(left) < max(needed, 1):
                raise RunFailure(
                    ErrorCode.QUORUM,
                    f"step {step}: {len(left)} usable updates, {needed} were needed; refused: "
                    + "; ".join(f"{name}: {reason}" for name, reason in refused.items()),
                )
            output = f"models/{self.project}/{self.run}/{key}"
            reduced = await self._reductions.reduce(
                job.model_copy(update={"id": key, "updates": left, "output_key": output})
            )
            if not reduced.refused:
                break
            for refusal in reduced.refused:
                refused[refusal.participant] = refusal.reason
                self._tell_refused(step, round, refusal.participant, refusal.code, refusal.reason)
        self._reductions.recovering = False
        if "model" not in reduced.outputs:
            raise RunFailure(ErrorCode.INTERNAL, f"reduction {step}: the outcome has no output 'model'")
        outcome = Reduction(
            model=reduced.outputs["model"],
            state={name: ref for name, ref in sorted(reduced.outputs.items()) if name != "model"},
            participants=tuple(update.participant for update in left),
            refused=tuple(sorted(refused)),
        )
        await self._close(step, outcome.body())
        self._last_state = [*outcome.state.values()]
        self._later(self._objects.forget([*self._succeeded(answers, model, state)]))
        return outcome

    async def publish(
        self, step: str, *, model: ObjectRef, lineage: Lineage, metrics: dict[str, float], final: bool
    ) -> Published:
        """Record a model version in the registry. Publishing twice is storing once.

        Raises:
            RunFailure: what the registry refused it for, or UNAVAILABLE when it does not answer.
        """
        closed = self._recorded(step)
        if closed is not None:
            published = Published.of(closed)
        else:
            await self._begin()
            request = PublishModel(
                project=self.project, model=model, architecture=self.job.model, lineage=lineage, metrics=metrics,
                final=final,
            )  # fmt: skip
            published = await self._published(request)
            await self._close(step, published.body())
        self._last_published = published.digest
        self._progressed(version=published.version, digest=published.digest)
        return published

    def note(self, kind: str, about: str, *, round: int, **data: Any) -> None:  # noqa: A002
        """Tell those who watch. Steps that are replayed are not told again."""
        self._held.append((kind, about, round, data))
        if self._live.is_set():
            self._tell_held()
        if kind == "round-finished":
            ROUNDS.add(project=self.project)
            self._progressed(round=round, metrics=data.get("metrics"))

    async def initial_model(self, digest: str) -> ObjectRef:
        """The owner's uploaded model: verified against its digest, with the digests of its leaves."""
        step = "initial-model"
        closed = self._recorded(step)
        if closed is not None:
            return ObjectRef.model_validate(closed)
        await self._begin()
        ref = await self._objects.verified(digest, largest=self._settings.largest_model)
        await self._close(step, ref.model_dump(mode="json", exclude_defaults=True))
        return ref

    def largest_update(self, model: ObjectRef | None) -> int:
        """How large an update to `model` may be, in bytes."""
        return self._settings.largest_model if model is None else model.size * 11 // 10 + _SIZE_SLACK

    async def _attempt(self, step: str, ask: Ask, before: Gathered, missing: tuple[str, ...]) -> Gathered:
        closed = self._recorded(step)
        if closed is not None:
            gathered = Gathered.of(closed)
            self._inbox.remember(step, set(gathered.asked) - set(gathered.silent))
            self._to_purge = [*self._to_purge[-3:], step]
            return gathered
        await self._begin()
        opened = self._journal.take_opened(step)
        if opened is None:
            issued = self._clock.now()
            deadline = issued + timedelta(seconds=ask.deadline)
            await self._append("opened", step, {"issued": issued.isoformat(), "deadline": deadline.isoformat()})
        else:
            issued, deadline = datetime.fromisoformat(opened["issued"]), datetime.fromisoformat(opened["deadline"])
        tasks = {name: derive_id(self.run, step, name) for name in missing}
        terms = Terms(ask.kind, self.project, self.run, self.largest_update(ask.model))
        had = len(before.answers)
        collector = Collector(tasks, needed=ask.needed - had, terms=terms)
        with self._inbox.collecting(step, collector, ask.round):
            if opened is not None:
                await self._inbox.recall(step)
            if ask.exchange:
                await self._open_exchange(step, missing, deadline)
            await self._send(step, ask, tasks, issued, deadline, collector)
            await collector.closed(self._clock, deadline, ask.grace)
        gathered = _merged(ask.to, before, collector)
        await self._close(step, gathered.body())
        self._tell_closed(step, ask, gathered)
        self._later(self._purge_step(step))
        return gathered

    async def _send(
        self, step: str, ask: Ask, tasks: dict[str, str], issued: datetime, deadline: datetime, collector: Collector
    ) -> None:
        model = ask.model
        if model is not None and model.inline is not None and self._too_much_inline(model, len(tasks)):
            model = await self._objects.place(model)
        common = Task(
            id="0" * 32, project=self.project, run=self.run, step=step, participant="all", workflow=self.job.workflow,
            kind=ask.kind, round=ask.round, config=ask.config, seed=0, model=model, peers=ask.peers or len(ask.to),
            issued_at=issued, deadline=deadline,
        )  # fmt: skip
        await all_of(
            self._send_task(common.model_copy(update={"id": task, "participant": name, "seed": ask.seed(name)}))
            for name, task in tasks.items()
            if name not in collector.answers and name not in collector.failures
        )

    async def _open_exchange(self, step: str, names: tuple[str, ...], deadline: datetime) -> None:
        session = ExchangeJob(
            id="exchange", project=self.project, run=self.run, step=step, participants=names, deadline=deadline
        )
        subject = JOB.of(project=self.project, run=self.run, step=step, job=session.id)
        await self._bus.publish(subject, session.encode(), headers=inject(), message_id=f"{self.run}/{step}/exchange")

    async def _send_task(self, task: Task) -> None:
        subject = TASK.of(project=task.project, participant=task.participant, run=task.run, step=task.step)
        await self._bus.publish(subject, task.encode(), headers=inject(), message_id=task.id)

    def _too_much_inline(self, model: ObjectRef, tasks: int) -> bool:
        return model.size > self._settings.inline_limit or model.size * tasks > self._settings.inline_total

    def _reduce_job(
        self,
        step: str,
        round_number: int,
        answers: tuple[Answer, ...],
        model: ObjectRef | None,
        state: dict[str, ObjectRef],
    ) -> ReduceJob:
        by_examples = self.job.weighting == "examples"
        updates = tuple(
            UpdateInput(
                participant=answer.participant,
                weight=float(answer.examples) if by_examples and answer.examples else 1.0,
                ref=answer.update,
            )
            for answer in sorted(answers, key=lambda answer: answer.participant)
            if answer.update is not None
        )
        return ReduceJob(
            id=step, project=self.project, run=self.run, step=step, kind=JobKind.WHOLE, round=round_number,
            strategy=self.job.strategy, updates=updates, model=model, state=state,
            output_key=f"models/{self.project}/{self.run}/{step}",
        )  # fmt: skip

    def _succeeded(
        self, answers: tuple[Answer, ...], model: ObjectRef | None, state: dict[str, ObjectRef]
    ) -> Iterator[ObjectRef]:
        """What a reduction leaves behind: its updates, the former state, and a former model that is no version."""
        yield from (answer.update for answer in answers if answer.update is not None)
        yield from state.values()
        ours = f"models/{self.project}/{self.run}/"
        if model is not None and (model.key or "").startswith(ours) and model.digest != self._last_published:
            yield model

    async def _published(self, request: PublishModel) -> Published:
        subject, data = PUBLISH_MODEL.of(project=self.project), request.encode()
        until = self._clock.now() + timedelta(seconds=self._settings.publish_timeout)
        while True:
            try:
                reply = RegistryReply.decode(await self._bus.request(subject, data, timeout=10.0))
            except HanseError as error:
                if error.code not in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE):
                    raise
                if self._clock.now() >= until:
                    raise RunFailure(
                        ErrorCode.UNAVAILABLE,
                        f"publish: the model registry did not answer for {self._settings.publish_timeout:g} s",
                        hint="see that the model registry is running and ready",
                    ) from None
                continue
            if reply.version is not None:
                return Published(version=reply.version.version, digest=reply.version.digest)
            code = ErrorCode.of(reply.code)
            if code not in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE) or self._clock.now() >= until:
                raise RunFailure(code, f"publish: {reply.message}")
            await self._clock.sleep(0.5)

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

    def _tell_refused(self, step: str, round_number: int, name: str, code: str, reason: str) -> None:
        about = f"{step}/{name}"
        self._notices.event("refused", about, round=round_number, step=step, participant=name, code=code, reason=reason)
        self._notices.audit("update.refuse", about, subject=f"participant:{name}", step=step, code=code, reason=reason)

    async def _begin(self) -> None:
        """Called by each verb that has work to do: here the run may pause; here replay ends."""
        self._check_pause()
        if not self._live.is_set():
            self._live.set()
            self._tell_held()
            for step in self._to_purge:
                self._later(self._purge_step(step))
            self._to_purge.clear()

    def _recorded(self, step: str) -> dict[str, Any] | None:
        closed = self._journal.take_closed(step)
        if closed is not None:
            # What was noted before this step was closed had been told before it was.
            self._held.clear()
        return closed

    def _tell_held(self) -> None:
        for kind, about, round_number, data in self._held:
            self._notices.event(kind, about, round=round_number, **data)
        self._held.clear()

    def _check_pause(self) -> None:
        if self._pause.is_set():
            raise Paused

    async def _append(self, kind: Any, step: str, body: dict[str, Any]) -> None:
        await self._journal.append(kind, step, body)

    async def _close(self, step: str, body: dict[str, Any]) -> None:
        # What was told up to here is durable before the step is: a replay does not tell it again.
        await self._notices.flush()
        await self._journal.append("closed", step, body)

    async def _purge_step(self, step: str) -> None:
        await self._bus.purge(_TASKS, TASK.wildcard(project=self.project, run=self.run, step=step))
        await self._bus.purge(_RESULTS, RESULT.wildcard(project=self.project, run=self.run, step=step))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._tolerant(work))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _tolerant(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except HanseError as error:
            # Tidying never stops a run: the end of the run tidies everything once more.
            _LOG.warning("run %s: tidying failed: %s", self.run, error)

    async def tidy(self) -> None:
        """Remove what only a run that goes on would need. For the end of the run."""
        await self._tolerant(self._purge_run())
        await self._tolerant(self._objects.forget(self._last_state))
        await self._tolerant(self._objects.abort_uploads(self.run))

    async def _purge_run(self) -> None:
        for subject in (TASK, JOB, RESULT, UPDATE, EXCHANGE, EXCHANGED, REDUCED):
            if subject.stream is not None:
                await self._bus.purge(subject.stream, subject.wildcard(project=self.project, run=self.run))

    @contextmanager
    def round(self, number: int) -> Iterator[None]:
        """What happens inside is one trace, here and wherever messages carry it."""
        started = self._clock.now()
        with span("round", run=self.run, round=number):
            yield
        if self._live.is_set():
            ROUND_SECONDS.observe((self._clock.now() - started).total_seconds())

    async def abandon(self) -> None:
        """Stop the background work at once: another coordinator has the run, or this one is stopping."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


def attempt_key(step: str, attempt: int) -> str:
    """The key of an attempt at a step; the first has the step's own."""
    return step if attempt == 1 else f"{step}-a{attempt}"


def _merged(asked: tuple[str, ...], before: Gathered, collector: Collector) -> Gathered:
    answers = {answer.participant: answer for answer in before.answers} | collector.answers
    failures = {failure.participant: failure for failure in before.failures} | collector.failures
    return Gathered(
        asked=asked,
        answers=tuple(answers[name] for name in sorted(answers)),
        failures=tuple(failures[name] for name in sorted(failures) if name not in answers),
    )
