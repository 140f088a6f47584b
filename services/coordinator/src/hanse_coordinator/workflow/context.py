"""The verbs that a workflow is written in: gather, exchange, reduce, sum, publish, note (and `participants`).

Each verb has a step key that is the same at every replay. Its outcome is journalled before it is returned; when the
journal has the outcome already, it is returned and nothing is done. So a workflow is an ordinary async function, and
one that is started again from its top goes on where it stood.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hanse_coordinator.workflow.attendance import Attendance
from hanse_coordinator.workflow.compensators import MaskSums, announced
from hanse_coordinator.workflow.ending import Ending
from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.gathering import Ask, Gathering
from hanse_coordinator.workflow.inbox import Inbox
from hanse_coordinator.workflow.journal import Journal
from hanse_coordinator.workflow.notices import Notices
from hanse_coordinator.workflow.outcomes import Answer, Computed, Gathered, Published, Reduction, Summed
from hanse_coordinator.workflow.payloads import KeptPayloads
from hanse_coordinator.workflow.progress import ProgressRelay
from hanse_coordinator.workflow.publishing import publish
from hanse_coordinator.workflow.reducible import Reducible
from hanse_coordinator.workflow.reducing import Reducing, Unmasking
from hanse_coordinator.workflow.reductions import Reductions
from hanse_coordinator.workflow.roster import Roster
from hanse_coordinator.workflow.settings import WorkflowSettings
from hanse_coordinator.workflow.steps import Steps
from hanse_coordinator.workflow.storage import RunObjects
from hanse_coordinator.workflow.studying import Studying
from hanse_coordinator.workflow.vitals import RunVitals
from hanse_coordinator.workflow.waiting import first_of
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Lineage, MaskAnswer, ObjectRef, PublishModel, SealedSeed, StudyJob
from hanse_fabric.telemetry import ALONE, span
from hanse_fabric.telemetry.catalogue import ROUND_SECONDS, ROUNDS
from hanse_schemas.job import Job

if TYPE_CHECKING:
    from opentelemetry.context import Context

__all__ = ["Ask", "RunContext"]


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
        asked_by: Context | None = None,
    ) -> None:
        self.project, self.run, self.job, self.asked_by = project, run, job, asked_by
        self._bus, self._clock, self._settings = bus, clock, settings
        self._roster, self._notices, self._objects = roster, notices, objects
        self._progressed = progressed
        self.vitals = RunVitals(project, run)
        self._steps = Steps(journal, notices, run=run, pause=pause)
        self._inbox = Inbox(bus, roster, notices, project=project, run=run)
        self._progress = ProgressRelay(bus, notices, project=project, run=run)
        self._reductions = Reductions(bus, clock, project=project, run=run, limits=settings.reduce)
        self._masks = MaskSums(bus, clock, notices, project=project, run=run, patience=settings.reduce.patience)
        if journal.replaying:
            for errands in (self._reductions.errands, self._masks.errands):
                errands.recover(lasting=job.study is not None)
        self._gathering = Gathering(
            bus, clock, self._steps, inbox=self._inbox, notices=notices, objects=objects, settings=settings,
            vitals=self.vitals, project=project, run=run, workflow=job.workflow,
        )  # fmt: skip
        self._payloads = KeptPayloads(bus, self._steps, project=project, run=run)
        self._ending = Ending(bus, clock, roster, project=project, run=run, workflow=job.workflow)
        self._enrolled: dict[str, str] = {}
        self._attendance = Attendance(self._steps)
        self._reducing = Reducing(
            self._steps, self._reductions, notices=notices, objects=objects, vitals=self.vitals,
            project=project, run=run, job=job,
        )  # fmt: skip
        self._studying = Studying(
            self._steps, self._reductions, gathering=self._gathering, reducing=self._reducing, objects=objects,
            vitals=self.vitals,
        )  # fmt: skip

    async def follow(self) -> None:
        """Receive what others send to this run, once the workflow has come to a step that is not recorded yet."""
        await self._steps.live.wait()
        await first_of(
            self._inbox.follow(), self._reductions.errands.follow(), self._masks.follow(), self._progress.follow()
        )

    async def settle(self) -> None:
        """Wait for what was started in the background: notices, purges."""
        await self._steps.settle()

    async def participants(self, step: str) -> tuple[str, ...]:
        """Enrolled participants that are there, sorted; waits for the job's minimum.

        Raises:
            RunFailure: QUORUM when they do not come within the job's patience.
        """

        async def look() -> tuple[str, ...]:
            within = self._settings.present_within
            with self.vitals.phase("participants", step, lambda: self._roster.absent(self.project, within)):
                there = await self._enough_present(within)
            self._progressed(state="running")
            return there

        return await self._attendance.at(step, look)

    async def _enough_present(self, within: float) -> tuple[str, ...]:
        wanted = self.job.participants
        until = self._clock.now() + timedelta(seconds=wanted.patience)
        while len(there := self._roster.present(self.project, within)) < wanted.minimum:
            left = (until - self._clock.now()).total_seconds()
            if left <= 0:
                raise RunFailure(
                    ErrorCode.QUORUM,
                    f"participants: {len(there)} present ({', '.join(there) or 'none'}) after {wanted.patience:g} s, "
                    f"the job's minimum is {wanted.minimum}",
                    hint="start the sites' datapods, or lower participants.minimum",
                )
            # Presence ages without any message, so look again now and then.
            await first_of(self._roster.changed(), self._clock.sleep(min(left, 10.0)), self._steps.paused())
            self._steps.check_pause()
        return there

    async def gather(self, step: str, ask: Ask) -> Gathered:
        """Send a task to participants and collect their answers, until all have answered or the deadline passed with
        the quorum met. When the quorum is missed, those who are missing are asked again.

        Raises:
            RunFailure: QUORUM, naming who was silent and who failed for what reason.
        """
        return await self._gathering.gather(step, ask)

    async def exchange(self, step: str, ask: Ask) -> Gathered:
        """`gather`, with a session in which the participants sum small arrays among each other *inside* their tasks
        (`hanse_fabric.exchange`). All must contribute to every sum. There is one attempt, which may end without some of
        them: see `workflow.together`.
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
        beside: Reducible | None = None,
    ) -> Reduction:
        """Have the answers' updates reduced to the next model. Updates that are tampered with or not finite are left
        out, as long as `needed` remain.

        Args:
            beside: what differs from a plain reduction by the job's strategy.

        Raises:
            RunFailure: QUORUM when too few remain; TIMEOUT when no aggregator answers.
        """
        return await self._reducing.reduce(
            step, round=round, answers=answers, model=model, state=state, needed=needed, beside=beside
        )

    async def sum(
        self,
        step: str,
        *,
        round: int,  # noqa: A002
        answers: tuple[Answer, ...],
        model: ObjectRef | None,
        state: dict[str, ObjectRef],
        unmask: Callable[[], Awaitable[Unmasking]],
        beside: Reducible | None = None,
    ) -> Summed:
        """Have masked answers summed and unmasked: to the next model, or (without `model`) to their tally alone.

        Nothing can be left out of a masked sum: where an answer is refused, there is no reduction, and the outcome
        says whose: the step is to be done again, without them, under new masks.

        Args:
            unmask: says how the sum is unmasked; called where the sum was not made before.
            beside: of it only the strategy: nothing but the sum is there to be reduced.

        Raises:
            RunFailure: TIMEOUT when no aggregator answers; INTERNAL when the sum cannot be made.
        """
        return await self._reducing.sum(
            step, round=round, answers=answers, model=model, state=state, unmask=unmask, beside=beside
        )

    def computed(self, step: str, *of: str, beside: int) -> Computed | None:
        """What a study's computation has made before; None where it is to be done.

        Args:
            of: the steps that it was made of, which are then of no account.
            beside: how many computations may have been under way at once.
        """
        return self._studying.computed(step, *of, beside=beside)

    async def compute(self, job: StudyJob, unmask: Callable[[], Awaitable[Unmasking]] | None) -> Computed:
        """Have a study's cohorts' answers summed, and the hub's function run on the sum.

        Args:
            job: whose id is the step's key.
            unmask: says how the sum is unmasked; None where nothing is masked.

        Raises:
            RunFailure: TIMEOUT when no aggregator answers; or what the function has found wrong.
        """
        return await self._studying.compute(job, unmask)

    async def give_up(self, step: str, reason: str) -> Computed:
        """Record that a study's computation could not be made in this session: its answers are never summed."""
        return await self._studying.give_up(step, reason)

    async def keep(self, outputs: Mapping[str, ObjectRef]) -> None:
        """Record objects as the run's outcome: they rest in the store, and stay there when the run has ended."""
        kept = {name: await self._objects.kept(self.run, name, ref) for name, ref in sorted(outputs.items())}
        self._progressed(outputs={name: ref.model_dump(mode="json", exclude_none=True) for name, ref in kept.items()})

    async def mask_sum(self, session: str, round: int, members: tuple[SealedSeed, ...]) -> MaskAnswer:  # noqa: A002
        """The sum of a session's masks, from the compensator, which remembers it: so it is not journalled.

        Raises:
            RunFailure: what the compensator refused, where nobody's seed is the reason; TIMEOUT.
        """
        await self._steps.begin()
        return await self._masks.of(session, round, members)

    async def compensator(self) -> bytes:
        """The X25519 key that seeds are sealed to in this run.

        Raises:
            RunFailure: UNAVAILABLE where no compensator has announced itself.
        """
        step = "compensator"
        closed = self._steps.recorded(step)
        if closed is not None:
            return bytes.fromhex(closed["key"])
        await self._steps.begin()
        key = await announced(self._bus)
        await self._steps.close(step, {"key": key.hex()})
        return key

    async def enrolled(self, step: str) -> dict[str, bytes]:
        """Raw Ed25519 keys of the project's participants, by name, as they were enrolled at this step."""
        closed = self._steps.recorded(step)
        if closed is None:
            await self._steps.begin()
            keys = {name: key.hex() for name, key in self._roster.keys_of(self.project).items()}
            closed = {} if keys == self._enrolled else {"keys": keys}
            await self._steps.close(step, closed)
        # Nothing is recorded where nothing has changed.
        self._enrolled = closed.get("keys", self._enrolled)
        return {name: bytes.fromhex(key) for name, key in self._enrolled.items()}

    async def decide(self, step: str, decide: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """What is computed once and journalled, where computing it again would cost or might differ."""
        closed = self._steps.recorded(step)
        if closed is None:
            await self._steps.begin()
            closed = await decide()
            await self._steps.close(step, closed)
        return closed

    async def payloads(self, step: str, gathered: Gathered) -> dict[str, bytes]:
        """The payloads of a step that was gathered with `Ask.keep`, by participant.

        Raises:
            RunFailure: NOT_FOUND when they were released, or are too old.
        """
        try:
            return await self._payloads.of(step, gathered)
        except HanseError as error:
            if error.code is not ErrorCode.NOT_FOUND:
                raise
            raise RunFailure(error.code, error.message) from None

    def release(self, step: str) -> None:
        """Nobody will ask for the payloads of this step again."""
        self._payloads.release(step)

    async def publish(
        self, step: str, *, model: ObjectRef, lineage: Lineage, metrics: dict[str, float], final: bool
    ) -> Published:
        """Record a model version in the registry. Publishing twice is storing once.

        Raises:
            RunFailure: what the registry refused it for, or UNAVAILABLE when it does not answer.
        """
        closed = self._steps.recorded(step)
        if closed is not None:
            published = Published.of(closed)
        else:
            await self._steps.begin()
            request = PublishModel(
                project=self.project, model=model, architecture=self.job.model, lineage=lineage, metrics=metrics,
                final=final,
            )  # fmt: skip
            with self.vitals.phase("publish", step):
                published = await publish(
                    request, bus=self._bus, clock=self._clock, timeout=self._settings.publish_timeout
                )
                await self._steps.close(step, published.body())
        self._reducing.last_published = published.digest
        self._progressed(version=published.version, digest=published.digest)
        return published

    def note(self, kind: str, about: str, *, round: int, **data: Any) -> None:  # noqa: A002
        """Tell those who watch. Steps that are replayed are not told again."""
        self._steps.note(kind, about, round, data)
        if kind == "round-finished":
            ROUNDS.add(project=self.project)
            self._progressed(round=round, metrics=data.get("metrics"))

    def audit(self, action: str, about: str, **detail: Any) -> None:
        """Record a decision. For a step that is done, not for one that is recorded; `about` is the same at a replay."""
        self._notices.audit(action, about, **detail)

    async def initial_model(self, digest: str) -> ObjectRef:
        """The owner's uploaded model: verified against its digest, with the digests of its leaves."""
        step = "initial-model"
        closed = self._steps.recorded(step)
        if closed is not None:
            return ObjectRef.model_validate(closed)
        await self._steps.begin()
        ref = await self._objects.verified(digest, largest=self._settings.largest_model)
        await self._steps.close(step, ref.model_dump(mode="json", exclude_defaults=True))
        return ref

    async def tidy(self, outputs: Mapping[str, Any]) -> None:
        """Remove what only a run that goes on would need. For the end of the run.

        Args:
            outputs: references to what stays, by name, as they are recorded.
        """
        await self._steps.tolerant(self._ending.purge())
        await self._steps.tolerant(self._objects.forget(self._reducing.last_state))
        await self._steps.tolerant(self._objects.abort_uploads(self.run))
        if self.job.study is not None:
            kept = {str(ref.get("key")) for ref in outputs.values()}
            await self._steps.tolerant(self._objects.clear(self.run, but=kept))
            await self._steps.tolerant(self._ending.tell_sites())

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
        if self._steps.live.is_set():
            ROUND_SECONDS.observe((self._clock.now() - started).total_seconds())

    async def abandon(self) -> None:
        """Stop the background work at once: another coordinator has the run, or this one is stopping."""
        await self._steps.abandon()
