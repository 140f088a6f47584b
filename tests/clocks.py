"""Clocks of tests, beside `hanse_fabric.virtual_time`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from hanse_fabric.clock import SystemClock
from hanse_fabric.virtual_time import VirtualClock


class HandClock(SystemClock):
    """A time of day that is moved by hand, for tests with real sockets; its sleeps and timeouts are the machine's."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is given a virtual clock first, and then its fixtures, and runs in the time of that clock."""

    @functools.wraps(test)
    def run(**fixtures: object) -> None:
        clock = VirtualClock()
        clock.run(test(clock, **fixtures))

    signature = inspect.signature(test)
    run.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    return run
