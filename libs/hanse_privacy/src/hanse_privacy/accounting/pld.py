"""Accounting by privacy loss distributions (Koskela et al. 2020; Doroshenko et al. 2022), by dp-accounting.

Distributions are discretized from above: the epsilon is never below the true one. Composing convolves, so many
distinct events take seconds; the ledger's many rounds are few distinct events.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from hanse_fabric.errors import invalid
from hanse_privacy.accounting.events import Event
from hanse_privacy.accounting.rdp import check_delta

INTERVAL = 1e-3
"""Width of the discretization of the privacy loss; a release's epsilon is rounded up by at most so much."""


class PldAccountant:
    """See `Accountant`. Knows no `concentrated` events: rho does not tell the distribution.

    For `laplace`, many coordinates are taken for one that bears all of the L1 sensitivity; for `pure`, the release is
    taken for randomized response, which dominates it.
    """

    def __init__(self) -> None:
        self._events: Counter[Event] = Counter()
        self._chance = 0.0

    def compose(self, event: Event, count: int = 1) -> None:
        """See `Accountant.compose`."""
        if count < 1:
            raise invalid("count", count, "at least 1")
        if event.kind == "concentrated":
            raise invalid("event.kind", event.kind, "a distribution that is known", hint="use the accountant rdp")
        if event.kind == "chance":
            self._chance += event.amount * count
            return
        self._events[event] += count

    def epsilon(self, delta: float) -> float:
        """See `Accountant.epsilon`."""
        check_delta(delta)
        if delta < self._chance:
            return math.inf
        delta -= self._chance
        basic = math.fsum(event.epsilon * count for event, count in self._events.items())
        if not self._events or delta == 0:
            return basic
        total: Any = None
        for event, count in self._events.items():
            one = self._distribution(event, count)
            total = one if total is None else total.compose(one)
        return min(basic, float(total.get_epsilon_for_delta(delta)))

    def _distribution(self, event: Event, count: int) -> Any:
        from dp_accounting.pld import common
        from dp_accounting.pld import privacy_loss_distribution as made

        width = INTERVAL
        if event.kind == "gaussian" and event.rate == 1:  # exact, and only one to convolve
            return made.from_gaussian_mechanism(event.amount / math.sqrt(count), value_discretization_interval=width)
        if event.kind == "gaussian":
            one = made.from_gaussian_mechanism(
                event.amount, sampling_prob=event.rate, value_discretization_interval=width
            )
        elif event.kind == "laplace":
            one = made.from_laplace_mechanism(event.amount, value_discretization_interval=width)
        else:
            terms = common.DifferentialPrivacyParameters(event.amount, 0.0)
            one = made.from_privacy_parameters(terms, value_discretization_interval=width)
        return one.self_compose(count) if count > 1 else one
