"""Joint computations by a run's verbs: every member computes arrays, aggregators sum them (masked where the job masks),
and run the hub's function on the sum.

All members answer every step, so whatever is done again is done again by the same set: two sums of one step differ in
their masks alone, and tell no more than one does. What a step has made is recorded under its key, so that the run goes
on where it stood, whatever was killed, with any number of computations under way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import (
    MaskingMode,
    ObjectRef,
    PrivacyTerms,
    RingPlan,
    RingSum,
    StudyJob,
    TaskKind,
    UpdateInput,
)
from hanse_fabric.messages.masking import Ring
from hanse_learning.binding import bound_to, task_seed
from hanse_privacy.joint import Computation, Fact, JointOutcome
from hanse_privacy.ring.plan import check_plan
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import Tries, gather
from hanse_workflows.keys import session_key
from hanse_workflows.masking import protocol_of
from hanse_workflows.masking.protocols import MaskedSession
from hanse_workflows.next_model import SumUnmasking, told
from hanse_workflows.outcomes import Answer, Computed, Gathered
from hanse_workflows.quorum import too_few
from hanse_workflows.verbs import Body, Verbs

LONGEST_KEY = 44
"""Characters of a computation's key, so that those of its steps, which begin with it, are keys as well."""

_NOTHING = Ring(bits=64, fraction=0, bound=1)
"""The ring of arrays that the step has none for: the sites refuse to send such arrays."""


@dataclass(frozen=True, slots=True)
class Computing:
    """What a run's joint computations are for.

    Attributes:
        kind: of the sites' tasks: PREPARE, counts and sums of a table's columns (`preparing.asked_of_tables`); STUDY, a
            function on genotypes; of a run in memory whatever its sites do.
        config: what a task is told of a computation.
        section: of the job, which the hub's functions read.
        called: what the members are called in messages.
        alone: whether the run has no other masked steps: then sums are of all members, whatever minimum the job names,
            any number of computations may be under way, and what each has made is all that a replay reads. Else the
            run's rounds go on with what the masking has found of the sites, and a replay reads the answers, too.
        beside: how many steps of the run are open at once.
        privacy: the noise that the sites add to what they send; None: none.
    """

    kind: TaskKind
    config: Callable[[Computation], dict[str, Any]]
    section: Mapping[str, Any] = field(default_factory=dict)
    called: str = "participants"
    alone: bool = False
    beside: int = 1
    privacy: PrivacyTerms | None = None


class JointSums:
    """`hanse_privacy.joint.JointVerbs` by the verbs of a run, masked as its job says. Handles are references to
    objects."""

    def __init__(
        self, run: Verbs, computing: Computing, members: tuple[str, ...],
        summed: Callable[[tuple[Answer, ...]], None] = lambda _answers: None,
    ) -> None:  # fmt: skip
        """`summed` is told whose answers a masked sum is made of; nobody: one was made before, and is recorded."""
        self._run, self._computing, self._members = run, computing, members
        masks = run.job.secure_aggregation
        if masks is not None and computing.alone:
            masks = masks.model_copy(update={"minimum": len(members), "threshold": None, "colluding": None})
        self._protocol = None if masks is None else protocol_of(run, masks)
        self._open: dict[str, MaskedSession] = {}
        self._summed = summed

    @property
    def members(self) -> tuple[str, ...]:
        return self._members

    async def meet(self) -> None:
        """What all sums have in common is made before any."""
        if self._protocol is not None:
            await self._protocol.meet(self._members)

    def note(self, kind: str, about: str, **data: Fact) -> None:
        # One kind of news may come often about the same thing: each is told once.
        told = ",".join(f"{name}={value}" for name, value in sorted(data.items()))
        self._run.note(kind, f"{about}/{told}", round=0, what=about, **data)

    async def compute(self, asked: Computation) -> JointOutcome:
        """See `JointVerbs.compute`. It is asked for once, and `participants.retries` times more, whatever was missing.

        Raises:
            RunFailure: QUORUM naming the members that did not answer, and those that refused, with their reasons;
                TAMPERED where answers cannot be summed however often they are asked for; what the hub's function found.
        """
        if not 0 < len(asked.key) <= LONGEST_KEY:
            raise RunFailure(ErrorCode.INTERNAL, f"step {asked.key}: its key is not of 1 to {LONGEST_KEY} characters")
        tries, computed = Tries(self._run.job.participants.retries), Computed()
        for attempt in itertools.count(1):
            left = tries.left
            computed = await self._attempt(session_key(asked.key, attempt), asked, tries)
            if computed.made:
                return JointOutcome(computed.outputs, computed.facts)
            tries.left = min(tries.left, left - 1)  # one, where nobody was asked, or the outcome is recorded
            if not tries.left:
                break
        reasons = "; ".join(f"{name}: {reason}" for name, reason in computed.refused.items()) or computed.lost
        raise RunFailure(
            ErrorCode.TAMPERED if computed.refused else ErrorCode.QUORUM,
            f"step {asked.key}: the {self._computing.called}' answers cannot be summed, {attempt} times: {reasons}",
            hint="the audit says why each was refused",
        )

    async def _attempt(self, session: str, asked: Computation, tries: Tries) -> Computed:
        """One session of a computation; its outcome is recorded, whether or not something was made."""
        leaving: list[ObjectRef] = []

        done = False

        async def do() -> Body:
            nonlocal done
            done = True
            return (await self._computed(session, asked, tries, leaving)).body()

        if self._computing.alone:
            body = await self._run.once(
                f"{session}-made", self._question(asked), do, covers=_steps_of(session), beside=self._computing.beside
            )
        else:
            body = await do()
        self._run.forget(leaving)
        # What was shared for the session is needed until the outcome is recorded.
        opened = self._open.pop(session, None)
        if opened is not None and self._protocol is not None:
            self._protocol.release(opened)
        if not done and asked.rings is not None:
            self._summed(())
        return Computed.of(body)

    def _question(self, asked: Computation) -> dict[str, Any]:
        return {
            "study": dict(self._computing.section), "function": asked.function, "settings": asked.settings,
            "to_sites": asked.to_sites, "at_hub": asked.at_hub, "rings": asked.rings, "sites": asked.sites,
            "cohorts": self._members,
        }  # fmt: skip

    async def _computed(self, session: str, asked: Computation, tries: Tries, leaving: list[ObjectRef]) -> Computed:
        if not asked.sites:
            return await self._combined(session, asked, (), None, leaving)
        ask = self._ask(asked)
        if asked.rings is None or self._protocol is None:
            gathered = await gather(self._run, session, ask, tries)
            self._note_sent(asked, gathered.answers)
            return await self._made(session, asked, gathered.answers, None, leaving)
        plan = plan_of(asked, len(self._members))
        opened = await self._protocol.prepare(
            session, ask, self._members, least=lambda _: len(self._members), plan=plan
        )
        if absent := sorted(set(self._members) - set(opened.to)):
            self._protocol.release(opened)
            return Computed(lost=f"{', '.join(absent)} did not share secrets")
        self._open[session] = opened
        ask = replace(ask, masking=opened.masking, payload=opened.payload)
        if opened.masking.mode is MaskingMode.PAIRWISE:
            # A site's masks of a session are for one task: whoever has not answered it is asked in a new session.
            ask, tries = replace(ask, partial=True), Tries(0)
        gathered = await gather(self._run, opened.masking.session, ask, tries)
        answers = gathered.answers
        if len(answers) < len(self._members):
            return self._given_up(asked, gathered)
        self._note_sent(asked, answers)
        self._summed(answers)
        return await self._made(session, asked, answers, opened, leaving)

    async def _made(
        self, session: str, asked: Computation, answers: tuple[Answer, ...], opened: MaskedSession | None,
        leaving: list[ObjectRef],
    ) -> Computed:  # fmt: skip
        """What is made of the answers; recorded here where the whole computation is not."""

        async def do() -> Body:
            ring = None
            if opened is not None and self._protocol is not None:
                with self._run.phase("unmask", f"{session}-made"):
                    unmasking = await self._protocol.unmask(opened, 0, answers)
                if unmasking.ring is None:
                    return _not_made(unmasking).body()
                ring = unmasking.ring
            return (await self._combined(session, asked, answers, ring, leaving)).body()

        if self._computing.alone:
            return Computed.of(await do())
        return Computed.of(await self._run.once(f"{session}-made", self._question(asked), do))

    async def _combined(
        self, session: str, asked: Computation, answers: tuple[Answer, ...], ring: RingSum | None,
        leaving: list[ObjectRef],
    ) -> Computed:  # fmt: skip
        """Have the answers summed, and the hub's function run on the sum."""
        step = f"{session}-made"
        job = StudyJob(
            id=step, project=self._run.project, run=self._run.run, step=step, function=asked.function,
            study=dict(self._computing.section), settings=dict(asked.settings), updates=_updates(answers), sum=ring,
            inputs={**asked.to_sites, **asked.at_hub}, output_key=session,
        )  # fmt: skip
        leaving.extend(update.ref for update in job.updates)
        if ring is not None and ring.masks is not None:
            leaving.extend(ring.masks.updates)
        try:
            reduced = await self._run.combine(step, self._question(asked), job)
        except RunFailure as failure:
            if failure.code is not ErrorCode.TAMPERED:
                raise
            return Computed(lost=failure.message)
        refused = told(self._run, step, 0, reduced)
        return Computed(refused=refused) if refused else Computed(outputs=reduced.outputs, facts=reduced.facts or {})

    def _given_up(self, asked: Computation, gathered: Gathered) -> Computed:
        """Of a session that not all have answered: its answers are never summed.

        Raises:
            RunFailure: QUORUM where asking again is in vain.
        """
        if any(failure.final(self._computing.kind) for failure in gathered.failures):
            raise too_few(
                f"step {asked.key}", len(gathered.answers), len(self._members), "answered", len(self._members),
                called=self._computing.called, why=gathered.explain(), hint="see these sites' logs",
            )  # fmt: skip
        return Computed(lost=gathered.explain()[:2000])

    def _note_sent(self, asked: Computation, answers: tuple[Answer, ...]) -> None:
        """Tell those who watch how many bytes of arrays a computation has sent, and whether they were masked."""
        down = sum(ref.size for ref in asked.to_sites.values())
        self._run.note(
            "computed", asked.key, round=0, step=asked.function,
            masked=asked.rings is not None and self._protocol is not None,
            up={answer.participant: answer.update.size for answer in answers if answer.update is not None},
            down=dict.fromkeys((answer.participant for answer in answers), down),
        )  # fmt: skip

    def _ask(self, asked: Computation) -> Ask:
        wanted, seed, kind = self._run.job.participants, self._run.job.seed, self._computing.kind
        # A study asks many things in one round, each bound to its key.
        at = asked.key if kind is TaskKind.STUDY else 0
        return Ask(
            kind=kind, round=0, to=self._members, model=None, needed=len(self._members), grace=None,
            config=self._computing.config(asked), seed=lambda name: task_seed(kind, seed, at, name),
            deadline=wanted.deadline, retries=wanted.retries, extras=dict(asked.to_sites),
            beside=self._computing.beside, bound=bound_to(self._run.job, asked.key if at else ""),
            privacy=self._computing.privacy,
        )  # fmt: skip


def plan_of(asked: Computation, members: int) -> RingPlan:
    """The rings of a masked step. Nothing is clipped, rounded by chance, or weighted.

    Raises:
        HanseError: INVALID_INPUT where a sum of so many members could overflow.
    """
    plan = RingPlan(
        participants=members, default=_NOTHING, entries=dict(asked.rings or {}), refuse_out_of_range=True
    )  # fmt: skip
    check_plan(plan)
    return plan


def _updates(answers: tuple[Answer, ...]) -> tuple[UpdateInput, ...]:
    return tuple(
        UpdateInput(participant=answer.participant, weight=1.0, ref=answer.update, tally=answer.tally)
        for answer in sorted(answers, key=lambda answer: answer.participant)
        if answer.update is not None
    )


def _not_made(unmasking: SumUnmasking) -> Computed:
    if unmasking.refused:
        return Computed(refused=dict.fromkeys(unmasking.refused, "its part of the masking was refused"))
    return Computed(lost="too few helped to take the masks off")


def _steps_of(session: str) -> tuple[str, ...]:
    """The keys of the steps that a computation's session has, in whichever mode."""
    return session, f"{session}-share", f"{session}-members", f"{session}-unmask"
