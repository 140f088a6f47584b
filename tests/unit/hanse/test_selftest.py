"""What `hanse hub test` holds the hub's model against, and what it says when the hub fails."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hanse.selftest import ROUNDS, _data, _Failures, _pooled, _stepped, _wait
from hanse_fabric.errors import ErrorCode, HanseError


def test_the_mean_of_the_sites_steps_is_the_pooled_step_in_any_order_to_the_bit() -> None:
    data = _data()
    weight = np.zeros(3, np.float32)
    for _ in range(ROUNDS):
        differences = [_stepped(weight, one.x, one.y) - weight for one in data]
        forth = weight + (differences[0] + differences[1]) / np.float32(2)
        back = weight + differences[1] * np.float32(0.5) + differences[0] * np.float32(0.5)
        assert np.array_equal(forth, back)
        weight = forth
    assert weight.dtype == np.float32
    assert np.array_equal(weight, _pooled(data))
    assert np.any(weight != 0)


class Stuck:
    """A run in one state; says when it was cancelled."""

    def __init__(self, state: str) -> None:
        self.id, self.state, self.cancelled = "r", state, False
        self.view = SimpleNamespace(round=1, reason="the aggregator said no")

    def refresh(self) -> Stuck:
        return self

    def cancel(self) -> None:
        self.cancelled = True


def test_a_run_that_does_not_end_is_cancelled_and_told_with_its_state() -> None:
    run: Any = Stuck("running")
    with pytest.raises(HanseError, match="still running in round 1") as refusal:
        _wait(run, time.monotonic(), _Failures())
    assert refusal.value.code is ErrorCode.TIMEOUT
    assert run.cancelled


def test_a_run_that_failed_is_told_with_its_reason() -> None:
    run: Any = Stuck("failed")
    with pytest.raises(HanseError, match="the aggregator said no"):
        _wait(run, time.monotonic() + 60, _Failures())


def test_a_site_that_could_not_work_is_told_at_once() -> None:
    run: Any = Stuck("running")
    failure = HanseError(ErrorCode.UNAVAILABLE, "the bus is away")
    with pytest.raises(HanseError, match="the bus is away"):
        _wait(run, time.monotonic() + 60, _Failures([failure]))
