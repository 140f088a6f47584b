"""What a scope of a ledger was charged, summed by event, and how an accountant adds it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from hanse_privacy.accounting.accountant import AccountantName, make_accountant
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.accounting.plan import ReleasePlan, is_normal

AddedBy = Literal["nothing", "one kind", "plan", "filter", "renyi"]
"""How charges are added up: there are none; they are all of one kind; they are within the plan of the run that was the
first; by the filter for several kinds; all by Renyi accounting."""


@dataclass(slots=True)
class Total:
    """The charges of a scope.

    Attributes:
        events: counts of them.
        plan: of the run that was charged first: what another run says comes after a release, and is no plan of these.
    """

    events: Counter[ReleaseEvent] = field(default_factory=Counter)
    plan: ReleasePlan | None = None

    def add(self, charges: Iterable[tuple[ReleaseEvent, int]], plan: ReleasePlan | None) -> None:
        """Add charges of one run, which has said its plan before its first one, or none."""
        if not self.events:
            self.plan = plan
        for event, count in charges:
            self.events[event] += count

    def with_more(self, charges: Iterable[tuple[ReleaseEvent, int]], plan: ReleasePlan | None) -> Total:
        """As it would be."""
        made = Total(Counter(self.events), self.plan)
        made.add(charges, plan)
        return made

    def epsilon(self, delta: float, by: AccountantName) -> float:
        """What all of them cost together."""
        accountant = make_accountant(by, self.plan)
        for event, count in self.events.items():
            accountant.compose(event, count)
        return accountant.epsilon(delta)

    def added_by(self, by: AccountantName) -> AddedBy:
        """How an accountant adds them up."""
        if not self.events:
            return "nothing"
        if by == "rdp":
            return "renyi"
        kinds = {"normal" if is_normal(event) else event for event in self.events if event.kind != "chance"}
        if len(kinds) < 2:
            return "one kind"
        return "plan" if self.plan is not None and self.plan.reached(self.events) is not None else "filter"
