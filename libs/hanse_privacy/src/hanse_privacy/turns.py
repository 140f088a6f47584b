"""In which rounds of a run a site has taken part, where noise is correlated over the run: written in its ledger.

The run was charged once, for a site that takes part with rounds between. So it is refused to take part too early, in a
round that is over, in another work of the same round, or on other terms than it was charged for. Where sites add shares
of the noise, those who rest answer, too: with noise alone, which may be told once in a round as well.
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
        trains: whether the site contributes; else it rests, and adds noise alone.
    """

    project: str
    run: str
    round: int
    rounds: int
    separation: int
    terms: str
    work: str
    trains: bool = True

    def to_json(self) -> dict[str, Any]:
        """As a ledger keeps it."""
        told = ("project", "run", "round", "terms", "work")
        resting = {} if self.trains else {"rests": True}
        return {"what": TURN, **{name: getattr(self, name) for name in told}, **resting}


@dataclass(frozen=True, slots=True)
class _Newest:
    """Of a run: its newest turn, and the newest in which the site trained (0: none)."""

    round: int
    trained: int
    terms: str
    work: str


@dataclass
class Turns:
    """The newest turn of each run."""

    _newest: dict[tuple[str, str], _Newest] = field(default_factory=dict)

    def add(self, entry: Mapping[str, Any]) -> bool:
        """Take in an entry of the ledger; True for one that is this module's, and no charge."""
        if entry["what"] != TURN:
            return False
        run, number = (entry["project"], entry["run"]), int(entry["round"])
        before = self._newest.get(run)
        trained = number if not entry.get("rests") else 0 if before is None else before.trained
        self._newest[run] = _Newest(number, trained, entry["terms"], entry["work"])
        return True

    def is_new(self, turn: Turn) -> bool:
        """Whether a turn is yet to be written down; False for the newest one, asked once more.

        Raises:
            HanseError: POLICY, in words, where the site may not take part.
        """
        if not 1 <= turn.round <= turn.rounds:
            raise _refused(turn, f"it is beyond the run's {turn.rounds} rounds")
        newest = self._newest.get((turn.project, turn.run))
        if newest is None:
            return True
        if newest.terms != turn.terms:
            raise _refused(turn, "its privacy terms are not those that the run was charged for")
        if turn.round == newest.round:
            if newest.work != turn.work:
                raise _refused(turn, "it has taken part in that round already, with other work")
            return False
        allowed = newest.trained + turn.separation
        if turn.trains and newest.trained and turn.round < allowed:
            raise _refused(
                turn,
                f"it took part in round {newest.trained}, and the noise is for sites that take part again after "
                f"{turn.separation} rounds: not before round {allowed}",
            )
        if turn.round < newest.round:
            raise _refused(turn, f"that round is over: it has taken part in round {newest.round}")
        return True


def _refused(turn: Turn, reason: str) -> HanseError:
    return HanseError(
        ErrorCode.POLICY,
        f"this site takes no part in round {turn.round} of run {turn.run}: {reason}",
        hint="the noise of mechanism dp_ftrl hides a site that keeps to privacy.min_separation, and no other",
    )
