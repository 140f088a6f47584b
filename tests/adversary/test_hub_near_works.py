"""A hub that has the same sites train models that hardly differ: each sum is allowed, for nobody is left out of any.

An update is the gradient, so what it changes by, from one model to one that is moved along a weight, is a column of the
second derivatives: of linear regression the products of all sites' features, which no single sum tells.
"""

from __future__ import annotations

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.stage import FEATURES, RATE, Array
from adversary.works import summed
from hanse_datapod.policy.masking import MaskingPolicy
from hanse_fabric.messages import HiddenFailure

STEP = 1e-3
FEW_A_DAY = {"masking": {"similar": 3}}


async def products(hub: LyingHub) -> tuple[list[Array], str]:
    """The columns of the sum over sites of 2 X'X / n that could be read, and why there are no more."""
    base, why = await summed(hub, hub.stage.names, "s0")
    assert base is not None, why
    columns = []
    for at in range(FEATURES):
        moved = MODEL.astype(np.float32).astype(np.float64)
        moved[at] += STEP
        total, why = await summed(hub, hub.stage.names, f"s{at + 1}", model=moved)
        if total is None:
            return columns, why
        shift = moved.astype(np.float32).astype(np.float64)[at] - np.float64(np.float32(MODEL[at]))
        columns.append((base - total) / (RATE * shift))
    return columns, ""


def true_products(hub: LyingHub) -> Array:
    workers = [site.worker for site in hub.stage.sites.values()]
    found: Array = np.sum([2 * worker.x.T @ worker.x / len(worker.x) for worker in workers], axis=0)
    return found


async def test_models_that_hardly_differ_are_answered_a_few_times_a_day(attacked: Attacked) -> None:
    async with attacked(**FEW_A_DAY) as hub:
        columns, why = await products(hub)
        assert len(columns) == 2  # beside the first of the three
        assert why == "; ".join([HiddenFailure.UNFIT.text] * len(hub.stage.names))


@pytest.mark.control("test_models_that_hardly_differ_are_answered_a_few_times_a_day")
async def test_control_without_the_limit_all_products_of_the_sites_features_are_read(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MaskingPolicy, "check_similar", lambda *_: None)
    async with attacked(**FEW_A_DAY) as hub:
        columns, why = await products(hub)
        assert len(columns) == FEATURES, why
        assert np.abs(np.array(columns) - true_products(hub)).max() < 0.01 * np.abs(true_products(hub)).max()
