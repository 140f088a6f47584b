"""Masked training with masked sums in the middle: one set of sites, or none.

Training is repeatable. Where a site drops out, its sums were made or would be: of the same numbers by fewer sites the
difference would tell its part, masked or not. So the step is opened again for the same sites, in a new session with new
masks, until all have answered; it tells nothing that the first time did not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Outcome
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.gathering import exchange, spared
from hanse_workflows.keys import attempt_key, session_key
from hanse_workflows.masking.protocols import MaskedSession, MaskingProtocol
from hanse_workflows.outcomes import Gathered, Summed
from hanse_workflows.reducing import sent_by, sum_masked
from hanse_workflows.round_state import RoundState, reduce_options
from hanse_workflows.traffic import Traffic, traffic
from hanse_workflows.verbs import Verbs


async def sum_together(
    run: Verbs, protocol: MaskingProtocol, step: str, sum_step: str, ask: Ask, state: RoundState, *,
    patience: float, least: Callable[[int], int],
) -> tuple[Gathered, Summed, Traffic]:  # fmt: skip
    """Gather the masked answers of all, and sum them; also what that took to send, each time.

    Args:
        patience: seconds that a site waits for a sum.
        least: as of `MaskingProtocol.prepare`.

    Raises:
        RunFailure: QUORUM where not all have answered as often as they were asked, or an answer is refused.
    """
    whole, missing, sent = ask.to, "nobody was asked", Traffic()
    for attempt in range(1, ask.retries + 2):
        session = await protocol.prepare(session_key(step, attempt), ask.round, whole, least=least)
        name = session.masking.session
        if attempt == 1:
            whole = session.to  # before there is any sum, the set is as free as in any round
        absent = sorted(set(whole) - set(session.to))
        if absent:
            missing = f"{', '.join(absent)} did not share secrets"
            _tell(run, ask, name, whole)
            continue
        asked = _of_all(ask, session, patience)
        gathered = await exchange(run, name, asked)
        sent += traffic((ask.model, *ask.extras.values()), len(gathered.asked), gathered.answers)
        if len(gathered.answers) < len(whole):
            missing = gathered.explain()
            _tell(run, ask, name, whole)
            run.forget(sent_by(gathered.answers))
            if any(failure.outcome is Outcome.REFUSED for failure in gathered.failures):
                break  # as it would again
            continue
        answers = gathered.answers
        summed = await sum_masked(
            run, attempt_key(sum_step, attempt), round=ask.round, answers=answers, state=state.state, session=name,
            model=ask.model, options=reduce_options(run.job, state, None),
            unmask=lambda session=session, answers=answers: protocol.unmask(session, ask.round, answers),  # type: ignore[misc]
        )  # fmt: skip
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


def _of_all(ask: Ask, session: MaskedSession, patience: float) -> Ask:
    return replace(
        ask, to=session.to, masking=session.masking, payload=session.payload, peers=len(session.to),
        needed=len(session.to), enough=0, grace=None, patience=patience, spare=spared(patience),
    )  # fmt: skip


def _tell(run: Verbs, ask: Ask, session: str, whole: tuple[str, ...]) -> None:
    run.note("exchange-broken", session, round=ask.round, step=session, left=list(whole))
