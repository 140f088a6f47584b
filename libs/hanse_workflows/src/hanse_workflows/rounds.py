"""The two halves of a round, training and evaluation, plain or masked as the job wants it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import ObjectRef
from hanse_learning.pooled.layout import counts_of_job
from hanse_workflows.ask import Ask
from hanse_workflows.encoding import Carrier
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import gather, gather_updates, patience_of
from hanse_workflows.masking.masked_sums import summed_masked
from hanse_workflows.masking.protocols import MaskingProtocol
from hanse_workflows.metrics import RoundMetrics, summarize, with_counted, with_sum
from hanse_workflows.next_model import reduce, sent_by
from hanse_workflows.noise import central_strategy, with_noise
from hanse_workflows.outcomes import Answer, Gathered, Reduction
from hanse_workflows.round_asks import evaluate_key, train_key
from hanse_workflows.round_state import RoundState, extras_named, info_named, reduce_options
from hanse_workflows.traffic import Traffic, of_sums, traffic
from hanse_workflows.verbs import Verbs


@dataclass(frozen=True, slots=True)
class TrainedRound:
    """A round's new model.

    Attributes:
        answers: of those whose updates are in it.
        examples: behind it; 0 where masked weights say nothing of them.
        bits: of the ring in which the updates were summed; None: in none.
        spent: what it was made of: the model before it, the optimizer's state, the updates. A workflow that will not
            name them again forgets them.
    """

    reduction: Reduction
    metrics: RoundMetrics
    answers: tuple[Answer, ...]
    examples: int
    spent: tuple[ObjectRef, ...] = ()
    bits: int | None = None


async def train(
    run: Verbs, protocol: MaskingProtocol | None, ask: Ask, state: RoundState, *, prefix: str = ""
) -> TrainedRound:
    """Have participants train, and their updates reduced to the next model.

    Args:
        state: of the rounds before.
        prefix: of the steps' keys, where a round has more than one training; empty: `r<round>`.

    Raises:
        RunFailure: QUORUM when too few answer, or too few answers are usable.
    """
    step = f"{prefix}-train" if prefix else train_key(ask.round)
    prefix = prefix or f"r{ask.round}"
    reduce_step = f"{prefix}-reduce"
    ask = replace(ask, extras=state.extras, answered=extras_named(run.job), info=info_named(run.job))
    ask = await state.carrier.carrying(run, f"{prefix}-model", ask)
    if protocol is None:
        gathered = await gather_updates(run, step, with_noise(run, ask, 1))
        strategy = await central_strategy(run, f"{prefix}-noise", ask, state)
        reduction = await reduce(
            run, reduce_step, round=ask.round, answers=gathered.answers, model=ask.model, state=state.state,
            needed=ask.needed, options=reduce_options(run.job, state, strategy),
        )  # fmt: skip
        used = _used(gathered, reduction.participants)
        examples = sum(answer.examples for answer in used)
        sent = traffic(ask, gathered)
        if patience_of(run.job, ask.round) is not None:
            sent += of_sums(ask.model, gathered.answers)
        metrics = replace(summarize(gathered.answers, prefix="train_"), traffic=sent)
        return TrainedRound(reduction, metrics, used, examples, _spent(ask, state, gathered))
    ask = replace(ask, weights=0 if run.job.privacy else state.weight_of(ask.to))
    gathered, summed, sent = await summed_masked(run, protocol, step, reduce_step, ask, state)
    if summed.reduction is None or summed.tally is None:
        raise RunFailure(ErrorCode.INTERNAL, f"step {reduce_step}: a masked sum without a model")
    overall = {f"train_{name}": value for name, value in sorted(summed.tally.metrics.items())}
    examples = round(summed.tally.weight) if run.job.weighting == "examples" else 0
    metrics = RoundMetrics(overall, traffic=sent)
    reduction = summed.reduction
    if ask.training:  # the others' noise is in the sum, and nothing else of theirs
        reduction = reduction.model_copy(update={"participants": ask.training})
    used = _used(gathered, reduction.participants)
    bits = protocol.bits(ask)
    return TrainedRound(reduction, metrics, used, examples, _spent(ask, state, gathered), bits)


def joined(trainings: Sequence[TrainedRound]) -> TrainedRound:
    """Of trainings that went on from each other, one that says whose updates are in the last one's model. Pure."""
    answers = tuple(answer for each in trainings for answer in each.answers)
    participants = tuple(sorted(answer.participant for answer in answers))
    sent = sum((each.metrics.traffic for each in trainings), Traffic())
    return TrainedRound(
        trainings[-1].reduction.model_copy(update={"participants": participants}),
        replace(summarize(answers, prefix="train_"), traffic=sent), answers, sum(each.examples for each in trainings),
        tuple(ref for each in trainings for ref in each.spent),
    )  # fmt: skip


async def evaluate(
    run: Verbs, protocol: MaskingProtocol | None, ask: Ask, carrier: Carrier | None = None
) -> RoundMetrics:  # fmt: skip
    """Have participants evaluate the round's new model.

    Args:
        carrier: of the run's state, which trains from this model next; None: it is sent for this step alone.

    Raises:
        RunFailure: as `train`.
    """
    step, counts = evaluate_key(ask.round), counts_of_job(run.job)
    ask = await (carrier or Carrier()).carrying(run, f"{step}-model", ask)
    if protocol is None:
        gathered = await gather(run, step, with_noise(run, ask, 1))
        if carrier is None and ask.encoded is not None:
            run.forget((ask.encoded,))
        found = replace(summarize(gathered.answers), traffic=traffic(ask, gathered))
        if counts is None:
            return found
        return with_counted(found, counts, gathered.answers, optional=run.job.evaluate.optional)
    gathered, summed, sent = await summed_masked(run, protocol, step, f"r{ask.round}-tally", ask, RoundState())
    overall = {} if summed.tally is None else dict(sorted(summed.tally.metrics.items()))
    found = RoundMetrics(overall, traffic=sent)
    if counts is None or summed.tally is None:
        return found
    sums = run.job.secure_aggregation
    sites = None if sums is None or sums.mode == "ring" else len(summed.participants or gathered.answers)
    return with_sum(found, counts, summed.tally.counted, sites=sites, optional=run.job.evaluate.optional)


def _spent(ask: Ask, state: RoundState, gathered: Gathered) -> tuple[ObjectRef, ...]:
    held = {ref.digest for ref in state.carrier.held} if ask.deltas is not None else ()
    before = (ask.model, ask.encoded, *state.state.values(), *state.extras.values())
    gone = (ref for ref in before if ref is not None and ref.digest not in held)
    return (*gone, *state.carrier.passed(), *sent_by(gathered.answers))


def _used(gathered: Gathered, participants: tuple[str, ...]) -> tuple[Answer, ...]:
    used = set(participants)
    return tuple(answer for answer in gathered.answers if answer.participant in used)
