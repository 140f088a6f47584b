"""A ledger lets a site take part in a run of correlated noise when it is its turn, and charges the run once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.privacy import LedgerHead
from hanse_privacy.accounting.events import gaussian
from hanse_privacy.ledger import NAME, Budget, Budgets, Charge, Ledger
from hanse_privacy.turns import Turn

BUDGETS = Budgets(site=Budget(3.0, 1e-5))
WHOLE = Charge("alpha", "run", "whole run", gaussian(3.0))
FIRST = Turn("alpha", "run", 1, 10, 3, "terms", "work")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path, BUDGETS)
    yield made
    made.close()


def whats(folder: Path) -> list[str]:
    return [entry["what"] for entry in read_chain(folder, NAME)]


def test_a_run_is_charged_once_and_each_turn_is_written_down(ledger: Ledger, tmp_path: Path) -> None:
    spent = {ledger.reserve(WHOLE, turn=replace(FIRST, round=number)).spent for number in (1, 4, 7, 10)}
    assert len(spent) == 1
    assert whats(tmp_path) == ["charge", *["turn"] * 4]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"round": 5}, "not before round 6"), ({"round": 4}, "not before round 6"), ({"round": 2}, "not before"),
        ({"round": 0}, "beyond the run's 10 rounds"), ({"round": 11}, "beyond the run's 10 rounds"),
        ({"round": 3, "work": "other"}, "with other work"), ({"round": 6, "terms": "other"}, "not those that the run"),
    ],
)  # fmt: skip
def test_a_site_is_refused_what_its_charge_does_not_cover(
    ledger: Ledger, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    ledger.reserve(WHOLE, turn=replace(FIRST, round=3))
    before = whats(tmp_path)
    with pytest.raises(HanseError, match=said) as caught:
        ledger.reserve(WHOLE, turn=replace(FIRST, **changes))
    assert caught.value.code is ErrorCode.POLICY
    assert whats(tmp_path) == before


def test_a_site_that_was_killed_in_its_turn_takes_the_same_turn_again(tmp_path: Path) -> None:
    for _ in range(3):
        ledger = Ledger(tmp_path, BUDGETS)
        ledger.reserve(WHOLE, turn=FIRST)
        ledger.close()
    assert whats(tmp_path) == ["charge", "turn"]
    ledger = Ledger(tmp_path, BUDGETS)
    with pytest.raises(HanseError, match="not before round 4"):
        ledger.reserve(WHOLE, turn=replace(FIRST, round=3))
    ledger.close()


def test_another_run_has_its_own_turns_and_its_own_charge(ledger: Ledger) -> None:
    one = ledger.reserve(WHOLE, turn=FIRST).spent
    other = ledger.reserve(replace(WHOLE, run="next"), turn=replace(FIRST, run="next", round=2)).spent
    assert other > one


def test_a_run_beyond_the_budget_takes_no_turn(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(HanseError, match="budget forbids it"):
        ledger.reserve(replace(WHOLE, event=gaussian(0.5)), turn=FIRST)
    assert whats(tmp_path) == []


def test_other_noise_for_the_same_run_is_refused(ledger: Ledger) -> None:
    ledger.reserve(WHOLE, turn=FIRST)
    with pytest.raises(HanseError, match="asked again as") as caught:
        ledger.reserve(replace(WHOLE, event=gaussian(4.0)), turn=replace(FIRST, round=4))
    assert caught.value.code is ErrorCode.CONFLICT


def test_a_ledger_that_lacks_what_others_have_seen_lets_nobody_take_a_turn_and_says_the_old_one_again(
    ledger: Ledger, tmp_path: Path
) -> None:
    first = ledger.reserve(WHOLE, turn=FIRST)
    ledger.require(LedgerHead.model_construct(entries=9, head="a" * 64, signature=b""))
    before = whats(tmp_path)
    with pytest.raises(HanseError, match="older than what it has signed"):
        ledger.reserve(WHOLE, turn=replace(FIRST, round=4))
    assert ledger.reserve(WHOLE, turn=FIRST) == ledger.reserve(WHOLE) == first
    assert whats(tmp_path) == before == ["charge", "turn", "missing"]
