"""A hub that says of a run that it will ask little of it, and asks much: a ledger adds up by that plan, so what it says
would be what is charged, whatever has left.
"""

from __future__ import annotations

from typing import Any

import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, refusals
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import balances
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import PrivacyTerms
from hanse_fabric.messages.privacy import Privacy, PrivateMetrics
from hanse_privacy.accounting.plan import Plan
from hanse_privacy.ledger import NAME, PLAN
from privacy_oracle import epsilon_of_mixed

ASKED, DELTA = 12, 1e-5
RULES: dict[str, Any] = {
    "sites": 2, "masking": {"required": False}, "minimum_participants": 1,
    "privacy": {"required": True, "epsilon": 100.0},
}  # fmt: skip


def little(rounds: int) -> PrivacyTerms:
    """Of so many rounds, with metrics that have noise of their own."""
    metrics = PrivateMetrics(epsilon=0.2, bounds={"loss": 1.0})
    privacy = Privacy(placement="local", mechanism="gaussian", noise_multiplier=10.0, metrics=metrics)
    return PrivacyTerms(privacy=privacy, rounds=rounds, round=1, active=1)


async def charged_and_true(hub: LyingHub, said: int) -> tuple[float, float]:
    """What a site's ledger tells after many rounds of a run that was said to have one, and what they have told."""
    for number in range(ASKED):
        asked = hub.task("site-0", f"r{number}-train", mode=None, model=MODEL, round=1, privacy=little(said))
        assert not refusals(await hub.ask(asked))
    home = hub.stage.sites["site-0"].home
    entries = list(read_chain(home, NAME))
    assert [entry["what"] for entry in entries].count(PLAN) == 1
    charges = [entry for entry in entries if entry["what"] == "charge"]
    assert len(charges) == 2 * ASKED
    events = [
        (each["event"]["kind"], each["event"]["amount"], each["event"]["rate"], each["count"]) for each in charges
    ]
    spent = next(row.spent for row in balances(home, PrivacyPolicy(delta=DELTA)) if row.scope == "site")
    return spent, epsilon_of_mixed(events, DELTA)


@pytest.mark.parametrize("said", [1, 1000])
async def test_what_a_hub_says_of_a_run_makes_nothing_cheaper_that_it_asks(attacked: Attacked, said: int) -> None:
    async with attacked(**RULES) as hub:
        spent, true = await charged_and_true(hub, said)
    assert spent >= true


@pytest.mark.control("test_what_a_hub_says_of_a_run_makes_nothing_cheaper_that_it_asks")
async def test_control_where_a_plan_is_charged_as_it_was_said_the_ledger_tells_less_than_has_left(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plan, "reached", lambda self, _done: self.releases)
    async with attacked(**RULES) as hub:
        spent, true = await charged_and_true(hub, 1)
    assert spent < 0.5 * true
