"""What each site's line may carry in a run (`participants.bytes_each`), and who sits rounds out because of it.

Counted as tasks and answers name it, for that follows from what is recorded: whoever takes the run over counts the
same. The few kilobytes by which a round is controlled are not in it (they are in the byte ledger).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import ObjectRef
from hanse_schemas.job import Job
from hanse_workflows.failures import RunFailure
from hanse_workflows.quorum import counted
from hanse_workflows.traffic import Traffic, evaluated_model, first_round

_HELD = 4
"""Objects that a site has at hand, the newest ones: what it has is not fetched again."""


@dataclass(frozen=True, slots=True)
class _Cost:
    """Bytes of a site's last step of a kind, as if it had nothing at hand.

    Attributes:
        given: of the objects that it was sent.
        way: of its own way to the model, the last time that there was one.
        own: of its answer and its sums, the last time that it answered.
    """

    given: int = 0
    way: int = 0
    own: int = 0

    @property
    def total(self) -> int:
        return self.given + self.way + self.own


class LineBudget:
    """The lines of one run's sites. A site takes part while what is left suffices for training like its last and, where
    the round is evaluated, for an evaluation like its last; one that was in none yet, for one like the dearest so far.
    Of the first round nobody has measured any: that is forecast."""

    def __init__(self, job: Job) -> None:
        self._job, self.each = job, job.participants.bytes_each
        self._minimum = job.participants.minimum
        self._spent: dict[str, int] = {}
        self._training: dict[str, _Cost] = {}
        self._evaluation: dict[str, _Cost] = {}
        self._unmeasured = _Cost()  # evaluation
        self._held: dict[str, list[str]] = {}
        self._next: dict[str, int] = {}  # objects, with bytes, that the next training begins with
        self._there: frozenset[str] = frozenset()  # who has these

    def able(self, names: Iterable[str], *, evaluated: bool) -> tuple[str, ...]:
        """Those of these who can take part in another round, in their order.

        Args:
            evaluated: whether the round ends in an evaluation.
        """
        if self.each is None:
            return tuple(names)
        training, evaluation = _dearest(self._training), _dearest(self._evaluation, self._unmeasured)

        def needed(name: str) -> int:
            last = self._training.get(name, training)
            then = self._evaluation.get(name, evaluation).total if evaluated else 0
            return max(0, last.total - self._at_hand(name, last)) + then

        return tuple(name for name in names if self._spent.get(name, 0) + needed(name) <= self.each)

    def require_first(self, model: ObjectRef) -> None:
        """Before anybody was sent anything: the budget suffices for one round by the formulas.

        Args:
            model: that the run begins with.

        Raises:
            RunFailure: INVALID_INPUT saying what a round takes.
        """
        if self.each is None or self._training:
            return
        takes, self._unmeasured = first_round(self._job, model), _Cost(given=evaluated_model(self._job, model))
        if sum(takes.values()) > self.each:
            raise RunFailure(
                ErrorCode.INVALID_INPUT,
                f"participants.bytes_each: {self.each} is less than a site's first round takes, {sum(takes.values())} "
                f"bytes by the formulas (models down {takes['down']}, update up {takes['up']}); nobody has trained",
                hint="raise participants.bytes_each, or let a codec make models and updates smaller",
            )  # fmt: skip

    def charge(self, trained: Traffic, evaluated: Traffic) -> None:
        """Count a round."""
        for move in (*trained.moves, *evaluated.moves):
            for name in move.to:
                held = self._held.setdefault(name, [])
                fresh = sum(size for key, size in move.given.items() if key not in held)
                self._spent[name] = self._spent.get(name, 0) + fresh
                held[:] = [*(key for key in held if key not in move.given), *move.given][-_HELD:]
            for name, size in move.own.items():
                self._spent[name] = self._spent.get(name, 0) + size
        self._training = _measured(self._training, trained)
        self._evaluation = _measured(self._evaluation, evaluated)
        asked = {name for move in trained.moves for name in move.to}
        # Where they train one after another, each begins with what the one before has made.
        together = any(asked <= set(move.to) for move in trained.moves)
        self._next = {key: size for move in evaluated.moves for key, size in move.given.items()} if together else {}
        self._there = frozenset(name for move in evaluated.moves for name in move.to if together)

    def _at_hand(self, name: str, training: _Cost) -> int:
        """Bytes of what the site's next training begins with that it has evaluated."""
        if name not in self._there:
            return 0
        held = self._held.get(name, ())
        return training.way + sum(size for key, size in self._next.items() if key in held)

    def over(self, known: Iterable[str], *, evaluated: bool) -> str:
        """Why there is no further round; empty where there can be one.

        Args:
            evaluated: whether that round ends in an evaluation.
        """
        able = self.able(known, evaluated=evaluated)
        if len(able) >= self._minimum:
            return ""
        return f"participants.bytes_each: {counted(len(able), None, 'have bytes left for a round', self._minimum)}"


def _dearest(costs: Mapping[str, _Cost], unmeasured: _Cost | None = None) -> _Cost:
    if not costs:
        return unmeasured or _Cost()
    every = costs.values()
    return _Cost(max(each.given for each in every), max(each.way for each in every), max(each.own for each in every))


def _measured(before: Mapping[str, _Cost], passed: Traffic) -> dict[str, _Cost]:
    """What a step like the last takes of each line, with what has passed in another one."""
    objects: dict[str, dict[str, int]] = {}
    ways: dict[str, int] = {}
    own: dict[str, int] = {}
    for move in passed.moves:
        for name in move.to:
            objects.setdefault(name, {}).update(move.given)
        for name, size in move.own.items():
            way = move.ways.get(name, 0)
            ways[name], own[name] = ways.get(name, 0) + way, own.get(name, 0) + size - way
    made = dict(before)
    for name in objects.keys() | own.keys():
        last = made.get(name, _Cost())
        made[name] = replace(
            last, given=sum(objects.get(name, {}).values()), way=ways.get(name) or last.way,
            own=own.get(name) or last.own,
        )  # fmt: skip
    return made
