"""The two halves of a round, training and evaluation, plain or masked as the job wants it.

A masked answer cannot be left out of its sum. So where one is refused (tampered with, wrongly sealed), the step is done
again in a new session, with new masks, without those whose answers were refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import MaskingMode, ObjectRef, PrivacyTerms, TaskKind
from hanse_fabric.names import derive_seed
from hanse_privacy.noise.aggregate import least_answers
from hanse_workflows.ask import Ask
from hanse_workflows.central_noise import central_strategy
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import gather, gather_updates, patience_of
from hanse_workflows.keys import attempt_key, session_key
from hanse_workflows.masking.masked_exchange import sum_together
from hanse_workflows.masking.noise_exchange import exchanged, exchanges, share_step
from hanse_workflows.masking.protocols import MaskingProtocol
from hanse_workflows.metrics import RoundMetrics, summarize
from hanse_workflows.outcomes import Answer, Gathered, Reduction, Summed
from hanse_workflows.reducing import reduce, sent_by, sum_masked
from hanse_workflows.round_state import RoundState, extras_named, info_named, reduce_options
from hanse_workflows.traffic import Traffic, of_sums, traffic
from hanse_workflows.verbs import Verbs


@dataclass(frozen=True, slots=True)
class TrainedRound:
    """A round's new model.

    Attributes:
        answers: of those whose updates are in it.
        examples: behind it; 0 where masked weights say nothing of them.
        spent: what it was made of: the model before it, the optimizer's state, the updates. A workflow that will not
            name them again forgets them.
    """

    reduction: Reduction
    metrics: RoundMetrics
    answers: tuple[Answer, ...]
    examples: int
    spent: tuple[ObjectRef, ...] = ()


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
    prefix = prefix or f"r{ask.round}"
    step, reduce_step = f"{prefix}-train", f"{prefix}-reduce"
    ask = replace(ask, extras=state.extras, answered=extras_named(run.job), info=info_named(run.job))
    if protocol is None:
        gathered = await gather_updates(run, step, _private(run, ask, 1))
        strategy = await central_strategy(run, f"{prefix}-noise", ask, state.clip)
        reduction = await reduce(
            run, reduce_step, round=ask.round, answers=gathered.answers, model=ask.model, state=state.state,
            needed=ask.needed, options=reduce_options(run.job, state, strategy),
        )  # fmt: skip
        used = _used(gathered, reduction.participants)
        examples = sum(answer.examples for answer in used)
        sent = _traffic(ask, gathered)
        if patience_of(run.job, ask.round) is not None:
            sent += of_sums(ask.model, gathered.answers)
        metrics = replace(summarize(gathered.answers, prefix="train_"), traffic=sent)
        return TrainedRound(reduction, metrics, used, examples, _spent(ask, state, gathered))
    gathered, summed, sent = await _summed(run, protocol, step, reduce_step, ask, state)
    if summed.reduction is None or summed.tally is None:
        raise RunFailure(ErrorCode.INTERNAL, f"step {reduce_step}: a masked sum without a model")
    overall = {f"train_{name}": value for name, value in sorted(summed.tally.metrics.items())}
    examples = round(summed.tally.weight) if run.job.weighting == "examples" else 0
    metrics = RoundMetrics(overall, traffic=sent)
    used = _used(gathered, summed.participants)
    return TrainedRound(summed.reduction, metrics, used, examples, _spent(ask, state, gathered))


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


async def evaluate(run: Verbs, protocol: MaskingProtocol | None, ask: Ask) -> RoundMetrics:
    """Have participants evaluate the round's new model.

    Raises:
        RunFailure: as `train`.
    """
    step = f"r{ask.round}-evaluate"
    if protocol is None:
        gathered = await gather(run, step, ask)
        return replace(summarize(gathered.answers), traffic=_traffic(ask, gathered))
    _, summed, sent = await _summed(run, protocol, step, f"r{ask.round}-tally", ask, RoundState())
    overall = {} if summed.tally is None else dict(sorted(summed.tally.metrics.items()))
    return RoundMetrics(overall, traffic=sent)


async def _summed(
    run: Verbs, protocol: MaskingProtocol, step: str, sum_step: str, ask: Ask, state: RoundState
) -> tuple[Gathered, Summed, Traffic]:
    """Gather masked answers and sum them, again without those who are refused. Also what that took to send, each time.

    Training is repeatable, so two sums of a step that differ by one site would tell its update. Once the masks of a set
    were given to the aggregators, the step is done again once at most, by a set that lacks `minimum` of that one's
    members at least: those who were refused, and others by the run's seed.
    """
    patience = patience_of(run.job, ask.round) if ask.kind is TaskKind.TRAIN else None
    if patience is not None:
        return await sum_together(
            run, protocol, step, sum_step, ask, state, patience=patience, least=_least(run, ask)
        )  # fmt: skip
    left, refused = ask.to, dict[str, None]()
    given: tuple[str, ...] = ()
    sent = Traffic()
    for attempt in range(1, len(ask.to) + 2):
        session = await protocol.prepare(session_key(step, attempt), ask.round, left, least=_least(run, ask))
        enough = max(ask.needed, session.masking.minimum)
        needed = max(enough, session.needed)
        asked = _private(run, replace(
            ask, to=session.to, masking=session.masking, payload=session.payload, needed=needed,
            enough=enough if enough < needed else 0, peers=len(session.to),
        ), attempt)  # fmt: skip
        name = session.masking.session
        exchanging = exchanges(asked)
        if exchanging:
            asked = await exchanged(run, asked, name)
        gathered = await gather(run, name, asked)
        if exchanging:
            run.release(share_step(name))
        answers, sent = gathered.answers, sent + _traffic(asked, gathered)
        if len(answers) < asked.needed:
            # Too few for the noise that was shared out, or to recover the masks of the others. Nothing was unmasked:
            # those who are there make another sum.
            left = tuple(answer.participant for answer in answers)
            run.forget(sent_by(answers))
            continue
        summed = await sum_masked(
            run, attempt_key(sum_step, attempt), round=ask.round, answers=answers, state=state.state, session=name,
            model=ask.model if ask.kind is TaskKind.TRAIN else None, options=reduce_options(run.job, state, None),
            unmask=lambda session=session, answers=answers: protocol.unmask(session, ask.round, answers),  # type: ignore[misc]
        )  # fmt: skip
        if summed.tally is not None:
            return gathered, summed, sent
        refused |= dict.fromkeys(summed.refused)
        left = tuple(name for name in left if name not in refused)
        if summed.participants and session.masking.mode is not MaskingMode.RING:
            if given:
                raise _told_too_much(step, refused)
            given = summed.participants
            left = apart(given, left, session.masking.minimum, derive_seed(run.job.seed, session.masking.session))
        if len(left) < needed:
            break
    raise RunFailure(
        ErrorCode.QUORUM,
        f"step {step}: {len(left)} participants are left whose masked answers can be summed, {needed} are "
        f"needed; refused: {', '.join(refused)}",
        hint="the audit says why each was refused",
    )


def apart(given: tuple[str, ...], left: tuple[str, ...], by: int, seed: int) -> tuple[str, ...]:
    """As many of `left` as lack `by` members of `given` at least, sorted. Pure."""
    both = [name for name in left if name in set(given)]
    surplus = by - (len(given) - len(both))
    if surplus <= 0:
        return left
    dropped = set(random.Random(seed).sample(both, min(surplus, len(both))))  # noqa: S311 - repeatable, not secret
    return tuple(name for name in left if name not in dropped)


def _told_too_much(step: str, refused: Iterable[str]) -> RunFailure:
    return RunFailure(
        ErrorCode.TAMPERED,
        f"step {step}: masked answers were refused twice after the sum of their masks was given; a third sum would "
        f"tell single updates; refused: {', '.join(refused)}",
        hint="the audit says why each was refused; revoke those sites, or look at the aggregators, and run again",
    )


def _private(run: Verbs, ask: Ask, attempt: int) -> Ask:
    """The same, with the noise that the job wants, and as many answers as it takes to have that noise in their sum."""
    privacy = run.job.privacy
    if privacy is None or ask.kind is not TaskKind.TRAIN:
        return ask
    terms = PrivacyTerms(privacy=privacy, rounds=run.job.rounds, round=ask.round, active=len(ask.to), attempt=attempt)
    least = least_answers(privacy, len(ask.to))
    return replace(ask, privacy=terms, needed=max(ask.needed, least), enough=ask.enough or ask.needed)


def _least(run: Verbs, ask: Ask) -> Callable[[int], int]:
    """Of how many participants a sum must be, of so many who share its noise."""
    privacy = run.job.privacy
    return lambda active: 1 if privacy is None or ask.kind is not TaskKind.TRAIN else least_answers(privacy, active)


def _traffic(ask: Ask, gathered: Gathered) -> Traffic:
    return traffic((ask.model, *ask.extras.values()), len(gathered.asked), gathered.answers)


def _spent(ask: Ask, state: RoundState, gathered: Gathered) -> tuple[ObjectRef, ...]:
    before = (ask.model, *state.state.values(), *state.extras.values())
    return (*(ref for ref in before if ref is not None), *sent_by(gathered.answers))


def _used(gathered: Gathered, participants: tuple[str, ...]) -> tuple[Answer, ...]:
    used = set(participants)
    return tuple(answer for answer in gathered.answers if answer.participant in used)
