"""A hub that names as many steps and rounds as messages let, for small samples and any noise: a site reckons in its
agent what they cost, and finds the noise that keeps an epsilon, before it does anything else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adversary.test_hub_plans import counted
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.budget import SiteBudget
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import PrivacyTerms, TaskKind
from hanse_fabric.messages.privacy import MOST_ROUNDS, Privacy
from hanse_privacy.accounting import grid
from hanse_privacy.accounting.calibration import noise_for
from unit.datapod.site_actors import task

__all__ = ["counted"]
EXAMPLES = 1_000_000
STEPS = 100_000_000
"""Of one round, as many as a job may name."""
MOST_SUMS = 60
"""For one task and the question before its run: noise is found by some twenty."""
MANY: dict[str, tuple[int, dict[str, Any], dict[str, Any]]] = {
    "as many as there are": (MOST_ROUNDS, {"steps": STEPS}, {"epsilon": 1.0}),
    "and as many that are charged": (MOST_ROUNDS, {"epochs": 100_000}, {"noise_multiplier": 1e6}),
    "noise of one round": (1, {"steps": STEPS, "batch_size": 10}, {"epsilon": 1.0}),
    "charges of a hundred": (100, {"steps": STEPS}, {"noise_multiplier": 2.0}),
    "next to no delta": (MOST_ROUNDS, {"steps": STEPS}, {"epsilon": 1.0, "delta": 1e-300}),
    "nearly all in a sample": (10, {"steps": STEPS, "batch_size": EXAMPLES - 1}, {"noise_multiplier": 1e6}),
    "metrics beside": (
        MOST_ROUNDS, {"steps": 1000}, {"noise_multiplier": 0.3, "metrics": {"epsilon": 1e-4, "bounds": {"loss": 1.0}}},
    ),
}  # fmt: skip
"""Rounds, what a round trains, and its noise."""


@pytest.fixture
def asked(tmp_path: Path, counted: list[float]) -> Iterator[Any]:
    """Asks a site's budget about a run and charges its first task, and says of how many points each sum was."""

    def ask(rounds: int, train: dict[str, Any], section: dict[str, Any]) -> list[float]:
        noise_for.cache_clear()
        privacy = Privacy.model_validate({"placement": "local", "mechanism": "dp_sgd"} | section)
        terms = PrivacyTerms(privacy=privacy, rounds=rounds, round=1, active=3)
        config = {"kinds": ["train"], "model": {"name": "linear"}, "train": {"batch_size": 1} | train}
        budget = SiteBudget(tmp_path, PrivacyPolicy(epsilon=1000.0))
        question = task("preflight", kind=TaskKind.CHECK, model=None, config=config, privacy=terms)
        first = task("r1-train", config=config, privacy=terms)
        for each in (
            lambda: budget.affords(question, rounds, examples=EXAMPLES),
            lambda: budget.reserve(first, examples=EXAMPLES, model=None),
        ):
            try:
                each()
            except HanseError as error:  # no noise is enough, or it costs too much: said at once
                if error.code not in (ErrorCode.INVALID_INPUT, ErrorCode.POLICY):
                    raise
        budget.close()
        return counted

    yield ask
    noise_for.cache_clear()


@pytest.mark.parametrize(("rounds", "train", "section"), MANY.values(), ids=MANY)
def test_no_number_of_steps_and_rounds_keeps_a_site_reckoning(
    asked: Any, rounds: int, train: dict[str, Any], section: dict[str, Any]
) -> None:
    sums = asked(rounds, train, section)
    assert max(sums, default=0.0) <= grid.MOST_POINTS
    assert len(sums) <= MOST_SUMS


@pytest.mark.control("test_no_number_of_steps_and_rounds_keeps_a_site_reckoning")
@pytest.mark.parametrize("name", ["noise of one round", "charges of a hundred"])
def test_control_where_points_are_not_counted_many_steps_take_millions_of_them(
    asked: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "MOST_POINTS", 1 << 40)
    assert max(asked(*MANY[name])) > 4 * (1 << 19)
