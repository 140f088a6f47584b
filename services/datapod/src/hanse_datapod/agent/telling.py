"""What a site's signs of life say of the site itself, as far as its policy opens it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hanse_datapod.agent.preflight import tells_examples
from hanse_datapod.home.pause import paused
from hanse_datapod.policy.in_words import in_words
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.books import spent_of
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import BudgetTold
from hanse_fabric.messages.tasks import MOST_RULE, MOST_RULES
from hanse_site.link import SignOfLife

_CUT = " ... (cut: the rule is longer than a message takes)"
_MORE = "further rules are not told: there are more than a message takes"


class Telling:
    """Of one home, in one project. Its methods block; one thread at a time calls them."""

    def __init__(self, home: Path, policy: Policy, project: str) -> None:
        self._home, self._policy, self._project = home, policy, project
        # Other projects are none of this one's business.
        self._rules = fitting(in_words(policy.model_copy(update={"projects": None})))
        self._spent: tuple[int, BudgetTold | None] | None = None

    def fields(self, device: str) -> SignOfLife:
        """What the policy lets the hub know."""
        tell = self._policy.tell
        return {
            "device": device if tell.device else "",
            "rules": self._rules if tell.rules else None,
            "budget": self._budget() if tell.budget else None,
            "paused": True if paused(self._home) is not None else None,
        }

    def _budget(self) -> BudgetTold | None:
        """Composed anew only when something was charged; None where the ledger cannot be read, or what is spent would
        tell a number of examples that the policy keeps."""
        ledger = (self._policy.privacy.ledger or self._home) / "privacy.jsonl"
        size = ledger.stat().st_size if ledger.exists() else 0
        if self._spent is None or self._spent[0] != size:
            try:
                hidden = not tells_examples(self._policy)
                self._spent = size, spent_of(self._home, self._policy.privacy, self._project, hidden=hidden)
            except HanseError:
                return None  # the site's own status says why
        return self._spent[1]


def fitting(rules: Sequence[str]) -> tuple[str, ...]:
    """As much of rules as a `Presence` takes; what is cut says so."""
    told = [rule if len(rule) <= MOST_RULE else rule[: MOST_RULE - len(_CUT)] + _CUT for rule in rules]
    return tuple(told if len(told) <= MOST_RULES else [*told[: MOST_RULES - 1], _MORE])
