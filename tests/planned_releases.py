"""A run's plan of releases of three kinds, and what an accountant makes of it: for tests of plans and of ledgers."""

from __future__ import annotations

from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.events import ReleaseEvent, gaussian
from hanse_privacy.accounting.plan import ReleasePlan

DELTA = 1e-5
METRICS, STEP, BEFORE = ReleaseEvent("pure", 0.05), gaussian(1.1, 0.02), gaussian(20.0)
ROUNDS, STEPS = 10, 47
RUN = ReleasePlan.of([(STEP, ROUNDS * STEPS), (BEFORE, 1), (METRICS, ROUNDS)], ROUNDS)
assert RUN is not None


def epsilon(*events: tuple[ReleaseEvent, int], plan: ReleasePlan | None = None, delta: float = DELTA) -> float:
    accountant = make_accountant("pld", plan)
    for event, count in events:
        accountant.compose(event, count)
    return accountant.epsilon(delta)


def plan(*releases: tuple[ReleaseEvent, int], rounds: int = ROUNDS) -> ReleasePlan:
    made = ReleasePlan.of(releases, rounds)
    assert made is not None
    return made
