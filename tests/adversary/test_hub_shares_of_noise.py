"""A hub that has sites make less noise together than each one's ledger is charged for: sites draw their shares by an
epsilon each, some take theirs off again, or a site counts its charge otherwise than shares are made.

What is left in a sum is reckoned from the scales of the shares that honest sites have drawn, not from a few draws.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, refusals
from adversary.works import TARGET, without
from hanse_datapod.masking import plan as site_plan
from hanse_fabric.chain import read_chain
from hanse_fabric.messages import PrivacyTerms
from hanse_fabric.messages.masking import Ring
from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.accounting import terms
from hanse_privacy.ledger import NAME
from hanse_privacy.noise import aggregate
from hanse_privacy.noise import site as drawn
from hanse_privacy.noise.distributed import NoiseShare

EPSILON, NOTHING = 2.0, 1e4


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> dict[str, NoiseShare]:
    """What each site draws, by name, as it draws it."""
    made: dict[str, NoiseShare] = {}
    share = drawn._share

    def seen(asked: PrivacyTerms, participant: str, plan: Any) -> NoiseShare:
        made[participant] = share(asked, participant, plan)
        return made[participant]

    monkeypatch.setattr(drawn, "_share", seen)
    return made


def asked(hub: LyingHub, **section: Any) -> PrivacyTerms:
    privacy = Privacy(placement="distributed", mechanism="discrete_gaussian", **section)
    return PrivacyTerms(privacy=privacy, rounds=1, round=1, active=len(hub.stage.names))


async def summed(hub: LyingHub, privacy: PrivacyTerms, session: str = "s1") -> str:
    """Why there is no sum; "" where there is one."""
    plan = hub.plan(bits=64).model_copy(update={"default": Ring(bits=64, fraction=30, bound=64.0)})
    results = await hub.ask(
        *(hub.task(name, session, session=session, plan=plan, privacy=privacy, model=MODEL) for name in hub.stage.names)
    )
    if refusals(results):
        return "; ".join(refusals(results).values())
    return (await hub.ask_masks(results, session)).reason


def charged(hub: LyingHub, name: str) -> float:
    """The deviation of the noise that a site's ledger was charged for."""
    events = [entry["event"] for entry in read_chain(hub.stage.sites[name].home, NAME) if entry["what"] == "charge"]
    [noise] = [event["amount"] for event in events if event["kind"] == "gaussian"]
    return 2 * float(noise)  # of a clip of 1, which moves a sum by two


def left(shares: dict[str, NoiseShare], *honest: str) -> float:
    """The deviation of what the shares of some make together."""
    return math.sqrt(sum((shares[name].steps * shares[name].step) ** 2 for name in honest))


async def test_no_sum_has_noise_by_one_sites_epsilon_and_next_to_none_by_the_others(
    attacked: Attacked, shares: dict[str, NoiseShare]
) -> None:
    async with attacked(sites=9) as hub:
        others = dict.fromkeys(without(hub, TARGET), NOTHING)
        why = await summed(hub, asked(hub, epsilon=EPSILON, site_epsilon=others))
        assert "privacy.site_epsilon" in why
        assert not shares


@pytest.mark.control("test_no_sum_has_noise_by_one_sites_epsilon_and_next_to_none_by_the_others")
async def test_control_where_each_may_have_an_epsilon_one_pays_for_three_times_the_noise_that_there_is(
    attacked: Attacked, shares: dict[str, NoiseShare], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (terms, aggregate):
        monkeypatch.setattr(module, "require_one_epsilon", lambda _: None)
    async with attacked(sites=9) as hub:
        others = dict.fromkeys(without(hub, TARGET), NOTHING)
        assert await summed(hub, asked(hub, epsilon=EPSILON, site_epsilon=others)) == ""
        assert left(shares, *hub.stage.names) < 0.34 * charged(hub, TARGET)


FEARFUL: dict[str, Any] = {"sites": 8, "masking": {"colluding": 5}}


async def test_the_noise_is_whole_without_the_shares_of_as_many_as_a_site_fears(
    attacked: Attacked, shares: dict[str, NoiseShare]
) -> None:
    async with attacked(**FEARFUL) as hub:
        why = await summed(hub, asked(hub, epsilon=EPSILON, colluding=4))
        assert "masking.colluding" in why
        assert not shares
        assert await summed(hub, asked(hub, epsilon=EPSILON, colluding=5), "s2") == ""
        assert left(shares, *hub.stage.names[:3]) >= charged(hub, TARGET)


@pytest.mark.control("test_the_noise_is_whole_without_the_shares_of_as_many_as_a_site_fears")
async def test_control_where_colluding_sites_shares_count_three_honest_ones_make_less_than_is_charged(
    attacked: Attacked, shares: dict[str, NoiseShare], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_plan, "shares_wanted", lambda *_: 1)
    async with attacked(**FEARFUL) as hub:
        assert await summed(hub, asked(hub, epsilon=EPSILON)) == ""
        assert left(shares, *hub.stage.names[:3]) < 0.62 * charged(hub, TARGET)


COUNTED: dict[str, Any] = {"privacy": {"accountant": "rdp", "epsilon": 2.5}}


async def test_a_site_is_charged_for_the_noise_that_there_is_however_it_counts(
    attacked: Attacked, shares: dict[str, NoiseShare]
) -> None:
    async with attacked(**COUNTED) as hub:
        assert await summed(hub, asked(hub, epsilon=EPSILON)) == ""
        assert left(shares, *hub.stage.names) >= charged(hub, TARGET)


@pytest.mark.control("test_a_site_is_charged_for_the_noise_that_there_is_however_it_counts")
async def test_control_where_a_charge_is_made_by_the_sites_own_accountant_it_is_for_more_than_there_is(
    attacked: Attacked, shares: dict[str, NoiseShare], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "accountant_of", lambda _placement, own: own)
    async with attacked(**COUNTED) as hub:
        assert await summed(hub, asked(hub, epsilon=EPSILON)) == ""
        assert left(shares, *hub.stage.names) < 0.95 * charged(hub, TARGET)
