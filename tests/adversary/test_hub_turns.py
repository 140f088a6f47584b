"""A hub that asks a site too early, or twice in a round, in a run whose noise is made for sites that rest between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import Outcome, PrivacyTerms, Result
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.ledger import NAME
from hanse_privacy.turns import Turns

OPEN: dict[str, Any] = {"masking": {"required": False}}
SECTION = Privacy.model_validate(
    {
        "placement": "central", "mechanism": "dp_ftrl", "noise_multiplier": 40.0, "min_separation": 3,
        "matrix": {"name": "banded", "bands": 3},
    }
)  # fmt: skip


async def asked(hub: LyingHub, number: int, *, step: str = "", moved: float = 0.0, rounds: int = 9) -> Result:
    """What a site says to round `number`."""
    terms = PrivacyTerms(
        privacy=SECTION, rounds=rounds, round=number, active=3, correlation=matrix_of(SECTION, 9)
    )  # fmt: skip
    model = MODEL + np.float32(moved)
    task = hub.task("site-0", step or f"r{number}-train", model=model, mode=None, privacy=terms, round=number)
    return (await hub.ask(task))["site-0"]


async def test_a_site_refuses_a_round_before_its_turn_and_another_work_of_the_same_round(attacked: Attacked) -> None:
    async with attacked(**OPEN) as hub:
        for number in (1, 4):
            assert (await asked(hub, number)).outcome is Outcome.DONE
        early = await asked(hub, 6)
        assert (early.outcome, early.code) == (Outcome.REFUSED, "policy")
        assert "it took part in round 4" in early.reason
        assert "not before round 7" in early.reason
        twice = await asked(hub, 4, step="r4-train-a2", moved=1.0)
        assert "it has taken part in that round already, with other work" in twice.reason
        assert (await asked(hub, 4, step="r4-train-a3")).outcome is Outcome.DONE  # the same once more tells no more
        other = await asked(hub, 7, rounds=8)
        assert "not those that the run was charged for" in other.reason or "asked again as" in other.reason
        site = hub.stage.sites["site-0"]
        await site.stop()
        await site.start()
        assert "not before round 7" in (await asked(hub, 5)).reason
        assert (await asked(hub, 7, step="r7-train-a2")).outcome is Outcome.DONE
        whats = [entry["what"] for entry in read_chain(site.home, NAME)]
        assert whats == ["charge", "turn", "turn", "turn"]


@pytest.mark.control("test_a_site_refuses_a_round_before_its_turn_and_another_work_of_the_same_round")
async def test_control_where_no_turns_are_kept_a_hub_has_every_round_for_one_charge(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Turns, "is_new", lambda *_: True)
    async with attacked(**OPEN) as hub:
        for number in (1, 2, 3):
            assert (await asked(hub, number)).outcome is Outcome.DONE
        assert (await asked(hub, 3, step="r3-train-a2", moved=1.0)).outcome is Outcome.DONE
        whats = [entry["what"] for entry in read_chain(hub.stage.sites["site-0"].home, NAME)]
        assert whats.count("charge") == 1
