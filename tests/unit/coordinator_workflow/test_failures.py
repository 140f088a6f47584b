"""Which of several reasons a run's end has."""

from __future__ import annotations

from hanse_coordinator.verbs.failures import Fenced, Paused, reason_of
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_workflows.failures import RunFailure


def test_of_several_ends_the_decisive_one_is_told() -> None:
    fenced, failed = Fenced("r"), RunFailure(ErrorCode.QUORUM, "too few")
    broken = HanseError(ErrorCode.UNAVAILABLE, "away")
    assert reason_of(BaseExceptionGroup("", [Paused(), failed, fenced])) is fenced
    assert reason_of(BaseExceptionGroup("", [broken, ExceptionGroup("", [Paused(), failed])])) is failed
    pause = Paused()
    assert reason_of(BaseExceptionGroup("", [pause, broken])) is broken
    assert reason_of(BaseExceptionGroup("", [pause])) is pause
