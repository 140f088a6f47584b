"""Gathering masked answers, and summing them.

A masked answer cannot be left out of its sum. So where one is refused (tampered with, wrongly sealed), the step is done
again in a new session, with new masks: without those whose answers were refused, or, where too few would be left, by
the same sites.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import MaskingMode, TaskKind
from hanse_fabric.names import derive_seed
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import patience_of
from hanse_workflows.keys import session_key
from hanse_workflows.masking.all_or_none import all_or_none
from hanse_workflows.masking.masked_session import MaskedStep
from hanse_workflows.masking.protocols import MaskingProtocol
from hanse_workflows.next_model import sent_by
from hanse_workflows.noise import with_noise
from hanse_workflows.outcomes import Gathered, Summed
from hanse_workflows.quorum import Quorum, least_members, too_few
from hanse_workflows.round_state import RoundState
from hanse_workflows.traffic import Traffic, traffic
from hanse_workflows.verbs import Verbs


async def summed_masked(
    run: Verbs, protocol: MaskingProtocol, step: str, sum_step: str, ask: Ask, state: RoundState
) -> tuple[Gathered, Summed, Traffic]:
    """Gather masked answers and sum them, again without those who are refused. Also what that took to send, each time.

    Training is repeatable, so two sums of a step that differ by one site would tell its update. Once the masks of a set
    were given to the aggregators, the step is done again by the same, or once by some of them: by so many fewer that
    the difference speaks of `minimum` members at least. Those who were refused are left out, others by the run's
    seed. Where too few would be left, the same set is asked, `retries` times at most: the same sum again tells nothing
    more. Compensators and sites hold the hub to it (`hanse_privacy.works`).
    """
    masked = MaskedStep(run, protocol, step, sum_step, ask, state)
    patience = patience_of(run.job, ask.round) if ask.kind is TaskKind.TRAIN else None
    if ask.training:
        return await all_or_none(masked, fixed=True)
    if patience is not None:
        return await all_or_none(masked, patience=patience)
    left, refused, least = ask.to, dict[str, None](), least_members(run.job.privacy, ask.kind)
    given: tuple[str, ...] = ()
    above = 0
    sent = Traffic()
    for attempt in range(1, len(ask.to) + 2):
        session = await protocol.prepare(session_key(step, attempt), ask, left, least=least, above=above)
        quorum = Quorum(len(session.to), ask.needed, session.masking.minimum, session.needed)
        asking = with_noise(run, replace(
            ask, to=session.to, masking=session.masking, payload=session.payload, needed=quorum.needed,
            enough=quorum.enough, peers=len(session.to),
        ), attempt)  # fmt: skip
        asking, gathered = await masked.answers(session, asking)
        answers, sent = gathered.answers, sent + traffic(asking, gathered)
        there = tuple(answer.participant for answer in answers)
        if len(answers) < asking.needed:
            # Too few for the noise that was shared out, or to recover the masks of the others. Nothing was unmasked:
            # those who are there make another sum.
            left = there
            run.forget(sent_by(answers))
            continue
        summed = await masked.sum(session, attempt, answers)
        if summed.tally is not None:
            return gathered, summed, sent
        refused |= dict.fromkeys(summed.refused)
        left = tuple(name for name in left if name not in refused)
        if summed.participants and session.masking.mode is not MaskingMode.RING:
            if not run.binds:
                if given:
                    raise _told_too_much(step, refused)
                seed = derive_seed(run.job.seed, session.masking.session)
                left = _apart(summed.participants, left, session.masking.minimum, seed)
            elif not summed.refused and given in ((), summed.participants):
                left = summed.participants
            elif given:
                left = ()  # a third set would tell of few
            else:
                given = summed.participants
                gap = max(session.masking.minimum, least(len(given))) + _colluding(run)
                most = protocol.most_within(session, len(given), gap)
                seed = derive_seed(run.job.seed, session.masking.session)
                left, above = within([name for name in given if name not in refused], most, seed), len(given)
            given = summed.participants
        if len(left) < quorum.least:
            return await all_or_none(masked, among=there, after=attempt, refused=refused, sent=sent)
    raise too_few(
        f"step {step}", len(left), len(ask.to), "are left whose masked answers can be summed", quorum.least,
        why=f"refused: {', '.join(refused) or 'none'}", hint="the audit says why each was refused",
    )  # fmt: skip


def within(left: Sequence[str], most: int, seed: int) -> tuple[str, ...]:
    """`most` of `left` at most, sorted. Pure."""
    kept = left if len(left) <= most else random.Random(seed).sample(list(left), max(most, 0))  # noqa: S311 - repeatable
    return tuple(sorted(kept))


def _apart(given: tuple[str, ...], left: tuple[str, ...], by: int, seed: int) -> tuple[str, ...]:
    """As many of `left` as lack `by` members of `given`: so runs that began under release 0.1.0 go on. Pure."""
    both = [name for name in left if name in set(given)]
    surplus = max(by - (len(given) - len(both)), 0)
    dropped = set(random.Random(seed).sample(both, min(surplus, len(both))))  # noqa: S311 - repeatable, not secret
    return tuple(name for name in left if name not in dropped)


def _colluding(run: Verbs) -> int:
    settings = run.job.secure_aggregation
    return 0 if settings is None else settings.colluding or 0


def _told_too_much(step: str, refused: Iterable[str]) -> RunFailure:
    return RunFailure(
        ErrorCode.TAMPERED,
        f"step {step}: masked answers were refused twice after the sum of their masks was given; a third sum would "
        f"tell single updates; refused: {', '.join(refused)}",
        hint="the audit says why each was refused; revoke those sites, or look at the aggregators, and run again",
    )
