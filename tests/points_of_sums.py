"""How large the sums of losses are that accounting makes, without making any."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pytest

from hanse_privacy.accounting import grid, pld


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """How many points each sum has, of which nothing is made."""
    found: list[float] = []

    def added(smooth: grid.Counts, pure: Mapping[float, int], width: float, _delta: float) -> float:
        found.append(grid.points(smooth, pure, width))
        return math.inf

    monkeypatch.setattr(pld, "_added", added)
    for cached in (pld.together, pld.convolved):
        cached.cache_clear()
    yield found
    for cached in (pld.together, pld.convolved):
        cached.cache_clear()
