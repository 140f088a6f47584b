"""A genome-wide association study: `hanse_genomics.study` decides what is computed; here it is done, on the bus.

All cohorts answer every step, so whatever is done again is done again by the same set: two sums of one step differ in
their masks alone, and tell no more than one does. What a step has made is recorded under its key, so that the study
goes on where it stood, whatever was killed, with any number of computations under way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from hanse_coordinator.workflow.context import Ask, RunContext
from hanse_coordinator.workflow.failures import Fenced, Paused, RunFailure
from hanse_coordinator.workflow.gathering import is_final
from hanse_coordinator.workflow.masking import MaskingProtocol, protocol_of, session_key
from hanse_coordinator.workflow.outcomes import Answer, Computed, Gathered
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import MaskingMode, ObjectRef, RingPlan, StudyJob, TaskKind, UpdateInput
from hanse_fabric.messages.masking import Ring
from hanse_fabric.names import derive_seed
from hanse_genomics.verbs import Asked, Fact, Made
from hanse_privacy.ring.plan import check_plan
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_schemas.study import Study

LONGEST_KEY = 44
"""Characters of a computation's key, so that those of its steps, which begin with it, are keys as well."""

_NOTHING = Ring(bits=64, fraction=0, bound=1)
"""The ring of arrays that the step has none for: the sites refuse to send such arrays."""


_STEPS_OF_ONE = 3
"""Steps that a computation has open at the sites, at most: of mode pairwise, one after another."""


async def association_study(run: RunContext) -> None:
    """Conduct the study and keep what it makes."""
    study = run.job.study
    if study is None:
        raise RunFailure(ErrorCode.INVALID_INPUT, "study: none is given, which the workflow association_study needs")
    from hanse_genomics.study import conduct  # here, so that a coordinator without studies is as small as before

    cohorts = await run.participants("cohorts")
    verbs = BusVerbs(run, study, cohorts)
    try:
        await verbs.meet()
        outputs: Mapping[str, ObjectRef] = await conduct(verbs, study)
    except BaseExceptionGroup as several:
        raise first_reason(several) from several
    await run.keep(outputs)


class BusVerbs:
    """`hanse_genomics.verbs.StudyVerbs` on the bus. Handles are references to objects."""

    def __init__(self, run: RunContext, study: Study, cohorts: tuple[str, ...]) -> None:
        self._run, self._study, self._cohorts = run, study, cohorts
        self._section = study.model_dump(mode="json")
        self._beside = _STEPS_OF_ONE * study.in_flight
        self._protocol = _protocol(run, len(cohorts))
        self._agreed = not (study.few_cohorts or study.few_samples)

    @property
    def cohorts(self) -> tuple[str, ...]:
        """See `StudyVerbs.cohorts`."""
        return self._cohorts

    async def meet(self) -> None:
        """What all sums have in common is made before any."""
        await self._protocol.meet(self._cohorts)

    def note(self, kind: str, about: str, **data: Fact) -> None:
        """See `StudyVerbs.note`."""
        # One kind of news may come often about the same thing: each is told once.
        told = ",".join(f"{name}={value}" for name, value in sorted(data.items()))
        self._run.note(kind, f"{about}/{told}", round=0, what=about, **data)

    async def compute(self, asked: Asked) -> Made:
        """See `StudyVerbs.compute`.

        Raises:
            RunFailure: QUORUM naming the cohorts that did not answer, and those that refused, with their reasons;
                TAMPERED where answers cannot be summed however often they are asked for; what the hub's function found.
        """
        if not 0 < len(asked.key) <= LONGEST_KEY:
            raise RunFailure(ErrorCode.INTERNAL, f"step {asked.key}: its key is not of 1 to {LONGEST_KEY} characters")
        computed = Computed()
        for attempt in range(1, self._run.job.participants.retries + 2):
            session = session_key(asked.key, attempt)
            known = self._run.computed(f"{session}-made", *_steps_of(session), beside=self._beside)
            self._agreed |= known is not None and asked.rings is not None
            computed = known or await self._computed(session, asked)
            if computed.made:
                return Made(computed.outputs, computed.facts)
        reasons = "; ".join(f"{name}: {reason}" for name, reason in computed.refused.items()) or computed.lost
        raise RunFailure(
            ErrorCode.TAMPERED if computed.refused else ErrorCode.QUORUM,
            f"step {asked.key}: the cohorts' answers cannot be summed, {self._run.job.participants.retries + 1} times: "
            f"{reasons}",
            hint="the audit says why each was refused",
        )

    async def _computed(self, session: str, asked: Asked) -> Computed:
        job = StudyJob(
            id=f"{session}-made", project=self._run.project, run=self._run.run, step=f"{session}-made",
            function=asked.step, study=self._section, settings=dict(asked.settings),
            inputs={**asked.to_sites, **asked.at_hub},
            output_key=f"models/{self._run.project}/{self._run.run}/{session}",
        )  # fmt: skip
        if not asked.sites:
            return await self._run.compute(job, None)
        ask = self._ask(asked)
        if asked.rings is None:
            gathered = await self._run.gather(session, ask)
            self._tell(asked, gathered.answers)
            return await self._run.compute(job.model_copy(update={"updates": _updates(gathered.answers)}), None)
        plan = plan_of(asked, len(self._cohorts))
        opened = await self._protocol.prepare(session, 0, self._cohorts, least=lambda _: len(self._cohorts), plan=plan)
        ask = replace(ask, masking=opened.masking, payload=opened.payload)
        if opened.masking.mode is MaskingMode.PAIRWISE:
            # A site's masks of a session are for one task: whoever has not answered it is asked in a new session.
            ask = replace(ask, retries=0, partial=True)
        gathered = await self._run.gather(opened.masking.session, ask)
        answers = gathered.answers
        if len(answers) < len(self._cohorts):
            self._protocol.release(opened)
            return await self._given_up(job.id, asked, gathered)
        self._tell(asked, answers)
        self._record_agreement(answers)
        computed = await self._run.compute(
            job.model_copy(update={"updates": _updates(answers)}), lambda: self._protocol.unmask(opened, 0, answers)
        )
        self._protocol.release(opened)
        return computed

    async def _given_up(self, step: str, asked: Asked, gathered: Gathered) -> Computed:
        """Of a session that not all have answered.

        Raises:
            RunFailure: QUORUM where asking again is in vain.
        """
        reason = f"step {asked.key}: {len(gathered.answers)} of {len(self._cohorts)} cohorts answered, all must: "
        if any(is_final(TaskKind.STUDY, failure) for failure in gathered.failures):
            raise RunFailure(ErrorCode.QUORUM, reason + gathered.explain(), hint="see these sites' logs")
        return await self._run.give_up(step, gathered.explain())

    def _tell(self, asked: Asked, answers: tuple[Answer, ...]) -> None:
        """Tell those who watch how many bytes of arrays a computation has sent, and whether they were masked."""
        down = sum(ref.size for ref in asked.to_sites.values())
        self._run.note(
            "computed", asked.key, round=0, step=asked.step, masked=asked.rings is not None,
            up={answer.participant: answer.update.size for answer in answers if answer.update is not None},
            down=dict.fromkeys((answer.participant for answer in answers), down),
        )  # fmt: skip

    def _record_agreement(self, answers: tuple[Answer, ...]) -> None:
        """Record, once, that not the owner alone takes few cohorts or few samples upon themselves: a site's policy
        refuses such a study unless it says so, and all sites have now answered within a masked sum.
        """
        if not self._agreed:
            self._agreed = True
            self._run.audit(
                "study.allow", "study", few_cohorts=self._study.few_cohorts, few_samples=self._study.few_samples,
                cohorts=len(self._cohorts), sites=[answer.participant for answer in answers],
            )  # fmt: skip

    def _ask(self, asked: Asked) -> Ask:
        wanted, seed = self._run.job.participants, self._run.job.seed
        return Ask(
            kind=TaskKind.STUDY, round=0, to=self._cohorts, model=None, needed=len(self._cohorts), grace=None,
            config={"study": self._section, "step": asked.step, "settings": dict(asked.settings)},
            seed=lambda name: derive_seed(seed, asked.key, name), deadline=wanted.deadline, retries=wanted.retries,
            extras=dict(asked.to_sites), beside=self._beside,
        )  # fmt: skip


def plan_of(asked: Asked, cohorts: int) -> RingPlan:
    """The rings of a masked step. Nothing is clipped, rounded by chance, or weighted.

    Raises:
        HanseError: INVALID_INPUT where a sum of so many cohorts could overflow.
    """
    plan = RingPlan(
        participants=cohorts, default=_NOTHING, entries=dict(asked.rings or {}), refuse_out_of_range=True
    )  # fmt: skip
    check_plan(plan)
    return plan


def first_reason(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """Of all that ended computations that were under way at once, what the run is to end by."""
    order = (Fenced, RunFailure, HanseError, Exception)
    return min(
        _flat(several), key=lambda one: next((at for at, kind in enumerate(order) if _is(one, kind)), len(order))
    )


def _is(error: BaseException, kind: type[Exception]) -> bool:
    return isinstance(error, kind) and not isinstance(error, Paused)


def _flat(several: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for one in several.exceptions:
        if isinstance(one, BaseExceptionGroup):
            yield from _flat(one)
        else:
            yield one


def _protocol(run: RunContext, cohorts: int) -> MaskingProtocol:
    """The job's way of masking, for sums of all cohorts and of no fewer."""
    asked = run.job.secure_aggregation
    if asked is None:
        raise RunFailure(ErrorCode.INVALID_INPUT, "secure_aggregation: none is given, which a study needs")
    settings: SecureAggregation = asked.model_copy(update={"minimum": cohorts, "threshold": None})
    protocol = protocol_of(run, settings)
    if protocol is None:
        raise RunFailure(ErrorCode.INTERNAL, f"secure_aggregation.mode: {asked.mode} has no protocol")
    return protocol


def _updates(answers: tuple[Answer, ...]) -> tuple[UpdateInput, ...]:
    return tuple(
        UpdateInput(participant=answer.participant, weight=1.0, ref=answer.update, tally=answer.tally)
        for answer in sorted(answers, key=lambda answer: answer.participant)
        if answer.update is not None
    )


def _steps_of(session: str) -> tuple[str, ...]:
    """The keys of the steps that a computation's session has, in whichever mode."""
    return session, f"{session}-share", f"{session}-members", f"{session}-unmask"
