"""From updates to the next model: again without those that are refused, or, under masks, all of them or none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import JobKind, ObjectRef, Reduced, ReduceJob, RingSum, UpdateInput
from hanse_learning.codecs.config import check_chain, sections_of
from hanse_learning.server.config.foreign import codec_digests, strategy_digests
from hanse_workflows.failures import RunFailure
from hanse_workflows.fingerprint import StepQuestion
from hanse_workflows.keys import attempt_key
from hanse_workflows.outcomes import Answer, Reduction, Summed
from hanse_workflows.quorum import too_few
from hanse_workflows.round_state import Extra, ReduceOptions, extra_job
from hanse_workflows.verbs import Body, Verbs

Reasons = dict[str, str]
"""Why an update was refused, by participant."""


@dataclass(frozen=True, slots=True)
class SumUnmasking:
    """How a sum is unmasked; or, where `ring` is None, that it cannot be, and whose messages the masking protocol has
    refused (nobody's, where too many have dropped out).

    Attributes:
        given: whether sites have begun to take the masks off this sum, so that it counts as made.
        reason: why it cannot be.
    """

    ring: RingSum | None
    refused: tuple[str, ...] = ()
    given: bool = False
    reason: str = ""


async def reduce(
    run: Verbs,
    step: str,
    *,
    round: int,  # noqa: A002 - the messages' word
    answers: tuple[Answer, ...],
    model: ObjectRef | None,
    needed: int,
    state: Mapping[str, ObjectRef] | None = None,
    options: ReduceOptions | None = None,
) -> Reduction:
    """Have the answers' updates reduced to the next model. Updates that are tampered with or not finite are left out,
    as long as `needed` remain.

    Args:
        model: that the updates are differences to; None: the only update is the model.
        state: the server optimizer's arrays.
        options: what differs from a plain reduction by the job's strategy.

    Raises:
        RunFailure: QUORUM when too few remain; TIMEOUT when no aggregator answers.
    """
    options, state = options or ReduceOptions(), dict(state or {})
    weighted = run.job.weighting == "examples"
    job = _job_of(run, step, round, answers, model, state, options, weighted=weighted)
    extras = {name: _extra(extra) for name, extra in options.extras.items()}
    asked = StepQuestion({**_asked(job, answers), "extras": extras})

    async def do() -> Body:
        return (await _reduced(run, step, asked, job, answers, needed, options)).body()

    return Reduction.of(await run.once(step, asked, do))


async def sum_masked(
    run: Verbs,
    step: str,
    *,
    round: int,  # noqa: A002
    answers: tuple[Answer, ...],
    model: ObjectRef | None,
    unmask: Callable[[], Awaitable[SumUnmasking]],
    session: str,
    state: Mapping[str, ObjectRef] | None = None,
    options: ReduceOptions | None = None,
) -> Summed:
    """Have masked answers summed and unmasked: to the next model, or (without `model`) to their tally alone.

    Nothing can be left out of a masked sum: where an answer is refused, there is no reduction, and the outcome says
    whose: the step is to be done again, without them, under new masks.

    Args:
        unmask: says how the sum is unmasked; called where the sum was not made before.
        session: that the answers were masked in.
        options: of them only the strategy: nothing but the sum is there to be reduced.

    Raises:
        RunFailure: TIMEOUT when no aggregator answers; INTERNAL when the sum cannot be made.
    """
    options, state = options or ReduceOptions(), dict(state or {})
    tallied = model is None
    job = _job_of(run, step, round, answers, model, state, replace(options, info=()), weighted=False)
    job = job.model_copy(update={"kind": JobKind.TALLY if tallied else JobKind.WHOLE})
    asked = StepQuestion({**_asked(job, answers), "session": session})
    masks: list[ObjectRef] = []

    async def do() -> Body:
        with run.phase("unmask", step):
            unmasking = await unmask()
        if unmasking.ring is None:
            # Runs that began under release 0.1.0 have not recorded it.
            given = tuple(answer.participant for answer in answers) if unmasking.given and run.binds else ()
            return Summed(refused=unmasking.refused, participants=given).body()
        if unmasking.ring.masks is not None:
            masks.extend(unmasking.ring.masks.updates)
        reduced = await run.combine(step, asked, job.model_copy(update={"sum": unmasking.ring}))
        return _summed(run, step, round, reduced, job.updates, tallied=tallied).body()

    summed = Summed.of(await run.once(step, asked, do))
    run.forget(masks)
    if summed.tally is None:
        run.forget(sent_by(answers))  # they are in no sum, and will be in none
    return summed


def sent_by(answers: Iterable[Answer]) -> Iterator[ObjectRef]:
    """The objects that came with answers."""
    for answer in answers:
        yield from (ref for ref in (answer.update, *answer.extras.values()) if ref is not None)


def told(run: Verbs, step: str, round_number: int, reduced: Reduced) -> Reasons:
    """Tell those who watch of refused updates, if there are any; returns the reasons by participant."""
    if reduced.refused:
        run.refused(step, round_number, reduced)
    return {refusal.participant: refusal.reason for refusal in reduced.refused}


async def _reduced(
    run: Verbs,
    step: str,
    asked: Mapping[str, Any],
    job: ReduceJob,
    answers: tuple[Answer, ...],
    needed: int,
    options: ReduceOptions,
) -> Reduction:
    """Reduce, again without those who are refused, until none is."""
    refused: Reasons = {}
    for attempt in range(1, len(answers) + 2):
        left = tuple(update for update in job.updates if update.participant not in refused)
        if len(left) < max(needed, 1):
            break
        key = attempt_key(step, attempt)
        tried = _by(job.model_copy(update={"updates": left}), options)
        reduced = await run.combine(key, asked, tried)
        if reduced.refused:
            refused |= told(run, step, job.round, reduced)
            continue
        extras, spoilt = await _extras(run, key, asked, tried, answers, options.extras)
        if spoilt is None:
            outcome = _reduction(step, reduced, left, tuple(sorted(refused)))
            return outcome.model_copy(update={"extras": extras})
        # What is in the model and what is in the extras is of the same sites: both are made again without these.
        refused |= told(run, step, job.round, spoilt)
        run.forget([*reduced.outputs.values(), *extras.values()])
    raise too_few(
        f"step {step}", len(job.updates) - len(refused), len(job.updates), "are usable", needed, called="updates",
        why="; ".join(f"{name}: {reason}" for name, reason in refused.items()) or "none was refused",
        hint="the audit says why each was refused",
    )  # fmt: skip


async def _extras(
    run: Verbs, key: str, asked: Mapping[str, Any], job: ReduceJob, answers: tuple[Answer, ...],
    extras: Mapping[str, Extra],
) -> tuple[dict[str, ObjectRef], Reduced | None]:  # fmt: skip
    """The extras reduced, of those answers whose updates `job` has reduced; or, at the end, whose are refused."""
    made: dict[str, ObjectRef] = {}
    for name, extra in sorted(extras.items()):
        changes = {answer.participant: answer.extras[name] for answer in answers}
        reduced = await run.combine(f"{key}-{name}", asked, extra_job(job, name, extra, changes))
        refused = {refusal.participant for refusal in reduced.refused}
        if not refused <= changes.keys():
            raise RunFailure(ErrorCode.TAMPERED, f"reduction {key}-{name}: {reduced.refused[0].reason}")
        if refused:
            return made, reduced
        made[name] = _model_of(f"{key}-{name}", reduced)
    return made, None


def _summed(
    run: Verbs, step: str, round_number: int, reduced: Reduced, updates: tuple[UpdateInput, ...], *, tallied: bool
) -> Summed:
    participants = tuple(update.participant for update in updates)
    if reduced.refused:
        return Summed(refused=tuple(sorted(told(run, step, round_number, reduced))), participants=participants)
    if reduced.tally is None:
        raise RunFailure(ErrorCode.INTERNAL, f"reduction {step}: the outcome has no tally")
    reduction = None if tallied else _reduction(step, reduced, updates, ())
    return Summed(reduction=reduction, tally=reduced.tally, participants=participants)


def _job_of(
    run: Verbs, step: str, round_number: int, answers: tuple[Answer, ...], model: ObjectRef | None,
    state: dict[str, ObjectRef], options: ReduceOptions, *, weighted: bool,
) -> ReduceJob:  # fmt: skip
    rows = ((answer, answer.update or answer.tally) for answer in sorted(answers, key=lambda each: each.participant))
    updates = tuple(
        UpdateInput(
            participant=answer.participant,
            weight=float(answer.examples) if weighted and answer.examples else 1.0,
            ref=ref,
            tally=None if answer.update is None else answer.tally,
            info={name: answer.info[name] for name in options.info} or None,
        )
        for answer, ref in rows
        if ref is not None
    )
    job = ReduceJob(
        id=step, project=run.project, run=run.run, step=step, kind=JobKind.WHOLE, round=round_number,
        strategy=run.job.strategy, updates=updates, model=model, state=state, output_key=step,
        **_codec(run, model, round_number),
    )  # fmt: skip
    return _by(job, options)


def _asked(job: ReduceJob, answers: tuple[Answer, ...]) -> dict[str, Any]:
    """What a reduction depends on, for its fingerprint: the plug-in that computes it, too."""
    return {
        "kind": job.kind, "round": job.round, "updates": job.updates, "model": job.model, "state": job.state,
        "strategy": job.strategy, "plugin": job.strategy_digest,
        **({} if job.optimizer_digest is None else {"optimizer_plugin": job.optimizer_digest}),
        **({} if job.codec is None else {"codec": job.codec, "codec_plugins": job.codec_digests}),
        "changes": {answer.participant: answer.extras for answer in answers if answer.extras},
    }  # fmt: skip


def _codec(run: Verbs, model: ObjectRef | None, round_number: int) -> dict[str, Any]:
    """How a round's updates are encoded; the first model is not, and of masked ones the ring says it."""
    codec = run.job.codec
    if codec is None or not codec.up or model is None or round_number < 1 or run.job.secure_aggregation is not None:
        return {}
    return {"codec": sections_of(check_chain(codec.up)), "codec_digests": codec_digests(codec.up)}


def _extra(extra: Extra) -> dict[str, Any]:
    return {"former": extra.former, "before": extra.before, "now": extra.now}


def _by(job: ReduceJob, options: ReduceOptions) -> ReduceJob:
    """The same job, by the strategy for so many updates, and with the digest of the plug-in that this is from."""
    strategy = job.strategy if options.strategy is None else options.strategy(len(job.updates))
    return job.model_copy(update={"strategy": strategy, **strategy_digests(strategy)})


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
