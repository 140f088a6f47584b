"""Masked steps: what is asked of the sites so that nobody sees an answer, and how the sum is unmasked.

One `MaskingProtocol` per mode (that of `pairwise` is in a module of its own). A protocol prepares a session (who takes
part, what each is sent), and afterwards says how the sum of those who have answered is unmasked. Nothing here sees a
seed or a mask.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Compensators, Masking, MaskingMode, PrivacyTerms, RingPlan, RingSum, TaskKind
from hanse_fabric.messages.masking import Chosen
from hanse_learning.binding import work_digest
from hanse_learning.codecs.config import summed_fraction
from hanse_learning.pooled.layout import counts_of_job
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.noise.aggregate import finest_fraction, noise_tail
from hanse_privacy.ring.plan import make_plan, sign_bits
from hanse_privacy.rules.sections import sums_signs
from hanse_schemas.job import Job
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.next_model import SumUnmasking
from hanse_workflows.outcomes import Answer, Gathered
from hanse_workflows.verbs import Verbs

_FOR_GOOD = frozenset({ErrorCode.GONE.code, ErrorCode.NO_SPACE.code})
"""Why a compensator sums nothing, however often it is asked: the work is forgotten, or its memory is full."""


@dataclass(frozen=True, slots=True)
class MaskedSession:
    """A masked step: its part in every task, who is asked, what each is sent besides, and how many must answer.

    Attributes:
        keep: whether payloads come with the answers that are wanted later (`Ask.keep`).
    """

    masking: Masking
    to: tuple[str, ...]
    payload: Callable[[str], Awaitable[bytes]] | None = None
    needed: int = 0
    keep: bool = False


class MaskingProtocol:
    """A way to mask answers such that their sum can be unmasked, and nothing else.

    By itself it is mode `ring`, arithmetic without masks: what masked runs are compared with, to the bit.
    """

    mode = MaskingMode.RING

    def __init__(self, run: Verbs, settings: SecureAggregation) -> None:
        self._run, self._settings = run, settings

    async def prepare(
        self,
        session: str,
        ask: Ask,
        chosen: tuple[str, ...],
        *,
        least: Callable[[int], int],  # noqa: ARG002
        plan: RingPlan | None = None,
        above: int = 0,  # noqa: ARG002
    ) -> MaskedSession:
        """Open a session for what is asked, among `chosen`. `least` says of how many its sum must be, of so many who
        take part; `plan` is how it is summed, None: as the job's updates are. `above`: of how many a sum of this work
        was made already, of which these are some."""
        masking = Masking(
            mode=self.mode,
            session=session,
            minimum=self._settings.minimum,
            ring=plan or plan_of_run(self._run, self._settings, len(chosen), ask),
            compensator=await self._key(),
            compensators=await self._group(session),
        )
        return MaskedSession(masking, chosen)

    def bits(self, ask: Ask) -> int:
        """Of the ring of parameters, where all who are asked answer."""
        return plan_of_run(self._run, self._settings, len(ask.to), ask).default.bits

    async def unmask(self, session: MaskedSession, round_number: int, answers: tuple[Answer, ...]) -> SumUnmasking:  # noqa: ARG002
        """How the sum of these answers is unmasked. Called once for one set of answers of a session."""
        return SumUnmasking(RingSum(mode=self.mode, session=session.masking.session, plan=session.masking.ring))

    async def meet(self, chosen: tuple[str, ...]) -> None:
        """Before many sessions of the same participants are open at once: what all of these have in common."""

    def most_within(self, session: MaskedSession, given: int, gap: int) -> int:  # noqa: ARG002
        """Of how many the next sum of a work may be, after one of `given` members: so that the difference speaks of
        `gap` at least."""
        return given - gap

    def heard(self, session: MaskedSession, gathered: Gathered) -> None:
        """The answers of a session, as they came; called at every pass."""

    def release(self, session: MaskedSession) -> None:
        """The session's sum is made; nobody asks for anything of it again."""

    async def _key(self) -> bytes | None:
        """The compensator's key in base64, as messages take it."""
        return None

    async def _group(self, session: str) -> Compensators | None:  # noqa: ARG002
        """Those who share the masks of a session."""
        return None


class Compensated(MaskingProtocol):
    """A compensator sums the masks. The set of participants is fixed here, after the answers are in: who dropped out
    before costs nothing."""

    mode = MaskingMode.COMPENSATOR
    _known: bytes | None = None

    async def meet(self, chosen: tuple[str, ...]) -> None:  # noqa: ARG002
        """The compensator's key is recorded once; those of several are, by session."""
        await self._key()

    async def unmask(self, session: MaskedSession, round_number: int, answers: tuple[Answer, ...]) -> SumUnmasking:
        masking = session.masking
        seeds = tuple(answer.seed for answer in answers if answer.seed is not None)
        answer = await self._run.mask_sum(masking.session, round_number, seeds, masking.compensators)
        if answer.sum is None:
            if answer.code in _FOR_GOOD:
                raise RunFailure(ErrorCode.of(answer.code), f"session {masking.session}: {answer.reason}")
            return SumUnmasking(None, answer.refused)
        return SumUnmasking(RingSum(mode=self.mode, session=masking.session, plan=masking.ring, masks=answer.sum))

    async def _key(self) -> bytes | None:
        if self._settings.compensators is not None:
            return None
        if self._known is None:
            self._known = base64.b64encode(await self._run.compensator())
        return self._known

    async def _group(self, session: str) -> Compensators | None:
        names, needed = self._settings.compensators, self._settings.needed
        if names is None or needed is None:
            return None
        return await self._run.compensators(f"{session}-compensators", names, needed)


def work_of(run: Verbs, ask: Ask) -> bytes | None:
    """Digest of the work that a masked sum will be of; None where requests are bound to nothing.

    Raises:
        HanseError: INVALID_INPUT for settings that no site could read.
    """
    if ask.bound is None or not run.binds:
        return None
    return work_digest(ask.common(run.project, run.run, run.job.workflow))


def plan_of_run(run: Verbs, settings: SecureAggregation, participants: int, ask: Ask) -> RingPlan:
    """`plan_of` the run's job, as its sites know it, with the rotation and the choice of the round: the same for each
    of its sums."""
    plan = plan_of(
        run.job, settings, participants, ask.kind, packed=not run.of_first_release, total=ask.weights or None
    )  # fmt: skip
    if ask.kind is not TaskKind.TRAIN:
        return plan
    if settings.rotate:
        plan = plan.model_copy(update={"rotation": _seed("rotation", run.job, ask)})
    fraction = summed_fraction(run.job)
    if fraction < 1:
        plan = plan.model_copy(update={"chosen": Chosen(fraction=fraction, seed=_seed("choice", run.job, ask))})
    return plan


def _seed(what: str, job: Job, ask: Ask) -> str:
    return hashlib.sha256(f"hanse {what} {job.seed} {ask.round}".encode()).hexdigest()


def plan_of(
    job: Job, settings: SecureAggregation, participants: int, kind: TaskKind = TaskKind.TRAIN, *, packed: bool = True,
    total: int | None = None,
) -> RingPlan:  # fmt: skip
    """The ring of a step of so many participants, with room for the noise that they add, or for what they count, and
    with one for the signs that the job's strategy needs; `total` as for `make_plan`."""
    tail, finest = 0.0, None
    if job.privacy is not None and job.privacy.placement == "distributed":
        terms = PrivacyTerms(
            privacy=job.privacy, rounds=job.rounds, round=1, active=participants,
            correlation=matrix_of(job.privacy, job.rounds),
        )  # fmt: skip
        tail, finest = noise_tail(terms), finest_fraction(terms)
    plan = make_plan(
        settings, participants=participants, weighting=job.weighting, tail=tail, packed=packed, total=total
    )
    if finest is not None and plan.default.fraction > finest:
        plan = plan.model_copy(update={"default": plan.default.model_copy(update={"fraction": finest})})
    if kind is TaskKind.TRAIN and sums_signs(job):
        plan = plan.model_copy(update={"signs": sign_bits(participants)})
    counts = counts_of_job(job) if kind is TaskKind.EVALUATE else None
    return plan if counts is None else plan.model_copy(update={"counts": counts.words})
