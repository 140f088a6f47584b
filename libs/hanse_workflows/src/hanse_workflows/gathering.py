"""A step that is asked again of those who are missing, until the quorum is met; and one in which the sites sum among
each other in the middle: all of them, or none.

A sum needs every site that was asked. Where one drops out or fails, nothing of the attempt is used, its sums having
been made with a site whose update is not there: the step is done again by those who are left, as long as they are a
quorum.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import Outcome
from hanse_learning.config.exchange_patience import RoundPatience, round_patience
from hanse_schemas.job import Job
from hanse_workflows.ask import Ask
from hanse_workflows.keys import attempt_key
from hanse_workflows.outcomes import Gathered
from hanse_workflows.per_job import per_job
from hanse_workflows.quorum import too_few
from hanse_workflows.verbs import Verbs

IN_VAIN = ErrorCode.QUORUM.code
"""Code of sites that have waited for others, and would take part again."""
_LEAST_SPARE = 2.0


@dataclass(slots=True)
class Tries:
    """How often something is asked for, counted over all that is begun anew for it: once, and `retries` times more."""

    left: int

    def __init__(self, retries: int) -> None:
        self.left = retries + 1

    def take(self) -> bool:
        """Begin a try; False: there is none left."""
        if not self.left:
            return False
        self.left -= 1
        return True


async def gather(run: Verbs, step: str, ask: Ask, tries: Tries | None = None) -> Gathered:
    """Send a task to participants and collect their answers. When the quorum is missed, those who are missing are asked
    again, as often as `ask.retries` says, or as there are `tries` left.

    Raises:
        RunFailure: QUORUM, naming who was silent and who failed for what reason.
    """
    ask = replace(ask, peers=ask.peers or len(ask.to))
    gathered, tries = Gathered(asked=ask.to), tries or Tries(ask.retries)
    for attempt in itertools.count(1):
        again = ask if attempt == 1 else replace(ask, before=gathered)
        if len(gathered.answers) + len(again.missing) < ask.needed or not tries.take():
            break
        gathered = await run.ask(attempt_key(step, attempt), again)
        if len(gathered.answers) >= ask.needed:
            return gathered
    if ask.partial or 0 < ask.enough <= len(gathered.answers):
        return gathered
    raise too_few(f"step {step}", len(gathered.answers), len(ask.to), "answered", ask.needed, why=gathered.explain())


async def exchange(run: Verbs, step: str, ask: Ask) -> Gathered:
    """One attempt at a step in which the participants sum small arrays among each other *inside* their tasks
    (`hanse_fabric.exchange`). All must contribute to every sum; it is for the caller to see who is missing."""
    return await run.ask(step, replace(ask, exchange=True, peers=ask.peers or len(ask.to)))


async def gather_updates(run: Verbs, step: str, ask: Ask) -> Gathered:
    """`gather`, or where the round's algorithm has sums, an exchange that is done again without those who drop out.

    Raises:
        RunFailure: QUORUM when too few are left.
    """
    patience = patience_of(run.job, ask.round)
    if patience is None:
        return await gather(run, step, ask)
    left, refused, retries = ask.to, set[str](), ask.retries
    gathered = Gathered(asked=left)
    for attempt in range(1, (len(ask.to) + 1) * (ask.retries + 1) + 1):
        key = attempt_key(step, attempt)
        asked = replace(
            ask, to=left, needed=len(left), enough=0, grace=None, patience=patience, spare=spared(patience)
        )  # fmt: skip
        gathered = await exchange(run, key, asked)
        if len(gathered.answers) == len(left):
            return gathered
        left = remaining(gathered)
        run.note("exchange-broken", key, round=ask.round, step=key, left=list(left))
        refused |= {failure.participant for failure in gathered.failures if failure.outcome is Outcome.REFUSED}
        if len(left) < ask.needed and retries:
            # As in any step that misses its quorum: whoever was away may be back.
            left, retries = tuple(name for name in ask.to if name not in refused), retries - 1
        if len(left) < max(1, ask.needed):
            break
    raise too_few(
        f"step {step}", len(remaining(gathered)), len(ask.to), "are left for its sums", ask.needed,
        why=gathered.explain(), hint="see these sites' logs, or change participants.quorum or train.algorithm.patience",
    )  # fmt: skip


def remaining(gathered: Gathered) -> tuple[str, ...]:
    """Who takes part in the next attempt. Pure.

    Where a site has failed by itself, the others still wait for it, and are silent for that reason. Where all who have
    spoken have waited in vain, the silent are those they waited for.
    """
    failed = {failure.participant for failure in gathered.failures if failure.code != IN_VAIN}
    gone = failed or set(gathered.silent)
    return tuple(name for name in gathered.asked if name not in gone)


def spared(patience: float) -> float:
    """Seconds from the first site's giving up to the last one's: each has waited from its own contribution on."""
    return patience + max(_LEAST_SPARE, patience / 4)


def patience_of(job: Job, round_number: int) -> float | None:
    """Seconds that sites wait in a round's sums; None where it has none. Pure; the job was checked when submitted."""
    return _patience(job).of(round_number)


@per_job
def _patience(job: Job) -> RoundPatience:
    return RoundPatience(None) if job.code is not None else round_patience(job.model, job.train)
