"""A hub that has a work summed twice over the same sites, and has answers cut to other limits the second time.

What the largest answer loses is the difference of the two sums. So is one site's value, or its whole update. An owner
does it by two jobs, with an honest hub.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.stage import RATE, Array
from adversary.works import MOVED, summed
from hanse_datapod.agent import task_config
from hanse_datapod.home import work_cuts, works
from hanse_fabric.messages import HiddenFailure, PrivacyTerms
from hanse_fabric.messages.privacy import Privacy

SPREAD = 0.5
"""Where between the largest of the sites and the next one the hub cuts."""


def ranked(hub: LyingHub, size: Any) -> tuple[str, float]:
    """Whose answer is the largest by some measure, and what lies between it and the next."""
    sizes = sorted((float(size(site.update(MODEL))), name) for name, site in hub.stage.sites.items())
    return sizes[-1][1], SPREAD * sizes[-1][0] + (1 - SPREAD) * sizes[-2][0]


async def cut_values(hub: LyingHub, moved: Array) -> tuple[float | None, float, str]:
    """(what the hub reads of the largest first number of all sites, the true one, why not)."""
    target, bound = ranked(hub, lambda update: abs(update[0]))
    whole, why = await summed(hub, hub.stage.names, "s1")
    assert whole is not None, why
    plan = hub.plan(bits=64, bound=bound)
    rest, why = await summed(hub, hub.stage.names, "s2", model=moved, plan=plan)
    true = float(hub.stage.sites[target].update(MODEL)[0])
    if rest is None:
        return None, true, why
    lost = float((whole - rest)[0])
    return lost + np.sign(lost) * bound, true, ""


def no_noise(clip: float) -> PrivacyTerms:
    """Terms that a site without a budget accepts, and that hide nothing."""
    privacy = Privacy(placement="distributed", mechanism="gaussian", clip=clip, noise_multiplier=1e-7)
    return PrivacyTerms(privacy=privacy, rounds=1, round=1, active=5)


async def cut_updates(hub: LyingHub, moved: Array) -> tuple[Array | None, Array, str]:
    """(what the hub reads of the longest update of all sites, the true one, why not)."""
    target, clip = ranked(hub, np.linalg.norm)
    plan, true = hub.plan(bits=64, bound=64.0), hub.stage.sites[target].update(MODEL)
    terms: dict[str, Any] = {"plan": plan, "minimum": 5}
    whole, why = await summed(hub, hub.stage.names, "s1", privacy=no_noise(2 * clip), **terms)
    assert whole is not None, why
    rest, why = await summed(hub, hub.stage.names, "s2", model=moved, privacy=no_noise(clip), **terms)
    if rest is None:
        return None, true, why
    lost = whole - rest
    length = float(np.linalg.norm(lost))
    return lost / length * (length + clip), true, ""


models = pytest.mark.parametrize("moved", [MODEL, MOVED], ids=["the same work", "a work that is near"])
ways = pytest.mark.parametrize("cut", [cut_values, cut_updates], ids=["bound of the ring", "norm of updates"])


@models
@ways
async def test_a_work_is_not_summed_again_cut_to_other_limits(attacked: Attacked, cut: Any, moved: Array) -> None:
    async with attacked(sites=5) as hub:
        read, _, why = await cut(hub, moved)
        assert read is None
        assert "other limits" in why or HiddenFailure.UNFIT.text in why


@models
@ways
@pytest.mark.control("test_a_work_is_not_summed_again_cut_to_other_limits")
async def test_control_where_sites_forget_what_they_cut_to_two_sums_of_the_same_sites_tell_one(
    attacked: Attacked, cut: Any, moved: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(works, "check_cut", lambda *_: None)
    async with attacked(sites=5) as hub:
        read, true, why = await cut(hub, moved)
        assert read is not None, why
        assert np.abs(read - true).max() < 1e-4


async def cut_by_the_config(hub: LyingHub) -> tuple[Array | None, Array, str]:
    """As `cut_updates`, without terms: the hub writes into the config what a site's budget tells its worker."""
    target, clip = ranked(hub, np.linalg.norm)
    whole, why = await summed(hub, hub.stage.names, "s1")
    assert whole is not None, why
    config = {"model": {"name": "linear"}, "train": {"steps": 1}}
    told = {"mechanism": "gaussian", "clip": clip, "scale": 0.0}
    rest, why = await summed(hub, hub.stage.names, "s2", config=config | {"privacy": told})
    true = hub.stage.sites[target].update(MODEL)
    if rest is None:
        return None, true, why
    lost = whole - rest
    length = float(np.linalg.norm(lost))
    return lost / length * (length + clip), true, ""


async def test_a_hub_does_not_tell_a_worker_what_to_cut_to(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, _, why = await cut_by_the_config(hub)
        assert read is None
        assert "task.config.privacy" in why


@pytest.mark.control("test_a_hub_does_not_tell_a_worker_what_to_cut_to")
async def test_control_where_a_hub_may_write_what_a_budget_says_two_sums_of_the_same_sites_tell_one(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_config, "SITES_OWN", ())
    async with attacked(sites=4) as hub:
        read, true, why = await cut_by_the_config(hub)
        assert read is not None, why
        assert np.abs(read - true).max() < 1e-4


async def on_a_grid_of_one_step(hub: LyingHub, moved: Array) -> tuple[Array | None, Array, str]:
    """(the sum on a grid of which a step is twice what lies between the largest and the next, all sites' first numbers,
    why not). A learning rate that is the same for all makes the answers as large as the hub wants them."""
    values = np.array([abs(site.update(MODEL)[0]) for site in hub.stage.sites.values()])
    rate = RATE * 0.5 / float(np.mean(np.sort(values)[-2:]))
    config = {"model": {"name": "linear"}, "train": {"steps": 1, "optimizer": {"name": "sgd", "lr": rate}}}
    bound = 16.0
    whole, why = await summed(hub, hub.stage.names, "s1", config=config, plan=hub.plan(bits=64, bound=bound))
    assert whole is not None, why
    coarse = hub.plan(bits=64, bound=bound)
    coarse = coarse.model_copy(update={"default": coarse.default.model_copy(update={"fraction": 0})})
    rounded, why = await summed(hub, hub.stage.names, "s2", config=config, model=moved, plan=coarse)
    return rounded, values * rate / RATE, why


@models
async def test_a_work_is_not_summed_again_rounded_to_a_coarser_grid(attacked: Attacked, moved: Array) -> None:
    async with attacked(sites=4) as hub:
        rounded, _, why = await on_a_grid_of_one_step(hub, moved)
        assert rounded is None
        assert "other limits" in why or HiddenFailure.UNFIT.text in why


@models
@pytest.mark.control("test_a_work_is_not_summed_again_rounded_to_a_coarser_grid")
async def test_control_where_grids_are_forgotten_the_sum_is_of_who_alone_has_half_a_step(
    attacked: Attacked, moved: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_cuts, "APART", 60)
    async with attacked(sites=4) as hub:
        rounded, values, why = await on_a_grid_of_one_step(hub, moved)
        assert rounded is not None, why
        assert np.count_nonzero(values >= 0.5) == 1, "one site alone has half a step"
        assert abs(rounded[0]) == 1.0, "and the sum says so, with its sign"
