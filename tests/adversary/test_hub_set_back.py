"""A hub that asks for a work again, without one site, of sites whose memory of it is gone, or is an older copy: removed
by mistake, or restored from a backup alone. A home knows how far its memory had come, and its log that it worked.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.pairwise_works import pairwise_sum
from adversary.stage import Array, Site
from adversary.works import TARGET, is_of, without
from hanse_coordinator.one_place import OnePlace
from hanse_datapod.home import one_memory, place
from hanse_datapod.home.place import require_place
from hanse_datapod.home.works import FILE
from hanse_datapod.masking.remembered import Remembered
from hanse_fabric.clock import SYSTEM_CLOCK
from hanse_fabric.errors import HanseError


@pytest.fixture(autouse=True)
def _a_hub_that_lets_them_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """An honest one refuses who has a new file `works` for as long as it may run in two places."""

    async def everybody(*_: object) -> None:
        """Is let in."""

    monkeypatch.setattr(OnePlace, "require", everybody)


OTHER = np.random.default_rng(1).normal(size=len(MODEL))


@pytest.fixture(autouse=True, scope="module")
def _garbage_of_other_tests_is_gone() -> None:
    """What is collected here is of the sites that stop, and found at once."""
    gc.collect()
    gc.freeze()


SetBack = Callable[[Site], None]


async def started(hub: LyingHub, before: SetBack) -> str:
    """Have all sites start again, as their datapods do; why one of them does not."""
    for site in hub.stage.sites.values():
        await site.stop()
    gc.collect()  # as their processes end: SQLite removes files by their names when it closes what was open
    for site in hub.stage.sites.values():
        before(site)
        try:
            require_place(site.home)
            Remembered(site.home, site.policy, SYSTEM_CLOCK)
        except HanseError as error:
            return str(error)
        await site.start()
    return ""


async def without_one(hub: LyingHub, first: SetBack, then: SetBack) -> tuple[Array | None, str]:
    """The sum of all of a model, and that of all but one; between, something happens to the sites' memories."""
    assert await started(hub, lambda _: None) == ""
    earlier, why = await pairwise_sum(hub, "s0", hub.stage.names, model=OTHER)
    assert earlier is not None, why
    assert await started(hub, first) == ""
    whole, why = await pairwise_sum(hub, "s1", hub.stage.names)
    assert whole is not None, why
    if why := await started(hub, then):
        return None, why
    rest, why = await pairwise_sum(hub, "s2", without(hub, TARGET))
    return (None, why) if rest is None else (whole - rest, "")


def nothing(_: Site) -> None:
    """Happens."""


def removed(site: Site) -> None:
    for file in site.home.glob(f"{FILE}*"):
        if file.name != "works.height":
            file.unlink()


async def test_sites_whose_memory_was_removed_do_no_work_again(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await without_one(hub, nothing, removed)
        assert read is None
        assert "it is gone, and with it what this home has answered" in why


@pytest.mark.control("test_sites_whose_memory_was_removed_do_no_work_again")
async def test_control_where_a_memory_that_is_gone_counts_as_new_one_update_is_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_has_worked", lambda _: False)
    monkeypatch.setattr(one_memory, "require_height", lambda *_: None)
    async with attacked(sites=4) as hub:
        read, why = await without_one(hub, nothing, removed)
        assert is_of(hub, read, TARGET), why


def shared(hub: LyingHub, folder: Path) -> None:
    """Have each site remember in a folder beside its home."""
    for site in hub.stage.sites.values():
        masking = site.policy.masking.model_copy(update={"memory": folder / site.name})
        site.policy = site.policy.model_copy(update={"masking": masking})


def copied(site: Site) -> None:
    memory = site.policy.masking.memory
    assert memory is not None
    shutil.copytree(memory, memory.with_suffix(".older"))


def laid_back(site: Site) -> None:
    memory = site.policy.masking.memory
    assert memory is not None
    shutil.rmtree(memory)
    shutil.copytree(memory.with_suffix(".older"), memory)


async def test_sites_whose_shared_memory_is_an_older_copy_do_no_work_again(attacked: Attacked, tmp_path: Path) -> None:
    async with attacked(sites=4) as hub:
        shared(hub, tmp_path / "shared")
        read, why = await without_one(hub, copied, laid_back)
        assert read is None
        assert "is older than what" in why


@pytest.mark.control("test_sites_whose_shared_memory_is_an_older_copy_do_no_work_again")
async def test_control_where_an_older_copy_is_taken_one_update_is_read(
    attacked: Attacked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_memory, "require_height", lambda *_: None)
    async with attacked(sites=4) as hub:
        shared(hub, tmp_path / "shared")
        read, why = await without_one(hub, copied, laid_back)
        assert is_of(hub, read, TARGET), why
