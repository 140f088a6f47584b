"""The verb `reduce`: updates, plain or masked, to the next model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from hanse_coordinator.refusals import count_refusal
from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.notices import Notices
from hanse_coordinator.workflow.outcomes import Answer, Reduction, Summed
from hanse_coordinator.workflow.reducible import Extra, Reducible, extra_job
from hanse_coordinator.workflow.reductions import Reductions, without
from hanse_coordinator.workflow.steps import Steps, attempt_key
from hanse_coordinator.workflow.storage import RunObjects
from hanse_coordinator.workflow.vitals import RunVitals
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import JobKind, ObjectRef, Reduced, ReduceJob, RingSum, UpdateInput
from hanse_schemas.job import Job


@dataclass(frozen=True, slots=True)
class Unmasking:
    """How a sum is unmasked; or, where `ring` is None, that it cannot be, and whose messages the masking protocol has
    refused (nobody's, where too many have dropped out)."""

    ring: RingSum | None
    refused: tuple[str, ...] = ()


class Reducing:
    """The reductions of one run, their outcomes journalled, and what they leave behind."""

    def __init__(
        self,
        steps: Steps,
        reductions: Reductions,
        *,
        notices: Notices,
        objects: RunObjects,
        vitals: RunVitals,
        project: str,
        run: str,
        job: Job,
    ) -> None:
        self._steps, self._reductions, self._notices, self._objects = steps, reductions, notices, objects
        self._vitals, self._project, self._run, self._job = vitals, project, run, job
        self._warnings: set[str] = set()
        self.last_state: list[ObjectRef] = []
        self.last_published = ""
        """Digest of the newest version: the registry's business, never removed here."""

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
        """See `RunContext.reduce`."""
        closed = self._steps.recorded(step)
        if closed is not None:
            return self._kept(Reduction.of(closed))
        await self._steps.begin()
        beside = beside or Reducible()
        job = self._job_of(
            step, round, answers, model, state, weighted=self._job.weighting == "examples", info=beside.info
        )
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
            changes: dict[str, Any] = {"id": key, "updates": left, "output_key": self._output(key)}
            if beside.strategy is not None:
                changes["strategy"] = beside.strategy(len(left))
            with self._vitals.phase("reduce", key):
                reduced = await self._reductions.reduce(job.model_copy(update=changes))
            if reduced.refused:
                refused |= self.told(step, round, reduced)
                continue
            with self._vitals.phase("reduce", key) if beside.extras else nullcontext():
                extras, spoilt = await self._extras(job.model_copy(update=changes), answers, beside.extras)
            if spoilt is None:
                break
            # What is in the model and what is in the extras is of the same sites: both are made again without these.
            refused |= self.told(step, round, spoilt)
            self._steps.later(self._objects.forget([*reduced.outputs.values(), *extras.values()]))
        self._reductions.errands.recovered()
        self._warned(step, round, reduced)
        outcome = _reduction(step, reduced, left, tuple(sorted(refused))).model_copy(update={"extras": extras})
        await self._steps.close(step, outcome.body())
        former = {name: extra.former for name, extra in beside.extras.items() if extra.former is not None}
        self._forget(answers, model, state | former)
        return self._kept(outcome)

    async def _extras(
        self, job: ReduceJob, answers: tuple[Answer, ...], extras: Mapping[str, Extra]
    ) -> tuple[dict[str, ObjectRef], Reduced | None]:
        """The extras reduced, of those answers whose updates `job` has reduced; or, at the end, whose are refused."""
        made: dict[str, ObjectRef] = {}
        for name, extra in sorted(extras.items()):
            changes = {answer.participant: answer.extras[name] for answer in answers}
            asked = extra_job(job, name, extra, changes, self._output)
            reduced = await self._reductions.reduce(asked)
            if reduced.refused and not {refusal.participant for refusal in reduced.refused} <= changes.keys():
                raise RunFailure(ErrorCode.TAMPERED, f"reduction {asked.id}: {reduced.refused[0].reason}")
            if reduced.refused:
                return made, reduced
            made[name] = _model_of(asked.id, reduced)
        return made, None

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
        """See `RunContext.sum`."""
        closed = self._steps.recorded(step)
        if closed is not None:
            summed = Summed.of(closed)
            if summed.reduction is not None:
                self._kept(summed.reduction)
            return summed
        await self._steps.begin()
        with self._vitals.phase("unmask", step):
            unmasking = await unmask()
        ring = unmasking.ring
        if ring is None:
            summed = Summed(refused=unmasking.refused)
        else:
            job = self._job_of(step, round, answers, model, state, weighted=False)
            kind = JobKind.TALLY if model is None else JobKind.WHOLE
            changes: dict[str, Any] = {"kind": kind, "sum": ring}
            if beside is not None and beside.strategy is not None:
                changes["strategy"] = beside.strategy(len(job.updates))
            with self._vitals.phase("reduce", step):
                reduced = await self._reductions.reduce(job.model_copy(update=changes))
            self._reductions.errands.recovered()
            summed = self._summed(step, round, reduced, job.updates, tallied=kind is JobKind.TALLY)
        await self._steps.close(step, summed.body())
        leaving = [answer.update for answer in answers if answer.update is not None]
        if ring is not None and ring.masks is not None and ring.masks.update is not None:
            leaving.append(ring.masks.update)
        self._steps.later(self._objects.forget(leaving))
        if summed.reduction is not None:
            self._forget((), model, state)
            self._kept(summed.reduction)
        return summed

    def _summed(
        self, step: str, round_number: int, reduced: Reduced, updates: tuple[UpdateInput, ...], *, tallied: bool
    ) -> Summed:
        if reduced.refused:
            refused = tuple(sorted(self.told(step, round_number, reduced)))
            return Summed(refused=refused, participants=tuple(update.participant for update in updates))
        if reduced.tally is None:
            raise RunFailure(ErrorCode.INTERNAL, f"reduction {step}: the outcome has no tally")
        reduction = None if tallied else _reduction(step, reduced, updates, ())
        return Summed(
            reduction=reduction, tally=reduced.tally, participants=tuple(update.participant for update in updates)
        )

    def told(self, step: str, round_number: int, reduced: Reduced) -> dict[str, str]:
        """Tell of refused updates; returns the reasons by participant."""
        for refusal in reduced.refused:
            count_refusal("update", refusal.code, self._project, refusal.participant)
            about = f"{step}/{refusal.participant}"
            self._notices.event(
                "refused", about, round=round_number, step=step, participant=refusal.participant, code=refusal.code,
                reason=refusal.reason,
            )  # fmt: skip
            self._notices.audit(
                "update.refuse", about, subject=f"participant:{refusal.participant}", step=step, code=refusal.code,
                reason=refusal.reason,
            )  # fmt: skip
        return {refusal.participant: refusal.reason for refusal in reduced.refused}

    def _warned(self, step: str, round_number: int, reduced: Reduced) -> None:
        """Tell the owner, once, of a device that an aggregator should have used and could not."""
        if reduced.warning and reduced.warning not in self._warnings:
            self._warnings.add(reduced.warning)
            self._notices.event("note", f"{step}/device", round=round_number, step=step, warning=reduced.warning)

    def _job_of(
        self,
        step: str,
        round_number: int,
        answers: tuple[Answer, ...],
        model: ObjectRef | None,
        state: dict[str, ObjectRef],
        *,
        weighted: bool,
        info: tuple[str, ...] = (),
    ) -> ReduceJob:
        rows = (
            (answer, answer.update or answer.tally) for answer in sorted(answers, key=lambda answer: answer.participant)
        )
        updates = tuple(
            UpdateInput(
                participant=answer.participant,
                weight=float(answer.examples) if weighted and answer.examples else 1.0,
                ref=ref,
                tally=None if answer.update is None else answer.tally,
                info={name: answer.info[name] for name in info} or None,
            )
            for answer, ref in rows
            if ref is not None
        )
        return ReduceJob(
            id=step, project=self._project, run=self._run, step=step, kind=JobKind.WHOLE, round=round_number,
            strategy=self._job.strategy, updates=updates, model=model, state=state, output_key=self._output(step),
        )  # fmt: skip

    def _output(self, key: str) -> str:
        return f"models/{self._project}/{self._run}/{key}"

    def _kept(self, outcome: Reduction) -> Reduction:
        self.last_state = [*outcome.state.values(), *outcome.extras.values()]
        return outcome

    def _forget(self, answers: tuple[Answer, ...], model: ObjectRef | None, state: dict[str, ObjectRef]) -> None:
        self._steps.later(self._objects.forget([*self._succeeded(answers, model, state)]))

    def _succeeded(
        self, answers: tuple[Answer, ...], model: ObjectRef | None, state: dict[str, ObjectRef]
    ) -> Iterator[ObjectRef]:
        """What a reduction leaves behind: its updates, the former state, and a former model that is no version."""
        for answer in answers:
            yield from (ref for ref in (answer.update, *answer.extras.values()) if ref is not None)
        yield from state.values()
        ours = f"models/{self._project}/{self._run}/"
        if model is not None and (model.key or "").startswith(ours) and model.digest != self.last_published:
            yield model


def _reduction(step: str, reduced: Reduced, updates: tuple[UpdateInput, ...], refused: tuple[str, ...]) -> Reduction:
    return Reduction(
        model=_model_of(step, reduced),
        state={name: ref for name, ref in sorted(reduced.outputs.items()) if name != "model"},
        participants=tuple(update.participant for update in updates),
        refused=refused,
        clip=reduced.clip,
        device=reduced.device,
    )


def _model_of(step: str, reduced: Reduced) -> ObjectRef:
    if "model" not in reduced.outputs:
        raise RunFailure(ErrorCode.INTERNAL, f"reduction {step}: the outcome has no output 'model'")
    return reduced.outputs["model"]
