"""An owner with two projects of the same sites: the same work in both, of which the second leaves one site out.

A site has a home and a key for each project, so neither the compensator nor a home sees that the members are the same.
Homes that share one memory do.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from adversary.lying_hub import MODEL, LyingHub, lying_hub, refusals
from adversary.stage import Array, staged
from hanse_datapod.home import works
from hanse_datapod.masking import remembered
from hanse_datapod.policy.site_policy import Policy
from hanse_fabric.clock import SYSTEM_CLOCK
from servers import NatsServer

TARGET, SITES = "site-0", 4


@asynccontextmanager
async def project(server: NatsServer, folder: Path, memory: Path | None) -> AsyncIterator[LyingHub]:
    """A project of all sites, whose homes remember in a folder that they have in each project; None: in themselves."""
    async with staged(server, folder, sites=SITES) as stage, lying_hub(stage) as hub:
        for site in stage.sites.values() if memory is not None else ():
            await site.stop()
            site.policy = sharing(site.policy, memory / site.name)
            await site.start()
        yield hub


def sharing(policy: Policy, memory: Path) -> Policy:
    return policy.model_copy(update={"masking": policy.masking.model_copy(update={"memory": memory})})


async def summed(hub: LyingHub, names: list[str]) -> tuple[Array | None, str]:
    results = await hub.ask(*(hub.task(name, model=MODEL, session="s1") for name in names))
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    return await hub.sum(results, "s1", hub.plan()), ""


async def target_by_two_projects(
    server: NatsServer, folder: Path, memory: Path, *, later: bool = False
) -> tuple[float | None, str]:
    """How far what is read is from the target's update; or why there is no second sum.

    Args:
        later: the sites are given the memory when the second project comes.
    """
    async with project(server, folder / "one", None if later else memory) as hub:
        whole, why = await summed(hub, hub.stage.names)
        assert whole is not None, why
        update = hub.stage.sites[TARGET].update(MODEL)
    for site in hub.stage.sites.values() if later else ():
        # As its datapod does at the next start. The bus would bring tasks again that are answered, but not settled yet.
        remembered.Remembered(site.home, sharing(site.policy, memory / site.name), SYSTEM_CLOCK)
    async with project(server, folder / "two", memory) as hub:
        rest, why = await summed(hub, hub.stage.names[1:])
    return (None, why) if rest is None else (float(np.abs(whole - rest - update).max()), "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    return tmp_path


async def test_sites_whose_homes_share_a_memory_do_no_work_again_for_another_project(
    nats_server: NatsServer, folder: Path
) -> None:
    off, why = await target_by_two_projects(nats_server, folder, folder / "memory")
    assert off is None
    assert "this work was done for another project" in why
    assert "attacked-" not in why, "which one is no other project's to know"


@pytest.mark.control("test_sites_whose_homes_share_a_memory_do_no_work_again_for_another_project")
async def test_control_homes_that_do_not_ask_whose_a_work_was_tell_one_sites_update_by_two_projects(
    nats_server: NatsServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "_check_owners", lambda *_: False)
    off, why = await target_by_two_projects(nats_server, folder, folder / "memory")
    assert off is not None, why
    assert off < 1e-6


async def test_homes_that_are_given_a_memory_when_a_second_project_comes_do_no_work_again_for_it(
    nats_server: NatsServer, folder: Path
) -> None:
    off, why = await target_by_two_projects(nats_server, folder, folder / "memory", later=True)
    assert off is None
    assert "this work was done for another project" in why


@pytest.mark.control("test_homes_that_are_given_a_memory_when_a_second_project_comes_do_no_work_again_for_it")
async def test_control_homes_that_begin_with_an_empty_memory_tell_one_sites_update_by_two_projects(
    nats_server: NatsServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(home: Path, shared: Path | None) -> Path:
        made = shared or home
        made.mkdir(parents=True, exist_ok=True)
        return made

    monkeypatch.setattr(remembered, "memory_of", empty)
    off, why = await target_by_two_projects(nats_server, folder, folder / "memory", later=True)
    assert off is not None, why
    assert off < 1e-6
