"""Tasks with a privacy section, and what a site's budget charges for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.budget import SiteBudget
from hanse_datapod.privacy.reservation import Reservation
from hanse_fabric.messages import Task
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.correlated.optimum import matrix_of

# Two sensitivities of scale: epsilon 0.5 for each round, and no delta.
LAPLACE = {"placement": "local", "mechanism": "laplace", "clip": 2.0, "noise_multiplier": 4.0}


def terms(**section: Any) -> PrivacyTerms:
    return PrivacyTerms(privacy=Privacy.model_validate(LAPLACE | section), rounds=10, round=1, active=3)


def correlated(number: int = 1) -> PrivacyTerms:
    """Noise of the hub that is correlated over ten rounds, and charged once."""
    given = terms(
        placement="central", mechanism="dp_ftrl", min_separation=2, matrix={"name": "banded", "bands": 2}
    )  # fmt: skip
    return given.model_copy(update={"round": number, "correlation": matrix_of(given.privacy, given.rounds)})


def reservation(home: Path, given: Task, *, examples: int = 1000, **policy: Any) -> Reservation:
    budget = SiteBudget(home, PrivacyPolicy.model_validate(policy))
    made = budget.reserve(given, examples=examples, model=None)
    budget.close()
    assert isinstance(made, Reservation)
    return made


def reserved(home: Path, given: Task, **how: Any) -> dict[str, Any]:
    """What the worker is told of what was charged."""
    return dict(reservation(home, given, **how).work)
