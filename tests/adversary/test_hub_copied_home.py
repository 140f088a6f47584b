"""A home is copied in the midst of a session, and the copy is asked what the home has answered: a two-time pad."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, half_step, refusals
from adversary.stage import Array
from adversary.test_hub_pairwise_works import RUN, answered, opened
from adversary.works import TARGET
from hanse_coordinator.one_place import OnePlace
from hanse_datapod.home import place
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Presence
from hanse_privacy.ring.codec import decode
from hanse_site import load_identity


@pytest.fixture(autouse=True)
def _a_hub_that_lies_lets_both_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def says_nothing(_: OnePlace, __: Presence) -> None:
        """An honest hub refuses the copy."""

    monkeypatch.setattr(OnePlace, "require", says_nothing)


async def answered_by_both(hub: LyingHub) -> tuple[Array | None, Array, str]:
    """What the answers of home and copy differ by, and what their updates do: the data have changed meanwhile."""
    plan, site = hub.plan(mode="pairwise", bits=64), hub.stage.sites[TARGET]
    place.require_place(site.home)
    _, orders, _ = await opened(hub, "s0", hub.stage.names, RUN)
    await site.stop()
    copy = site.home.with_name("copy")
    shutil.copytree(site.home, copy)
    await site.start()
    first = await answered(hub, "s0", orders, [TARGET], RUN)
    before, masked = site.update(MODEL), await hub.update(first[TARGET])
    await site.stop()
    copied = load_identity(copy)
    assert copied is not None
    site.identity = copied
    site.worker.y = site.worker.y + 1
    try:
        place.require_place(copy)
    except HanseError:
        # So its process would end, until its administrator believes whoever asks for it.
        place.accept_place(copy)
    await site.start()
    again = await answered(hub, "s0", orders, [TARGET], RUN)
    apart = site.update(MODEL) - before
    if refusals(again):
        return None, apart, refusals(again)[TARGET]
    return decode(await hub.update(again[TARGET]) - masked, plan.default), apart, ""


async def test_a_copied_home_does_not_mask_again_with_the_secrets_of_a_session(attacked: Attacked) -> None:
    async with attacked() as hub:
        read, _, why = await answered_by_both(hub)
        assert read is None
        assert "keys" in why or "session" in why, why


@pytest.mark.control("test_a_copied_home_does_not_mask_again_with_the_secrets_of_a_session")
async def test_control_where_a_home_does_not_know_where_it_lies_home_and_copy_tell_their_difference(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "require_place", lambda _: None)
    async with attacked() as hub:
        read, apart, why = await answered_by_both(hub)
        assert read is not None, why
        assert np.abs(read - apart).max() <= 2 * half_step(hub.plan(mode="pairwise", bits=64)) + 1e-9
