"""What each site's line may carry in a run (`participants.bytes_each`), and who sits rounds out because of it.

Counted as tasks and answers name it, for that follows from what is recorded: whoever takes the run over counts the
same. The few kilobytes by which a round is controlled are not in it (they are in the byte ledger).
"""

from __future__ import annotations

from collections.abc import Iterable

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import ObjectRef
from hanse_schemas.job import Job
from hanse_workflows.failures import RunFailure
from hanse_workflows.quorum import counted
from hanse_workflows.traffic import Traffic, first_round

_HELD = 4
"""Objects that a site has at hand, the newest ones: what it has is not fetched again."""


class LineBudget:
    """The lines of one run's sites. A site takes part while what is left suffices for a round like its last; one that
    was in none yet, for one like the dearest so far. Of the first round nobody has measured any: that is forecast."""

    def __init__(self, job: Job) -> None:
        self._job, self.each = job, job.participants.bytes_each
        self._minimum = job.participants.minimum
        self._spent: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._held: dict[str, list[str]] = {}

    def able(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these who can take part in another round, in their order."""
        if self.each is None:
            return tuple(names)
        dearest = max(self._last.values(), default=0)
        return tuple(name for name in names if self._spent.get(name, 0) + self._last.get(name, dearest) <= self.each)

    def require_first(self, model: ObjectRef) -> None:
        """Before anybody was sent anything: the budget suffices for one round by the formulas.

        Args:
            model: that the run begins with.

        Raises:
            RunFailure: INVALID_INPUT saying what a round takes.
        """
        if self.each is None or self._last:
            return
        takes = first_round(self._job, model)
        if sum(takes.values()) > self.each:
            raise RunFailure(
                ErrorCode.INVALID_INPUT,
                f"participants.bytes_each: {self.each} is less than a site's first round takes, {sum(takes.values())} "
                f"bytes by the formulas (models down {takes['down']}, update up {takes['up']}); nobody has trained",
                hint="raise participants.bytes_each, or let a codec make models and updates smaller",
            )  # fmt: skip

    def charge(self, *passed: Traffic) -> None:
        """Count a round."""
        cost: dict[str, int] = {}
        for move in (move for each in passed for move in each.moves):
            for name in move.to:
                held = self._held.setdefault(name, [])
                cost[name] = cost.get(name, 0) + sum(size for key, size in move.given.items() if key not in held)
                held[:] = [*(key for key in held if key not in move.given), *move.given][-_HELD:]
            for name, size in move.own.items():
                cost[name] = cost.get(name, 0) + size
        for name, size in cost.items():
            self._spent[name] = self._spent.get(name, 0) + size
        self._last |= cost

    def over(self, known: Iterable[str]) -> str:
        """Why there is no further round; empty where there can be one."""
        able = self.able(known)
        if len(able) >= self._minimum:
            return ""
        return f"participants.bytes_each: {counted(len(able), None, 'have bytes left for a round', self._minimum)}"
