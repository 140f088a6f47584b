"""Masked sums of all of a set of sites, or of none: asked of the same sites again until all have answered."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Outcome
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import spared
from hanse_workflows.keys import session_key
from hanse_workflows.masking.masked_session import MaskedStep
from hanse_workflows.masking.protocols import MaskedSession
from hanse_workflows.next_model import sent_by
from hanse_workflows.noise import with_noise
from hanse_workflows.outcomes import Gathered, Summed
from hanse_workflows.quorum import least_members
from hanse_workflows.traffic import Traffic, traffic
from hanse_workflows.verbs import Verbs


async def all_or_none(
    masked: MaskedStep, *, patience: float | None = None, among: tuple[str, ...] = (), after: int = 0,
    refused: Iterable[str] = (), sent: Traffic | None = None, fixed: bool = False,
) -> tuple[Gathered, Summed, Traffic]:  # fmt: skip
    """One set of sites, or none.

    There may be masked sums in the middle: where a site drops out, they were made or would be, and of the same numbers
    by fewer sites the difference would tell its part, masked or not. Or the sum of these sites was unmasked, and its
    answers refused. Or the sites add shares of noise that is correlated over the run, all of them in every round.
    So the step is opened again for the same sites, in a new session with new masks, until all have answered; it tells
    nothing that the first time did not.

    Args:
        patience: seconds that a site waits for sums in the middle; None: there are none.
        among: who was asked before; nobody: whoever shares in the first session.
        after: sessions of the step before.
        refused: whose answers were.
        sent: what these took.
        fixed: the set is that of `masked`, before anybody was asked.

    Raises:
        RunFailure: QUORUM where not all answer, or an answer is refused, `retries` times after the first.
    """
    run, ask, whole, sent = masked.run, masked.ask, among or masked.ask.to, sent or Traffic()
    named, retries, least = dict.fromkeys(refused), ask.retries, least_members(run.job.privacy, ask.kind)
    missing = _no_sum(named)
    for attempt in range(after + 1, after + retries + (1 if among else 2)):
        name = session_key(masked.step, attempt)
        if among:
            again = f"the same {len(whole)} sites are asked again; {missing}"
            run.note("note", f"{name}/again", round=ask.round, step=name, reason=again)
        session = await masked.protocol.prepare(name, ask, whole, least=least)
        if not among and attempt == 1 and not fixed:
            whole = session.to  # before there is any sum, the set is as free as in any round
        absent = sorted(set(whole) - set(session.to))
        if absent:
            missing = f"{', '.join(absent)} did not share secrets"
            _note_broken(run, ask, session, whole)
            continue
        asking, gathered = await masked.answers(session, with_noise(run, _of_all(ask, session, patience), attempt))
        sent += traffic(asking, gathered)
        if len(gathered.answers) < len(whole):
            missing = gathered.explain()
            _note_broken(run, ask, session, whole)
            run.forget(sent_by(gathered.answers))
            if any(failure.outcome is Outcome.REFUSED for failure in gathered.failures):
                break  # as it would again
            continue
        summed = await masked.sum(session, attempt, gathered.answers)
        if summed.tally is not None:
            return gathered, summed, sent
        named |= dict.fromkeys(summed.refused)
        missing = _no_sum(named)
    hint = "see these sites' logs, and the audit; participants.retries says how often the same sites are asked again"
    if among:
        why = f"too few are left without who was refused, and the same {len(whole)} participants were asked again"
    elif fixed:
        why = (
            f"all {len(whole)} members share the noise of every round (privacy.mechanism: dp_ftrl), and one is missing"
        )
        hint = (
            "where one is gone for good: another run that begins with this one's newest model (initial_model) has "
            "members of its own, and is charged for itself"
        )
    else:
        why = f"its sums are of all {len(whole)} participants or of none, for sums without one would tell its part"
    raise RunFailure(
        ErrorCode.QUORUM,
        f"step {masked.step}: {why}: {missing}",
        hint=hint,
    )


def _of_all(ask: Ask, session: MaskedSession, patience: float | None) -> Ask:
    return replace(
        ask, to=session.to, masking=session.masking, payload=session.payload, peers=len(session.to),
        needed=len(session.to), enough=0, grace=None, retries=0, partial=True, patience=patience,
        spare=None if patience is None else spared(patience),
    )  # fmt: skip


def _no_sum(refused: Collection[str]) -> str:
    """Why answers were not summed, in words."""
    return f"refused: {', '.join(refused)}" if refused else "the sum was not unmasked"


def _note_broken(run: Verbs, ask: Ask, session: MaskedSession, whole: tuple[str, ...]) -> None:
    name = session.masking.session
    run.note("exchange-broken", name, round=ask.round, step=name, left=list(whole))
