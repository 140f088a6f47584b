"""A hub that asks two homes of one machine, which share a ledger for they have the same data, under one name at once:
of two answers with noise of their own the ledger must not count one.

Two copies of one answer under independent noise are as much as one under half the noise.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, refusals
from adversary.stage import Regression
from hanse_datapod.privacy import budget
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import PrivacyTerms
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.ledger import NAME

HOMES = 2
TERMS = PrivacyTerms(
    privacy=Privacy(placement="local", mechanism="gaussian", noise_multiplier=50.0), rounds=1, round=1, active=HOMES
)


class Together(Regression):
    """Begins its work when all homes' charges are made."""

    def __init__(self, barrier: asyncio.Barrier) -> None:
        super().__init__(0)
        self._barrier = barrier

    async def work(self, *asked: Any) -> Any:
        async with asyncio.timeout(30):
            await self._barrier.wait()
        return await super().work(*asked)


async def charges_for_two_answers(attacked: Attacked, folder: Path) -> int:
    """How often the ledger was charged for two answers, of which each would have noise of its own."""
    barrier, ledger = asyncio.Barrier(HOMES), folder / "ledger"
    rules = {"masking": {"required": False}, "privacy": {"required": True, "epsilon": 10.0, "ledger": ledger}}
    async with attacked(sites=HOMES, worker=lambda _: Together(barrier), **rules) as hub:
        tasks = [hub.task(name, mode=None, model=MODEL, id="a" * 32, privacy=TERMS) for name in hub.stage.names]
        results = await hub.ask(*tasks)
        assert not refusals(results)
    return sum(entry["what"] == "charge" for entry in read_chain(ledger, NAME))


async def test_two_homes_that_are_asked_under_one_name_are_both_charged(attacked: Attacked, tmp_path: Path) -> None:
    assert await charges_for_two_answers(attacked, tmp_path) == HOMES


@pytest.mark.control("test_two_homes_that_are_asked_under_one_name_are_both_charged")
async def test_control_where_charges_do_not_say_of_which_home_they_are_the_second_answer_is_free(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "name_of", lambda _home: "")
    assert await charges_for_two_answers(attacked, tmp_path) == 1
