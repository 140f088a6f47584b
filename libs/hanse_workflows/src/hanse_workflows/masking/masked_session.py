"""What all ways to sum a masked step have in common: the step, its answers in one session, and the sum of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hanse_fabric.messages import TaskKind
from hanse_workflows.ask import Ask
from hanse_workflows.gathering import exchange, gather
from hanse_workflows.keys import attempt_key
from hanse_workflows.masking.noise_exchange import exchanged, exchanges, share_step
from hanse_workflows.masking.protocols import MaskedSession, MaskingProtocol
from hanse_workflows.next_model import sum_masked
from hanse_workflows.outcomes import Answer, Gathered, Summed
from hanse_workflows.round_state import RoundState, reduce_options
from hanse_workflows.verbs import Verbs


@dataclass(frozen=True, slots=True)
class MaskedStep:
    """A step whose answers are masked.

    Attributes:
        step, sum_step: keys of what is asked, and of what is made of the answers.
        state: of the rounds before.
    """

    run: Verbs
    protocol: MaskingProtocol
    step: str
    sum_step: str
    ask: Ask
    state: RoundState

    async def sum(self, session: MaskedSession, attempt: int, answers: tuple[Answer, ...]) -> Summed:
        """Have the answers of a session summed."""
        run, ask = self.run, self.ask
        return await sum_masked(
            run, attempt_key(self.sum_step, attempt), round=ask.round, answers=answers, state=self.state.state,
            session=session.masking.session, model=ask.model if ask.kind is TaskKind.TRAIN else None,
            options=reduce_options(run.job, self.state, None),
            unmask=lambda: self.protocol.unmask(session, ask.round, answers),
        )  # fmt: skip

    async def answers(self, session: MaskedSession, ask: Ask) -> tuple[Ask, Gathered]:
        """What was asked in a session, after an exchange of noise where there is one, and its answers."""
        run, name, exchanging = self.run, session.masking.session, exchanges(ask)
        if exchanging:
            ask = await exchanged(run, ask, name)
        ask = replace(ask, keep=session.keep)
        # Where sites wait for each other in the middle, there is one attempt.
        gathered = await (gather if ask.patience is None else exchange)(run, name, ask)
        self.protocol.heard(session, gathered)
        if exchanging:
            run.release(share_step(name))
        return ask, gathered
