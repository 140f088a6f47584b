"""What a site tells of itself is what its policy opens, and no more; of other projects it says nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hanse_datapod.agent.telling import Telling, fitting
from hanse_datapod.home.pause import pause, resume
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_datapod.policy.privacy import BudgetPolicy, PrivacyPolicy
from hanse_datapod.policy.site_policy import OutputPolicy, Policy
from hanse_datapod.policy.telling import TellPolicy
from hanse_datapod.privacy.books import restore_ledger, spent_of
from hanse_fabric.messages import BudgetTold, Presence
from hanse_fabric.messages.tasks import MOST_RULE, MOST_RULES
from hanse_fabric.subjects import PRESENCE
from hanse_privacy.accounting.events import gaussian
from hanse_privacy.ledger import Budgets, Charge, Ledger
from unit.datapod.site_actors import Site

OPEN = TellPolicy(rules=True, budget=True, device=False)


def test_a_policy_that_says_nothing_opens_nothing_but_the_device_and_that_the_site_is_paused(tmp_path: Path) -> None:
    telling = Telling(tmp_path, Policy(), "triage")
    assert telling.fields("cuda:0") == {"device": "cuda:0", "rules": None, "budget": None, "paused": None}
    pause(tmp_path, "the ward moves")
    told = telling.fields("cpu")
    assert told["paused"] is True
    assert "ward" not in str(told), "why it is paused stays here"
    resume(tmp_path)
    assert telling.fields("cpu")["paused"] is None


def test_what_is_opened_is_told_of_this_project_alone(tmp_path: Path) -> None:
    privacy = PrivacyPolicy(epsilon=20.0, project=BudgetPolicy(epsilon=8.0, delta=1e-6))
    policy = Policy(projects=("triage", "secret-study"), privacy=privacy, tell=OPEN)
    telling = Telling(tmp_path, policy, "triage")
    told = telling.fields("cuda:0")
    assert told["device"] == ""
    assert any("at most epsilon 20" in rule for rule in told["rules"])
    assert "secret-study" not in str(told)
    assert told["budget"] == BudgetTold(spent=0.0, delta=1e-6, allowed=8.0)
    restore_ledger(tmp_path, privacy, "disk of 3 May", ("triage", 2.5))
    restore_ledger(tmp_path, privacy, "disk of 3 May", ("secret-study", 3.0))
    spent = telling.fields("cpu")["budget"]
    assert (spent.spent, spent.allowed) == (pytest.approx(2.5), 8.0), "not what others have spent"
    message = Presence(project="triage", participant="north", version="1", sent_at="2026-01-01T00:00:00Z", **told)
    assert Presence.decode(message.encode()) == message
    ledger = tmp_path / "privacy.jsonl"
    ledger.write_bytes(ledger.read_bytes().replace(b"2.5", b"0.5"))
    assert Telling(tmp_path, policy, "triage").fields("cpu")["budget"] is None, "a ledger that was changed says nothing"


async def test_the_agent_sends_it(site: Site) -> None:
    site.policy = Policy(tell=OPEN)
    subject = PRESENCE.of(project="triage", participant="north")
    async with asyncio.timeout(60), site.hub.follow(PRESENCE.stream, subject) as records:
        await site.start()
        found = Presence.decode((await anext(records)).data)
    assert found.device == ""
    assert found.rules is not None
    assert found.budget == BudgetTold(spent=0.0, delta=1e-5)


HIDING = [
    Policy(tell=OPEN, privacy=PrivacyPolicy(required=True, epsilon=20.0)),
    Policy(tell=OPEN, privacy=PrivacyPolicy(epsilon=20.0, uncovered=("evaluation",))),
    Policy(tell=OPEN, privacy=PrivacyPolicy(epsilon=20.0), masking=MaskingPolicy(required=True)),
]


@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("policy", HIDING)
def test_who_keeps_its_number_of_examples_tells_nothing_spent_from_the_first_charge_that_follows_from_it(
    tmp_path: Path, policy: Policy, rate: float
) -> None:
    """At a rate of 1, too: where it were told then, it would say that a batch has all examples."""
    open_site = Policy(tell=OPEN, privacy=PrivacyPolicy(epsilon=20.0))
    telling = Telling(tmp_path, policy, "triage")
    restore_ledger(tmp_path, policy.privacy, "disk of 3 May", ("triage", 2.5))
    assert telling.fields("cpu")["budget"].spent == pytest.approx(2.5, abs=1e-3)
    ledger = Ledger(tmp_path, Budgets())
    ledger.reserve(Charge("other", "a" * 12, "1", gaussian(2.0, rate), 10, "dp_sgd, local: 2 per clip of 1"))
    assert telling.fields("cpu")["budget"].spent == pytest.approx(2.5, abs=1e-3), (
        "another project's charge is not in it"
    )
    ledger.reserve(Charge("triage", "a" * 12, "1", gaussian(2.0, rate), 10, "dp_sgd, local: 2 per clip of 1"))
    ledger.close()
    assert telling.fields("cpu")["budget"] is None
    assert spent_of(tmp_path, policy.privacy, "triage", hidden=False) is not None
    assert Telling(tmp_path, open_site, "triage").fields("cpu")["budget"].spent > 2.5, "who tells examples tells this"


LONG = Policy(tell=OPEN, outputs=OutputPolicy(metrics=tuple(f"metric_number_{number}" for number in range(60))))


def test_rules_that_are_longer_or_more_than_a_message_takes_are_cut_and_say_so() -> None:
    assert fitting(["short", "x" * MOST_RULE]) == ("short", "x" * MOST_RULE)
    [cut] = fitting(["x" * (MOST_RULE + 1)])
    assert len(cut) == MOST_RULE
    assert cut.endswith("(cut: the rule is longer than a message takes)")
    many = fitting([f"rule {number}" for number in range(MOST_RULES + 1)])
    assert len(many) == MOST_RULES
    assert many[-2:] == (f"rule {MOST_RULES - 2}", "further rules are not told: there are more than a message takes")
    assert len(fitting(["rule"] * MOST_RULES)) == MOST_RULES


async def test_an_agent_with_a_long_policy_lives_and_tells_it_cut(site: Site) -> None:
    site.policy = LONG
    subject = PRESENCE.of(project="triage", participant="north")
    async with asyncio.timeout(60), site.hub.follow(PRESENCE.stream, subject) as records:
        await site.start()
        found = Presence.decode((await anext(records)).data)
    assert any("(cut:" in rule for rule in found.rules or ())
