"""How many must take part: the one place where a run's minimum, quorum and thresholds are reckoned, and said in words.

Each is a number of participants, of so many who are asked:

| number | what it is | with fewer |
|---|---|---|
| minimum | `participants.minimum` of the job | no round begins |
| quorum | `participants.quorum`, their share, and the minimum at least | who is missing is asked again |
| masks | `secure_aggregation.minimum`: no masked sum is of fewer | there is no sum |
| threshold | of mode pairwise: who recover the masks of the others | who is there sums anew |
| noise | whose shares are the whole noise of the sum | who is there sums anew |

Some steps are of all who are asked, or are done again: joint computations, sums within a step, correlated noise. Sites
and compensators have limits of their own, to which they hold the hub. The formulas of a protocol are with it
(`hanse_privacy.pairwise.thresholds`, `hanse_privacy.noise.aggregate`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import TaskKind
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.noise.aggregate import least_answers
from hanse_privacy.pairwise.thresholds import smallest_sum, threshold_of
from hanse_schemas.job import Job, Participation
from hanse_schemas.secure_aggregation import SecureAggregation
from hanse_workflows.failures import RunFailure


@dataclass(frozen=True, slots=True)
class Quorum:
    """What a step needs of so many who are asked: numbers as above; 0: it has no such limit."""

    asked: int
    quorum: int
    masks: int = 0
    threshold: int = 0
    noise: int = 0

    @property
    def least(self) -> int:
        """Of how many the outcome is at least, however it is made."""
        return max(self.quorum, self.masks)

    @property
    def needed(self) -> int:
        """How many must answer as they were asked."""
        return max(self.least, self.threshold, self.noise)

    @property
    def enough(self) -> int:
        """Fewer than are needed, who can make another sum among each other; 0: no fewer can."""
        return self.least if self.least < self.needed else 0

    def why_not(self, gone: int) -> str:
        """Why there can be no outcome when so many are gone, by the first number that is missed; empty: there can."""
        there = self.asked - gone
        for number, name in ((self.quorum, "participants.quorum"), (self.masks, "secure_aggregation.minimum")):
            if there < number:
                return f"{name}: {counted(there, self.asked, 'are there', number)}"
        return ""


def quorum_of(job: Job, asked: int) -> Quorum:
    """What the job says of a round of so many; the computations of a study are of all."""
    sums = job.secure_aggregation
    quorum = job.participants.needed(asked) if job.study is None else asked
    return Quorum(asked, quorum, 0 if sums is None else sums.minimum if job.study is None else asked)


def check_masks(job: Job, members: int) -> None:
    """Check that so many can make a masked sum, if none of them colludes.

    Raises:
        HanseError: as `threshold_of`.
    """
    sums = job.secure_aggregation
    if sums is not None and sums.mode == "pairwise":
        threshold_of(sums.threshold, members=members, minimum=members if job.study else sums.minimum)


def threshold_wanted(sums: SecureAggregation, members: int, least: int, above: int = 0) -> int | None:
    """The threshold of a session of mode pairwise; None: the default.

    Args:
        least: of how many its sum must be.
        above: of how many a sum of this work was made already: those who unmask two must have an honest site in common.

    Raises:
        HanseError: as `threshold_of`.
    """
    if not above:
        return sums.threshold
    k, wanted = sums.colluding or 0, None if sums.threshold is None else min(sums.threshold, members)
    usual = threshold_of(wanted, members=members, minimum=least, colluding=k)
    return max(usual, (above + k) // 2 + 1)


def most_within(sums: SecureAggregation, members: int, threshold: int, gap: int) -> int:
    """Of how many the next sum of a work of mode pairwise may be, after one of so many members: so that the difference
    speaks of `gap` at least."""
    k = sums.colluding or 0
    return smallest_sum(members, threshold, k) + k - gap


def least_members(privacy: Privacy | None, kind: TaskKind) -> Callable[[int], int]:
    """Of how many participants a sum must be, of so many who share its noise."""
    return lambda active: 1 if privacy is None or kind is not TaskKind.TRAIN else least_answers(privacy, active)


def counted(there: int, asked: int | None, do: str, needed: int, *, called: str = "participants") -> str:
    """The words in which all that is too few is told: `2 of 5 participants answered, 3 are needed`."""
    return f"{there}{'' if asked is None else f' of {asked}'} {called} {do}, {needed} are needed"


def too_few(
    where: str, there: int, asked: int | None, do: str, needed: int, *, called: str = "participants", why: str = "",
    hint: str = "see these sites' logs, or change participants.quorum or participants.deadline",
) -> RunFailure:  # fmt: skip
    """How a run ends where too few take part.

    Args:
        where: the step, round or session.
        do: what so many do of those who are asked: `answered`.
        why: who is missing, and for what reason.
    """
    told = f"{where}: {counted(there, asked, do, needed, called=called)}"
    return RunFailure(ErrorCode.QUORUM, f"{told}: {why}" if why else told, hint=hint)


def too_few_present(there: tuple[str, ...], wanted: Participation) -> RunFailure:
    """The job's minimum has not come within its patience."""
    return too_few(
        "participants.minimum", len(there), None, f"are present after {wanted.patience:g} s", wanted.minimum,
        why=", ".join(there) or "none", hint="start the sites' datapods, or lower participants.minimum",
    )  # fmt: skip
