"""Of a long run, curves are told of the newest evaluation and of the best, not of each."""

from __future__ import annotations

from datetime import UTC, datetime

from hanse_coordinator.api.runs import with_few_curves
from hanse_schemas.http.runs import RoundMetrics
from hanse_schemas.job import EarlyStop


def test_curves_are_of_the_newest_round_and_of_the_best_by_the_metric_to_stop_by() -> None:
    rounds = [
        RoundMetrics(
            round=at + 1, at=datetime.now(UTC), metrics={"brier": value}, sites={}, bytes={},
            curves={"bins": 8} if value is not None else {},
        )
        for at, value in enumerate([0.3, 0.1, None, 0.2, None])
    ]  # fmt: skip
    rounds[2] = rounds[2].model_copy(update={"metrics": {}})
    rounds[4] = rounds[4].model_copy(update={"metrics": {}})
    assert [each.round for each in with_few_curves(rounds, None) if each.curves] == [4]
    stop = EarlyStop.model_validate({"metric": "brier", "patience": 3})
    assert [each.round for each in with_few_curves(rounds, stop) if each.curves] == [2, 4]
    assert [each.metrics for each in with_few_curves(rounds, stop)] == [each.metrics for each in rounds]
