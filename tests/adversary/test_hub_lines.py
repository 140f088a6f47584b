"""A hub that sends models of one line, so far apart that no answer is near to another. At one it asks all sites,
at two others all but one: from the sums of these the first follows without that site, where updates are linear.

Where a loss is quadratic that is exact. The rule on near answers sees nothing of it: fixed members end it.
"""

from __future__ import annotations

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.stage import Array
from adversary.works import TARGET, summed, without
from hanse_datapod.policy.masking import MaskingPolicy

FIXED = {"masking": {"members": "fixed"}}
ALONG = np.linspace(-1.0, 2.0, len(MODEL))


async def one_sites_update(hub: LyingHub) -> tuple[Array | None, str]:
    """The target's update to `MODEL`, by three sums of three works."""
    whole, why = await summed(hub, hub.stage.names, "s0")
    assert whole is not None, why
    rest = []
    for at in (1, 2):
        found, why = await summed(hub, without(hub, TARGET), f"s{at}", model=MODEL + at * ALONG)
        if found is None:
            return None, why
        rest.append(found)
    return whole - (2 * rest[0] - rest[1]), ""


async def test_where_members_are_fixed_models_of_one_line_do_not_give_one_sites_update(attacked: Attacked) -> None:
    async with attacked(**FIXED) as hub:
        read, why = await one_sites_update(hub)
        assert read is None
        assert "1 fewer than the last set's" in why


@pytest.mark.control("test_where_members_are_fixed_models_of_one_line_do_not_give_one_sites_update")
async def test_control_where_members_are_free_one_sites_update_follows_from_three_works(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskingPolicy, "fixed", lambda *_: False)
    async with attacked(**FIXED) as hub:
        read, why = await one_sites_update(hub)
        assert read is not None, why
        true = hub.stage.sites[TARGET].update(MODEL)
        assert np.abs(read - true).max() < 1e-5 * np.abs(true).max()
