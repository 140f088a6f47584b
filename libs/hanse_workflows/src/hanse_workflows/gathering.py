"""A step that is asked again of those who are missing, until the quorum is met: the one loop for it, and its words."""

from __future__ import annotations

from dataclasses import replace

from hanse_fabric.errors import ErrorCode
from hanse_workflows.ask import Ask
from hanse_workflows.failures import RunFailure
from hanse_workflows.keys import attempt_key
from hanse_workflows.outcomes import Gathered
from hanse_workflows.verbs import Verbs


async def gather(run: Verbs, step: str, ask: Ask) -> Gathered:
    """Send a task to participants and collect their answers. When the quorum is missed, those who are missing are asked
    again, as often as `ask.retries` says.

    Raises:
        RunFailure: QUORUM, naming who was silent and who failed for what reason.
    """
    ask = replace(ask, peers=ask.peers or len(ask.to))
    gathered = Gathered(asked=ask.to)
    for attempt in range(1, ask.retries + 2):
        again = ask if attempt == 1 else replace(ask, before=gathered)
        if len(gathered.answers) + len(again.missing) < ask.needed:
            break
        gathered = await run.gather(attempt_key(step, attempt), again)
        if len(gathered.answers) >= ask.needed:
            return gathered
    if ask.partial or 0 < ask.enough <= len(gathered.answers):
        return gathered
    raise RunFailure(
        ErrorCode.QUORUM,
        f"step {step}: {len(gathered.answers)} of {len(ask.to)} participants answered, {ask.needed} were needed: "
        f"{gathered.explain()}",
        hint="see these sites' logs, or change participants.quorum or participants.deadline",
    )


async def exchange(run: Verbs, step: str, ask: Ask) -> Gathered:
    """One attempt at a step in which the participants sum small arrays among each other *inside* their tasks
    (`hanse_fabric.exchange`). All must contribute to every sum; it is for the caller to see who is missing."""
    return await run.gather(step, replace(ask, exchange=True, peers=ask.peers or len(ask.to)))
