"""A hub that chooses which parameters are summed: other ones in a second sum, or other ones for one site.

A choice is no secret, and no part of a work: whoever is told some of a sum could be told all of it. What must not be is
that the difference of two sums speaks of one site.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, half_step
from adversary.stage import FEATURES, Array
from adversary.test_hub_requests import signs_the_same
from adversary.test_hub_works import claims_nothing
from adversary.works import TARGET, summed, without
from hanse_compensator.memory import Memory
from hanse_fabric.messages import RingPlan
from hanse_fabric.messages.masking import Chosen
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_privacy.ring.choice import Choice

SEEDS = ("11" * 32, "22" * 32)
HALF = 0.5
Choices = tuple[str | None, str | None]


def choosing(hub: LyingHub, seed: str | None) -> RingPlan:
    """The plan of a sum of half of the parameters; None: of all."""
    chosen = None if seed is None else Chosen(fraction=HALF, seed=seed)
    return hub.plan(bits=64).model_copy(update={"chosen": chosen})


def places(seed: str | None) -> NDArray[np.intp]:
    """Which parameters of the sites' model a sum is of."""
    if seed is None:
        return np.arange(FEATURES)
    start = Layout.of([Entry("weight", "F32", (FEATURES,))]).data_start
    return Choice(Chosen(fraction=HALF, seed=seed)).places(FEATURES, start)


async def told_twice(hub: LyingHub, choices: Choices) -> tuple[Array | None, str]:
    """Of the parameters that both sums are of, what the first has more than the second, without the target."""
    found = []
    for number, (seed, names) in enumerate(zip(choices, (hub.stage.names, without(hub, TARGET)), strict=True)):
        total, why = await summed(hub, names, f"s{number}", plan=choosing(hub, seed))
        if total is None:
            return None, why
        spread = np.full(FEATURES, np.nan)
        spread[places(seed)] = total
        found.append(spread)
    return found[0] - found[1], ""


choices = pytest.mark.parametrize(
    "told", [(None, SEEDS[0]), (SEEDS[0], SEEDS[1])], ids=["of all, then of a part", "of two parts"]
)


@choices
async def test_a_work_is_not_summed_again_of_other_parameters_without_one_site(
    attacked: Attacked, told: Choices
) -> None:
    async with attacked(sites=4) as hub:
        read, why = await told_twice(hub, told)
        assert read is None
        assert "1 fewer than the last set's" in why


@choices
@pytest.mark.control("test_a_work_is_not_summed_again_of_other_parameters_without_one_site")
async def test_control_without_memory_of_works_what_both_sums_are_of_tells_one_update(
    attacked: Attacked, told: Choices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Memory, "claim_set", claims_nothing)
    async with attacked(sites=4) as hub:
        read, why = await told_twice(hub, told)
        assert read is not None, why
        both = np.isfinite(read)
        assert both.sum() == len(set(places(told[0])) & set(places(told[1]))) > 0
        true = hub.stage.sites[TARGET].update(MODEL)
        assert np.abs(read - true)[both].max() <= 8 * half_step(hub.plan(bits=64)) + 1e-7


async def apart(hub: LyingHub) -> tuple[Array | None, str]:
    """The sum of the target's parameters by one seed and the others' by another, less that of all by the others'."""
    found: list[Array] = []
    for session, own in (("s1", SEEDS[0]), ("s2", SEEDS[1])):
        tasks: list[Any] = []
        for name in hub.stage.names:
            plan = choosing(hub, own if name == TARGET else SEEDS[1])
            tasks.append(hub.task(name, session, model=MODEL, session=session, plan=plan))
        results = await hub.ask(*tasks)
        said = await hub.ask_masks(results, session)
        if said.sum is None:
            return None, said.reason
        found.append(await hub.sum(results, session, choosing(hub, SEEDS[1])))
    return found[0] - found[1], ""


async def test_sites_that_were_asked_for_other_parameters_are_not_summed(attacked: Attacked) -> None:
    async with attacked(sites=4) as hub:
        read, why = await apart(hub)
        assert read is None
        assert "another request" in why or "other request" in why, why


@pytest.mark.control("test_sites_that_were_asked_for_other_parameters_are_not_summed")
async def test_control_where_sites_sign_the_same_two_sums_tell_how_one_sites_numbers_differ(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    signs_the_same(monkeypatch)
    async with attacked(sites=4) as hub:
        read, why = await apart(hub)
        assert read is not None, why
        true = hub.stage.sites[TARGET].update(MODEL)
        assert np.abs(read - (true[places(SEEDS[0])] - true[places(SEEDS[1])])).max() <= 1e-6
