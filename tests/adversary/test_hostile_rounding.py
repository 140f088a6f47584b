"""Small numbers under distributed noise: rounded toward zero, or to the nearest step of the ring's grid, a sum of many
sites would lose nearly all of what each has, in one direction. That spoils a model without anybody's doing.

The noise itself is left out here, which would hide it from so few sites.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import refusals
from adversary.stage import Array, Regression
from adversary.test_hub_shares_of_noise import EPSILON, asked
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.messages.masking import Ring
from hanse_privacy.noise import site as drawn

COUNT, MEAN = 4096, 2.4e-6
GRID = Ring(bits=32, fraction=17, bound=64.0)
"""As 2,000 sites have it: a step is three times the mean of the coordinates."""


class Small(Regression):
    """A site whose update has small coordinates, all around one mean."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        return self._wrote(request, self.small, {})

    @property
    def small(self) -> Array:
        found: Array = np.random.default_rng(len(self.x)).normal(MEAN, MEAN / 2, COUNT)
        return found


async def kept(attacked: Attacked) -> float:
    """Which share of what the sites have is in the sum of their masked updates."""
    async with attacked(worker=Small) as hub:
        plan, terms = hub.plan().model_copy(update={"default": GRID}), asked(hub, epsilon=EPSILON)
        results = await hub.ask(
            *(hub.task(name, "s1", plan=plan, privacy=terms, model=np.zeros(COUNT)) for name in hub.stage.names)
        )
        assert not refusals(results)
        total = await hub.sum(results, "s1", plan)
        true = sum(float(site.worker.small.mean()) for site in hub.stage.sites.values())
        return float(total.mean()) / true


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of nothing, on the grid."""
    at_random = drawn.at_random

    def without(step: float, _draw: Any, chances: Any = None) -> Any:
        return at_random(step, lambda count, _: np.zeros(count, np.int64), chances)

    monkeypatch.setattr(drawn, "at_random", without)


@pytest.mark.usefixtures("silent")
async def test_what_is_small_at_each_site_is_in_the_sum(attacked: Attacked) -> None:
    # Each value is off by half a step at most, in the mean of the squares: 1.3 % of the sum.
    assert abs(await kept(attacked) - 1) < 0.08


@pytest.mark.usefixtures("silent")
@pytest.mark.control("test_what_is_small_at_each_site_is_in_the_sum")
async def test_control_rounded_toward_zero_nearly_all_of_it_is_lost(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def toward_zero(values: Array, step: float, _: Any) -> Any:
        return (np.trunc(values / step) - np.rint(values / step)).astype(np.int64)

    monkeypatch.setattr(drawn, "steps_from_nearest", toward_zero)
    assert await kept(attacked) < 0.05
