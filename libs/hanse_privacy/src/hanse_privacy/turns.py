"""In which rounds of a run a site has taken part, where noise is correlated over the run: written in its ledger.

The run was charged once, for a site that takes part with rounds between. So it is refused to take part too early, in a
round that is over, in another work of the same round, or on other terms than it was charged for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hanse_fabric.errors import ErrorCode, HanseError

TURN = "turn"


@dataclass(frozen=True, slots=True)
class Turn:
    """A site's part in one round.

    Attributes:
        round: from 1.
        rounds: of the run.
        separation: from one turn to the next, at least.
        terms: digest of what the run was charged for.
        work: digest of what is asked.
    """

    project: str
    run: str
    round: int
    rounds: int
    separation: int
    terms: str
    work: str

    def to_json(self) -> dict[str, Any]:
        """As a ledger keeps it."""
        told = ("project", "run", "round", "terms", "work")
        return {"what": TURN, **{name: getattr(self, name) for name in told}}


@dataclass
class Turns:
    """The newest turn of each run."""

    _newest: dict[tuple[str, str], tuple[int, str, str]] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> bool:
        """Take in an entry of the ledger; True for one that is this module's, and no charge."""
        if entry["what"] != TURN:
            return False
        self._newest[entry["project"], entry["run"]] = (int(entry["round"]), entry["terms"], entry["work"])
        return True

    def is_new(self, turn: Turn) -> bool:
        """Whether a turn is yet to be written down; False for the newest one, asked once more.

        Raises:
            HanseError: POLICY, in words, where the site may not take part.
        """
        if not 1 <= turn.round <= turn.rounds:
            raise _refused(turn, f"it is beyond the run's {turn.rounds} rounds")
        if (turn.project, turn.run) not in self._newest:
            return True
        last, terms, work = self._newest[turn.project, turn.run]
        if terms != turn.terms:
            raise _refused(turn, "its privacy terms are not those that the run was charged for")
        if turn.round == last:
            if work != turn.work:
                raise _refused(turn, "it has taken part in that round already, with other work")
            return False
        if turn.round < last + turn.separation:
            raise _refused(
                turn,
                f"it took part in round {last}, and the noise is for sites that take part again after "
                f"{turn.separation} rounds: not before round {last + turn.separation}",
            )
        return True


def _refused(turn: Turn, reason: str) -> HanseError:
    return HanseError(
        ErrorCode.POLICY,
        f"this site takes no part in round {turn.round} of run {turn.run}: {reason}",
        hint="the noise of mechanism dp_ftrl hides a site that keeps to privacy.min_separation, and no other",
    )
