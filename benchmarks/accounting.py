"""The ledger's epsilon over that of an accountant of its own (`tests/privacy_oracle.py`), over a grid of runs."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

from scratch import scratch

from hanse_privacy.accounting.events import ReleaseEvent, gaussian
from hanse_privacy.accounting.plan import ReleasePlan
from hanse_privacy.ledger import Budget, Budgets, Charge, Ledger
from privacy_oracle import epsilon_of_mixed, epsilon_of_sampled

NOISE = (0.5, 0.8, 1.0, 2.0, 5.0, 20.0)
RATES = (1.0, 0.1, 0.01, 0.001)
STEPS = (1, 100, 10_000)
DELTAS = (1e-3, 1e-5, 1e-8)
MIXED: tuple[tuple[tuple[ReleaseEvent, int], ...], ...] = (
    ((gaussian(1.0, 0.02), 1000), (ReleaseEvent("pure", 0.1), 20)),
    ((gaussian(1.0, 0.02), 1000), (gaussian(20.0), 1), (ReleaseEvent("pure", 0.1), 20)),
    ((gaussian(0.7, 0.004), 5000), (gaussian(30.0), 1)),
    ((gaussian(10.0), 20), (ReleaseEvent("pure", 0.05), 40)),
    ((gaussian(10.0), 20), (gaussian(15.0), 1), (ReleaseEvent("pure", 0.3), 4)),
)
"""Runs of several kinds: steps on samples or normal noise on all, a preparation, metrics."""
LARGEST, SMALLEST = 20.0, 0.01
"""Epsilons that a run may have for it to be compared."""


def measure_accounting() -> dict[str, float]:
    """The largest and the smallest ratio."""
    ratios = []
    for noise, rate, steps, delta in itertools.product(NOISE, RATES, STEPS, DELTAS):
        reference = epsilon_of_sampled(noise, rate, steps, delta)
        if not SMALLEST <= reference <= LARGEST:
            continue
        ratios.append(ledger_epsilon(noise, rate, steps, delta) / reference)
        if not 1 <= ratios[-1] <= 1.01:
            print(f"  z {noise:g}, q {rate:g}, T {steps}, delta {delta:g}: {ratios[-1]:.4f}", file=sys.stderr)
    for releases, delta in itertools.product(MIXED, DELTAS):
        ratios.append(_over_mixed(releases, delta))
        if not 1 <= ratios[-1] <= 1.01:
            print(f"  {releases}, delta {delta:g}: {ratios[-1]:.4f}", file=sys.stderr)
    print(f"  {len(ratios)} runs compared, {len(MIXED) * len(DELTAS)} of several kinds")
    return {
        # To the side that is the worse one, so that no rounding makes a bar of what is short of it.
        "pld_over_reference_max": math.ceil(max(ratios) * 1e4) / 1e4,
        "pld_over_reference_min": math.floor(min(ratios) * 1e4) / 1e4,
    }


def ledger_epsilon(noise: float, rate: float, steps: int, delta: float) -> float:
    """What a ledger says is spent after one run, charged in its rounds."""
    with scratch("accounting") as folder:
        ledger = Ledger(Path(folder), Budgets(site=Budget(1e6, delta)))
        try:
            ledger.reserve(Charge("bench", "0" * 12, "r1", gaussian(noise, rate), steps))
            return ledger.site_balance().spent
        finally:
            ledger.close()


def _over_mixed(releases: tuple[tuple[ReleaseEvent, int], ...], delta: float) -> float:
    """What a ledger tells of a run that has said its plan, over what its releases cost together."""
    reference = epsilon_of_mixed([(event.kind, event.amount, event.rate, count) for event, count in releases], delta)
    plan = ReleasePlan.of(releases, rounds=max(count for _, count in releases))
    with scratch("accounting") as folder:
        ledger = Ledger(Path(folder), Budgets(site=Budget(1e6, delta)))
        try:
            for at, (event, count) in enumerate(releases):
                ledger.reserve(Charge("bench", "0" * 12, f"r{at}", event, count), plan=plan)
            return ledger.site_balance().spent / reference
        finally:
            ledger.close()
