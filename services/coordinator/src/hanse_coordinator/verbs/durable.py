"""The verbs of a run on the bus, durable: the adapter of `hanse_workflows.verbs` for coordinators."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hanse_coordinator.refusals import count_refusal
from hanse_coordinator.runs.journal import Journal
from hanse_coordinator.runs.roster import Roster
from hanse_coordinator.runs.settings import WorkflowSettings
from hanse_coordinator.verbs.ending import purge_run, tell_sites
from hanse_coordinator.verbs.inbox import Inbox
from hanse_coordinator.verbs.ledgers import Ledgers
from hanse_coordinator.verbs.mask_sums import MaskSums, announced
from hanse_coordinator.verbs.objects import RunObjects
from hanse_coordinator.verbs.publishing import publish
from hanse_coordinator.verbs.reduction_jobs import ReductionJobs
from hanse_coordinator.verbs.shared_mask_sums import SharedMaskSums, announced_group
from hanse_coordinator.verbs.steps import Steps
from hanse_coordinator.verbs.tasks import TaskSteps
from hanse_coordinator.watching.notices import Notices
from hanse_coordinator.watching.progress import ProgressRelay
from hanse_coordinator.watching.vitals import RunVitals
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.messages import (
    Compensators,
    Lineage,
    MaskAnswer,
    ModelVersion,
    ObjectRef,
    PublishModel,
    Reduced,
    ReduceJob,
    SealedSeed,
    StudyJob,
)
from hanse_fabric.records import Bucket
from hanse_fabric.telemetry import ALONE, span
from hanse_fabric.telemetry.catalogue import ROUND_SECONDS, ROUNDS
from hanse_fabric.waiting import first_of, stop
from hanse_schemas.job import Job
from hanse_schemas.prepare import Prepare
from hanse_workflows.ask import Ask
from hanse_workflows.attendance import Attendance, EnrolledKeys
from hanse_workflows.failures import require_finite
from hanse_workflows.outcomes import Gathered, Published
from hanse_workflows.quorum import too_few_present
from hanse_workflows.verbs import Body

if TYPE_CHECKING:
    from opentelemetry.context import Context

_LOOK_AGAIN_S = 10.0
"""Presence ages without any message, so it is looked at again now and then."""
_REPLAYED_FORGOTTEN = 4
"""What was forgotten in the last few of a replay may not be gone; what before, is."""


class DurableVerbs:
    """A run in this coordinator's hands. Made by the supervisor; workflows see `hanse_workflows.Verbs`."""

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
        models: Bucket[ModelVersion],
        progressed: Callable[..., None],
        pause: asyncio.Event,
        problem: dict[str, Any] | None = None,
        terms: str | None = None,
        asked_by: Context | None = None,
    ) -> None:
        self._problem = problem
        self.project, self.run, self.job, self.asked_by = project, run, job, asked_by
        self._bus, self._clock, self._settings = bus, clock, settings
        self._roster, self._notices, self._objects, self._models = roster, notices, objects, models
        self._progressed = progressed
        self.vitals = RunVitals(project, run, clock)
        self.steps = Steps(journal, notices, run=run, pause=pause)
        self.binds = self.steps.binds
        self.of_first_release, self.leaves = journal.of_first_release, False
        ledgers = Ledgers(bus, project)
        self._inbox = Inbox(bus, roster, notices, ledgers=ledgers, project=project, run=run)
        self._progress = ProgressRelay(bus, notices, project=project, run=run)
        self._reduction_jobs = ReductionJobs(bus, clock, project=project, run=run, limits=settings.reduce)
        self._masks = MaskSums(bus, clock, notices, project=project, run=run, patience=settings.reduce.patience)
        self._shared_masks = SharedMaskSums(
            bus, clock, notices, project=project, run=run, patience=settings.reduce.patience
        )
        if journal.replaying:
            for requests in (self._reduction_jobs.requests, self._masks.requests):
                requests.recover(lasting=job.study is not None)
        self._tasks = TaskSteps(
            bus, clock, self.steps, inbox=self._inbox, notices=notices, objects=objects, settings=settings,
            vitals=self.vitals, ledgers=ledgers, roster=roster, project=project, run=run, workflow=job.workflow,
            terms=terms,
        )  # fmt: skip
        self._attendance = Attendance(self.steps.once)
        self._enrolled = EnrolledKeys(self.steps.once)
        self._there: tuple[str, ...] = ()
        self._warnings: set[str] = set()
        self._going_out: set[str] = set()  # digests: what the registry has, or is asked to take, is never removed here
        self._publishing: tuple[asyncio.Event, asyncio.Task[None]] | None = None
        self._going: deque[list[ObjectRef]] = deque(maxlen=_REPLAYED_FORGOTTEN)

    # Recorded under a key.

    async def once(
        self,
        key: str,
        asked: Mapping[str, Any],
        do: Callable[[], Awaitable[Body]],
        *,
        covers: tuple[str, ...] = (),
        beside: int = 1,
    ) -> Body:
        def replayed(_: Body) -> None:
            for former in covers:
                self.steps.passed(former)
                self._tasks.tidy_later(former, beside=beside)

        return await self.steps.once(key, asked, do, replayed=replayed)

    async def participants(self, key: str) -> tuple[str, ...]:
        async def look() -> tuple[str, ...]:
            with self.vitals.phase("participants", key, lambda: self._roster.absent(self.project)):
                there = await self._enough_present()
            self._progressed(state="running")
            return there

        self._there = await self._attendance.at(key, look)
        return self._there

    async def _enough_present(self) -> tuple[str, ...]:
        wanted = self.job.participants
        until = self._clock.now() + timedelta(seconds=wanted.patience)
        while len(there := self._roster.present(self.project)) < wanted.minimum:
            left = (until - self._clock.now()).total_seconds()
            if left <= 0:
                raise too_few_present(there, wanted)
            await first_of(self._roster.changed(), self._clock.sleep(min(left, _LOOK_AGAIN_S)), self.steps.paused())
            self.steps.check_pause()
        return there

    async def ask(self, key: str, ask: Ask) -> Gathered:
        return await self._tasks.ask(key, ask)

    async def enrolled(self, key: str) -> dict[str, bytes]:
        return await self._enrolled.at(key, lambda: self._roster.keys_of(self.project))

    async def compensator(self) -> bytes:
        async def look() -> Body:
            return {"key": (await announced(self._bus)).hex()}

        return bytes.fromhex((await self.steps.once("compensator", {"compensator": "key"}, look))["key"])

    async def compensators(self, key: str, names: tuple[str, ...], needed: int) -> Compensators:
        async def look() -> Body:
            step = timedelta(seconds=self.job.participants.deadline)
            found = await announced_group(self._bus, names, needed, self._clock.now(), step)
            return found.model_dump(mode="json", exclude_none=True)

        return Compensators.model_validate(
            await self.steps.once(key, {"compensators": list(names), "needed": needed}, look)
        )

    async def initial_model(self, digest: str) -> ObjectRef:
        async def verify() -> Body:
            ref = await self._objects.verified(digest, largest=self._settings.largest_model)
            return ref.model_dump(mode="json", exclude_defaults=True)

        return ObjectRef.model_validate(await self.steps.once("initial-model", {"model": digest}, verify))

    async def publish(
        self,
        key: str,
        *,
        model: ObjectRef,
        lineage: Lineage,
        metrics: dict[str, float],
        final: bool,
        best: bool = False,
    ) -> None:
        await self.published()
        request = PublishModel(
            project=self.project, model=model, architecture=self.job.model, lineage=lineage, metrics=metrics,
            final=final, best=best, problem=self._problem_of_model(),
        )  # fmt: skip

        async def ask() -> Body:
            with self.vitals.phase("publish", key):
                return (
                    await publish(request, bus=self._bus, clock=self._clock, timeout=self._settings.publish_timeout)
                ).body()

        def told(body: Body) -> None:
            version = Published.of(body)
            self._progressed(version=version.version, digest=version.digest)
            if best:
                self._progressed(best=version.version)

        self._going_out.add(model.digest)
        self.leaves = True
        needed = asyncio.Event()
        going = self.steps.beside(key, {"publish": request}, ask, needed=needed, told=told)
        if going is not None:
            self._publishing = needed, going
        if final:
            await self.published()

    async def published(self) -> None:
        """Return once the last version is recorded.

        Raises:
            RunFailure: as `publish`.
        """
        if self._publishing is not None:
            needed, going = self._publishing
            needed.set()
            await asyncio.shield(going)  # who is cancelled meanwhile leaves it to the run's end
            self._publishing = None

    def _problem_of_model(self) -> dict[str, Any] | None:
        """What the run's models are for; and what raw columns become for them, once that was found."""
        fitted = self.job.prepare.fitted if isinstance(self.job.prepare, Prepare) else None
        if self._problem is None or fitted is None:
            return self._problem
        return self._problem | {"preparation": fitted.model_dump(mode="json")}

    # Repeatable, and not recorded.

    async def combine(self, key: str, asked: Mapping[str, Any], job: ReduceJob | StudyJob) -> Reduced:
        place = self.steps.job_id(job.output_key if isinstance(job, StudyJob) else key, asked)
        names = {"id": self.steps.job_id(key, asked), "output_key": f"models/{self.project}/{self.run}/{place}"}
        named = job.model_copy(update=names)
        with self.vitals.phase("compute" if isinstance(job, StudyJob) else "reduce", key):
            reduced = await self._reduction_jobs.outcome(named)
        if not reduced.refused:
            self._reduction_jobs.requests.recovered()
        if reduced.warning and reduced.warning not in self._warnings:
            # The owner is told, once, of a device that an aggregator should have used and could not.
            self._warnings.add(reduced.warning)
            round_number = job.round if isinstance(job, ReduceJob) else 0
            about, step = f"{job.step}/device", job.step
            self._notices.event("note", about, round=round_number, step=step, warning=reduced.warning)
        return reduced

    async def mask_sum(
        self,
        session: str,
        round: int,  # noqa: A002
        members: tuple[SealedSeed, ...],
        compensators: Compensators | None = None,
    ) -> MaskAnswer:
        if compensators is None:
            return await self._masks.of(session, round, members)
        return await self._shared_masks.of(session, round, members, compensators)

    async def payloads(self, key: str, gathered: Gathered) -> dict[str, bytes]:
        return await self._tasks.payloads(key, gathered)

    def release(self, key: str) -> None:
        self._tasks.release(key)

    def secret(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    # Objects.

    def forget(self, objects: Iterable[ObjectRef]) -> None:
        """See `Verbs.forget`. What is not the run's own, such as the owner's first model, stays too.

        A coordinator that takes the run over does the last of it again, in case the one before died before it did; but
        with the next that is live, for sites may have uploaded the same bytes in the step that is open."""
        own = tuple(f"{kind}/{self.project}/{self.run}/" for kind in ("models", "updates", "masks"))
        self._going.append(
            [ref for ref in objects if (ref.key or "").startswith(own) and ref.digest not in self._going_out]
        )
        if self.steps.live.is_set():
            self.steps.later(self._objects.forget([ref for gone in self._going for ref in gone]))
            self._going.clear()

    async def keep(self, outputs: Mapping[str, ObjectRef]) -> None:
        self.leaves = True
        kept = {name: await self._objects.kept(self.run, name, ref) for name, ref in sorted(outputs.items())}
        told = {name: ref.model_dump(mode="json", exclude_none=True) for name, ref in kept.items()}
        self._progressed(outputs=told, cohorts=self._there)

    # What people see.

    def note(self, kind: str, about: str, *, round: int, **data: Any) -> None:  # noqa: A002
        require_finite(f"{kind} {about}", data)
        self.steps.note(kind, about, round, data)
        if kind == "round-finished":
            ROUNDS.add(project=self.project)
            self._progressed(round=round, metrics=data.get("metrics"))
            if stop := data.get("stop"):
                self._progressed(reason=f"stopped after round {round} of {self.job.rounds}: {stop}")

    def audit(self, action: str, about: str, **detail: Any) -> None:
        require_finite(f"{action} {about}", detail)
        self._notices.audit(action, about, **detail)

    def refused(self, step: str, round_number: int, reduced: Reduced) -> None:
        for refusal in reduced.refused:
            count_refusal("update", refusal.code, self.project, refusal.participant)
            about = f"{step}/{refusal.participant}"
            told = {"step": step, "code": refusal.code, "reason": refusal.reason}
            self._notices.event("refused", about, round=round_number, participant=refusal.participant, **told)
            self._notices.audit("update.refuse", about, subject=f"participant:{refusal.participant}", **told)

    def phase(self, name: str, key: str) -> AbstractContextManager[None]:
        return self.vitals.phase(name, key)

    @contextmanager
    def round(self, number: int) -> Iterator[None]:
        """What happens inside is one trace, here and wherever messages carry it: the first round that of the call that
        submitted the run, each later one its own, which refers to that call. (One trace of all rounds of all sites
        would be larger than what stores traces takes.)"""
        started = self._clock.now()
        self.vitals.round = number
        parent, link = (None, None) if number == 1 else (ALONE, self.asked_by)
        with span("round", parent=parent, link=link, project=self.project, run=self.run, round=number):
            yield
        if self.steps.live.is_set():
            ROUND_SECONDS.observe((self._clock.now() - started).total_seconds())

    # For the supervisor.

    async def settle(self) -> None:
        """Wait for what is under way beside the workflow, which has ended: a version's publication, news, tidying. What
        a publication raises is of no account here: a workflow that needs it has waited for it."""
        if self._publishing is not None and self.steps.live.is_set():
            await asyncio.gather(self._publishing[1], return_exceptions=True)
        await self.steps.settle()

    async def abandon(self) -> None:
        """Stop what is under way at once: another coordinator has the run, or this one is stopping."""
        if self._publishing is not None:
            await stop(self._publishing[1])
        await self.steps.abandon()

    async def follow(self) -> None:
        """Receive what others send to this run, once the workflow has come to a step that is not recorded yet."""
        await self.steps.live.wait()
        answers = self._reduction_jobs.requests.follow(), self._masks.requests.follow()
        await first_of(self._inbox.follow(), *answers, self._progress.follow())

    async def tidy(self, outputs: Mapping[str, Any]) -> None:
        """Remove what only a run that goes on would need. For the end of the run.

        Args:
            outputs: references to what stays, by name, as they are recorded.
        """
        await self.steps.tolerant(purge_run(self._bus, self.project, self.run))
        await self.steps.tolerant(self._objects.abort_uploads(self.run))
        await self.steps.tolerant(self._clear({str(ref.get("key")) for ref in outputs.values()}))
        if self.job.study is not None:
            place = {"project": self.project, "run": self.run, "workflow": self.job.workflow}
            await self.steps.tolerant(tell_sites(self._bus, self._roster, self._clock.now(), **place))

    async def _clear(self, kept: set[str]) -> None:
        """Remove the run's objects, but for those and what the registry has: also of a run that another coordinator
        has conducted, which died before it could."""
        versions = await self._models.list(project=self.project)
        await self._objects.clear(self.run, but=kept | {entry.value.key for entry in versions})
