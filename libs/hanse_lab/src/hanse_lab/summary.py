"""What outcomes say together: means and spreads over seeds, rounds to a target, and whether claims appear."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hanse_lab.cells import Cell
from hanse_lab.experiment import SMALLER_IS_BETTER, Claim, Experiment
from hanse_lab.play import CellOutcome
from hanse_learning.metrics import Reached, reached

Verdict = Literal["appears", "does not appear", "the reverse appears", "cannot be told"]


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation (0 of one) of the seeds that did not fail."""

    mean: float
    deviation: float
    count: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """A claim held against a column: the differences (better minus worse), in the direction in which more is better.

    Attributes:
        rows: that were compared, those chosen from several too: better, worse, and what either gains over.

    `appears`: three quarters of the seeds agree (of three seeds, all), and the mean exceeds their deviation. `the
    reverse appears`: as many say the opposite so clearly. `does not appear`: neither. `cannot be told`: a run failed.
    """

    claim: Claim
    rows: tuple[str, ...]
    partition: str
    attack: str
    difference: Spread
    wins: int
    verdict: Verdict

    @property
    def compared(self) -> str:
        """The rows in one expression."""
        better, worse, *over = self.rows
        told = f"({better} - {over[0]}) - ({worse} - {over[1]})" if over else f"{better} - {worse}"
        return f"{told}, worst site" if self.claim.worst else told


class Summary:
    """An experiment's outcomes, by row, column and seed."""

    def __init__(self, experiment: Experiment, cells: Sequence[Cell], outcomes: Sequence[CellOutcome]) -> None:
        self.experiment = experiment
        self._by: dict[tuple[str, str, str], dict[int, CellOutcome]] = {}
        for cell, outcome in zip(cells, outcomes, strict=True):
            place = self._by.setdefault((cell.algorithm, cell.partition, cell.attack), {})
            place[cell.task.seed] = outcome

    def outcomes(self, algorithm: str, partition: str, attack: str) -> list[CellOutcome]:
        """By seed."""
        return [*self._by[algorithm, partition, attack].values()]

    def spread(self, algorithm: str, partition: str, attack: str, metric: str, *, worst: bool = False) -> Spread:
        """The outcome over the seeds."""
        found = self.outcomes(algorithm, partition, attack)
        values = [value for outcome in found if (value := self._value(outcome, metric, None, worst=worst)) is not None]
        return _spread(values, len(found) - len(values))

    def to_target(self, algorithm: str, partition: str, attack: str) -> list[Reached | None]:
        """By seed, when the target was reached; None: not at all.

        Rounds that were not measured reach nothing.
        """
        experiment = self.experiment
        if experiment.target is None:
            return []
        made: list[Reached | None] = []
        for outcome in self.outcomes(algorithm, partition, attack):
            measured = dict(zip(outcome.rounds, outcome.metrics.get(experiment.metric, ()), strict=False))
            values = [measured.get(number) for number in range(1, len(outcome.sent) + 1)]
            better = experiment.metric not in SMALLER_IS_BETTER
            made.append(reached(values, experiment.target, larger_is_better=better, round_bytes=outcome.sent))
        return made

    def messages_to_target(self, algorithm: str, partition: str, attack: str) -> list[int]:
        """Of the seeds that reached the target, rounds of messages until then: an iteration of FedTAN takes several."""
        found = zip(
            self.outcomes(algorithm, partition, attack), self.to_target(algorithm, partition, attack), strict=True
        )  # fmt: skip
        return [sum(outcome.messages[: there.round]) for outcome, there in found if there is not None]

    def claims(self) -> list[Held]:
        """Every claim in each of its columns."""
        experiment = self.experiment
        return [
            self._held(claim, partition, attack)
            for claim in experiment.claims
            for partition in claim.partitions or experiment.partitions
            for attack in claim.attacks or experiment.attacks
        ]

    def _held(self, claim: Claim, partition: str, attack: str) -> Held:
        metric = self.experiment.metric
        direction = -1.0 if metric in SMALLER_IS_BETTER else 1.0
        rows = tuple(self._best(names, partition, attack, claim.after, direction) for names in claim.rows())
        differences, failed = [], 0
        for seed in self.experiment.seeds:
            found = [self._by[name, partition, attack][seed] for name in rows]
            values = [self._value(outcome, metric, claim.after, worst=claim.worst) for outcome in found]
            there = [value for value in values if value is not None]
            if len(there) < len(values):
                failed += 1
                continue
            better, worse, *over = there
            gained = over[0] - over[1] if over else 0.0
            differences.append(direction * (better - worse - gained))
        spread, wins = _spread(differences, failed), sum(difference > 0 for difference in differences)
        return Held(claim, rows, partition, attack, spread, wins, _verdict(spread, differences))

    def _best(self, rows: Sequence[str], partition: str, attack: str, after: int | None, direction: float) -> str:
        """The row that is best on the validation examples, which are never those that are reported."""
        metric = f"validation {self.experiment.metric}"

        def mean(name: str) -> float:
            found = [self._value(each, metric, after) for each in self.outcomes(name, partition, attack)]
            whole = [value for value in found if value is not None]
            return direction * statistics.fmean(whole) if len(whole) == len(found) else float("-inf")

        return rows[0] if len(rows) == 1 else max(rows, key=mean)

    def _value(self, outcome: CellOutcome, metric: str, after: int | None, *, worst: bool = False) -> float | None:
        """The mean of the last measurements, by round `after` where it is given; None where the run failed before."""
        table = outcome.worst if worst and outcome.worst else outcome.metrics
        values = [
            value
            for number, value in zip(outcome.rounds, table.get(metric, ()), strict=False)
            if after is None or number <= after
        ]
        short = bool(outcome.failed) if after is None else bool(outcome.failed) and len(outcome.sent) < after
        last = self.experiment.last if after is None else 1
        return None if short or not values else statistics.fmean(values[-last:])


def _spread(values: Sequence[float], failed: int) -> Spread:
    if not values:
        return Spread(float("nan"), 0.0, 0, failed)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(statistics.fmean(values), deviation, len(values), failed)


def _verdict(spread: Spread, differences: Sequence[float]) -> Verdict:
    if spread.failed or not spread.count:
        return "cannot be told"
    if abs(spread.mean) > spread.deviation:
        enough = math.ceil(0.75 * spread.count)
        if sum(difference > 0 for difference in differences) >= enough:
            return "appears"
        if sum(difference < 0 for difference in differences) >= enough:
            return "the reverse appears"
    return "does not appear"
