"""The search for noise ends after so many guesses, whatever the accountant tells of them: each may take seconds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hanse_privacy.accounting.calibration import _closed_in

MOST = 60


@pytest.mark.parametrize(("too_much", "enough"), [(50.0, -1e-300), (1e-300, -50.0), (50.0, -50.0), (1e-300, -1e-300)])
@pytest.mark.parametrize("least", [1.0001, 1.3, 1.9999])
def test_a_search_ends_where_excess_jumps(least: float, too_much: float, enough: float) -> None:
    guesses: list[float] = []

    def excess(noise: float) -> float:
        guesses.append(noise)
        return too_much if noise < least else enough

    searched: Callable[[float], float] = excess
    found = _closed_in(searched, (1.0, too_much), (2.0, enough))
    assert least <= found <= least * (1 + 1e-4)
    assert len(guesses) <= MOST
