"""What a site tells of itself is what its policy opens, and no more; of other projects it says nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hanse_datapod.agent.telling import Telling
from hanse_datapod.home.pause import pause, resume
from hanse_datapod.policy.privacy import BudgetPolicy, PrivacyPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.policy.telling import TellPolicy
from hanse_datapod.privacy.budget import restore_ledger
from hanse_fabric.messages import BudgetTold, Presence
from hanse_fabric.subjects import PRESENCE
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
