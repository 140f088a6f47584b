"""A home is copied in the midst of a session, and the copy is asked what the home has answered: a two-time pad."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub
from adversary.pairwise_works import RUN, answered_again, is_under_one_mask, opened
from adversary.stage import Array, Site
from adversary.works import TARGET
from hanse_coordinator.one_place import OnePlace
from hanse_datapod.home import place
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Presence
from hanse_site import load_identity


@pytest.fixture(autouse=True)
def _a_hub_that_lies_lets_both_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def says_nothing(_: OnePlace, __: Presence) -> None:
        """An honest hub refuses the copy."""

    monkeypatch.setattr(OnePlace, "require", says_nothing)


async def answered_by_both(hub: LyingHub) -> tuple[Array | None, Array, str]:
    """What the answers of home and copy differ by, and what their updates do: the data have changed meanwhile."""
    site = hub.stage.sites[TARGET]
    copy = site.home.with_name("copy")
    place.require_place(site.home)
    _, orders, _ = await opened(hub, "s0", hub.stage.names, RUN)
    await site.stop()
    shutil.copytree(site.home, copy)
    await site.start()
    return await answered_again(hub, orders, lambda site: moved_to(site, copy))


def moved_to(site: Site, copy: Path) -> None:
    copied = load_identity(copy)
    assert copied is not None
    site.identity = copied
    try:
        place.require_place(copy)
    except HanseError:
        # So its process would end, until its administrator believes whoever asks for it.
        place.accept_place(copy)


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
        assert is_under_one_mask(hub, read, apart), why
