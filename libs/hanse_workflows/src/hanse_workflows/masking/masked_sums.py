"""Gathering masked answers, and summing them.

A masked answer cannot be left out of its sum. So where one is refused (tampered with, wrongly sealed), the step is done
again in a new session, with new masks, without those whose answers were refused.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import MaskingMode, Outcome, TaskKind
from hanse_fabric.names import derive_seed
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import exchange, gather, patience_of, spared
from hanse_workflows.keys import attempt_key, session_key
from hanse_workflows.masking.noise_exchange import exchanged, exchanges, share_step
from hanse_workflows.masking.protocols import MaskedSession, MaskingProtocol
from hanse_workflows.next_model import sent_by, sum_masked
from hanse_workflows.noise import least_members, with_noise
from hanse_workflows.outcomes import Answer, Gathered, Summed
from hanse_workflows.round_state import RoundState, reduce_options
from hanse_workflows.traffic import Traffic, traffic
from hanse_workflows.verbs import Verbs


async def summed_masked(
    run: Verbs, protocol: MaskingProtocol, step: str, sum_step: str, ask: Ask, state: RoundState
) -> tuple[Gathered, Summed, Traffic]:
    """Gather masked answers and sum them, again without those who are refused. Also what that took to send, each time.

    Training is repeatable, so two sums of a step that differ by one site would tell its update. Once the masks of a set
    were given to the aggregators, the step is done again by the same, or once by some of them: by so many fewer that
    the difference speaks of `minimum` members at least. Those who were refused are left out, others by the run's
    seed. Compensators and sites hold the hub to it (`hanse_privacy.works`).
    """
    patience = patience_of(run.job, ask.round) if ask.kind is TaskKind.TRAIN else None
    if patience is not None:
        return await _all_or_none(run, protocol, step, sum_step, ask, state, patience)
    left, refused = ask.to, dict[str, None]()
    given: tuple[str, ...] = ()
    above = 0
    sent = Traffic()
    for attempt in range(1, len(ask.to) + 2):
        session = await protocol.prepare(
            session_key(step, attempt), ask, left, least=least_members(run, ask), above=above
        )
        enough = max(ask.needed, session.masking.minimum)
        needed = max(enough, session.needed)
        asking = with_noise(run, replace(
            ask, to=session.to, masking=session.masking, payload=session.payload, needed=needed,
            enough=enough if enough < needed else 0, peers=len(session.to),
        ), attempt)  # fmt: skip
        name = session.masking.session
        exchanging = exchanges(asking)
        if exchanging:
            asking = await exchanged(run, asking, name)
        gathered = await gather(run, name, asking)
        if exchanging:
            run.release(share_step(name))
        answers, sent = gathered.answers, sent + traffic(asking, gathered)
        if len(answers) < asking.needed:
            # Too few for the noise that was shared out, or to recover the masks of the others. Nothing was unmasked:
            # those who are there make another sum.
            left = tuple(answer.participant for answer in answers)
            run.forget(sent_by(answers))
            continue
        summed = await _sum(run, protocol, session, attempt_key(sum_step, attempt), ask, answers, state)
        if summed.tally is not None:
            return gathered, summed, sent
        refused |= dict.fromkeys(summed.refused)
        left = tuple(name for name in left if name not in refused)
        if summed.participants and session.masking.mode is not MaskingMode.RING:
            if given and (summed.refused or summed.participants != given):
                raise _told_too_much(step, refused)
            given = summed.participants
            least, k = least_members(run, ask)(len(given)), _colluding(run)
            seed = derive_seed(run.job.seed, session.masking.session)
            if not run.binds:
                left = _apart(given, left, session.masking.minimum, seed)
            elif summed.refused:
                most = protocol.most_within(session, len(given), max(session.masking.minimum, least) + k)
                left, above = within([name for name in given if name not in refused], most, seed), len(given)
            else:
                left = given
        if len(left) < enough:
            break
    raise RunFailure(
        ErrorCode.QUORUM,
        f"step {step}: {len(left)} participants are left whose masked answers can be summed, {enough} are "
        f"needed; refused: {', '.join(refused)}",
        hint="the audit says why each was refused",
    )


async def _all_or_none(
    run: Verbs, protocol: MaskingProtocol, step: str, sum_step: str, ask: Ask, state: RoundState, patience: float
) -> tuple[Gathered, Summed, Traffic]:
    """The same with masked sums in the middle, for which a site waits `patience` seconds: one set of sites, or none.

    Where a site drops out, its sums were made or would be: of the same numbers by fewer sites the difference would tell
    its part, masked or not. So the step is opened again for the same sites, in a new session with new masks, until all
    have answered; it tells nothing that the first time did not.
    """
    whole, missing, sent = ask.to, "nobody was asked", Traffic()
    for attempt in range(1, ask.retries + 2):
        session = await protocol.prepare(session_key(step, attempt), ask, whole, least=least_members(run, ask))
        name = session.masking.session
        if attempt == 1:
            whole = session.to  # before there is any sum, the set is as free as in any round
        absent = sorted(set(whole) - set(session.to))
        if absent:
            missing = f"{', '.join(absent)} did not share secrets"
            _tell(run, ask, name, whole)
            continue
        asking = _of_all(ask, session, patience)
        gathered = await exchange(run, name, asking)
        sent += traffic(asking, gathered)
        if len(gathered.answers) < len(whole):
            missing = gathered.explain()
            _tell(run, ask, name, whole)
            run.forget(sent_by(gathered.answers))
            if any(failure.outcome is Outcome.REFUSED for failure in gathered.failures):
                break  # as it would again
            continue
        answers = gathered.answers
        summed = await _sum(run, protocol, session, attempt_key(sum_step, attempt), ask, answers, state)
        if summed.tally is not None:
            return gathered, summed, sent
        missing = "the sum was not unmasked"
        if summed.refused:
            missing = f"answers were refused: {', '.join(summed.refused)}"
            break
    raise RunFailure(
        ErrorCode.QUORUM,
        f"step {step}: its sums are of all {len(whole)} participants or of none, for sums without one would tell its "
        f"part: {missing}",
        hint="see these sites' logs; participants.retries says how often all are waited for",
    )


async def _sum(
    run: Verbs, protocol: MaskingProtocol, session: MaskedSession, key: str, ask: Ask, answers: tuple[Answer, ...],
    state: RoundState,
) -> Summed:  # fmt: skip
    return await sum_masked(
        run, key, round=ask.round, answers=answers, state=state.state, session=session.masking.session,
        model=ask.model if ask.kind is TaskKind.TRAIN else None, options=reduce_options(run.job, state, None),
        unmask=lambda: protocol.unmask(session, ask.round, answers),
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


def _of_all(ask: Ask, session: MaskedSession, patience: float) -> Ask:
    return replace(
        ask, to=session.to, masking=session.masking, payload=session.payload, peers=len(session.to),
        needed=len(session.to), enough=0, grace=None, patience=patience, spare=spared(patience),
    )  # fmt: skip


def _tell(run: Verbs, ask: Ask, session: str, whole: tuple[str, ...]) -> None:
    run.note("exchange-broken", session, round=ask.round, step=session, left=list(whole))
