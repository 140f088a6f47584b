"""A hub that asks for what all sites but one keep to themselves: the masked sum of it would be that one's number.

Policies differ. If what others do not tell (a metric that theirs keep back, counts that they have not opened) is
nothing in a sum, then the sum is of whoever tells it, however many answer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary.ages import SCHEMA, on_ages
from adversary.conftest import Attacked
from adversary.lying_hub import LyingHub, refusals
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.policy.limits import AskingPolicy
from hanse_datapod.policy.site_policy import OutputPolicy
from hanse_fabric.messages import RingPlan, TaskKind
from hanse_fabric.tensors.file import decode_tensors
from hanse_learning.pooled.layout import Counts, told_of
from hanse_privacy.ring.plan import metric_ring
from hanse_privacy.ring.tally import read_tally

AGES = [[20.0 + 1.5 * at + 0.25 * site for at in range(12 + site)] for site in range(4)]
TARGET, OLD = 3, 33.0
"""The site whose policy tells more than the others', and above which age the model predicts death."""
COUNTS = Counts(("auroc",), "classification", 2, bins=64)
NUMBERS = 5
"""Of a tally with two metrics, before its counts."""


def people() -> list[tuple[int, int]]:
    """(died, predicted) of the target's."""
    return [(at % 2, int(age > OLD)) for at, age in enumerate(AGES[TARGET])]


@pytest.fixture
def wards(attacked: Attacked, tmp_path: Path) -> Any:
    """`attacked` on sites with tables of ages, of whom every second has died."""
    worker = on_ages(tmp_path, AGES)
    return lambda **rules: attacked(sites=len(AGES), worker=worker, schema=SCHEMA, **rules)


async def open_the_target(hub: LyingHub, **sections: Any) -> None:
    """Give the target's policy other sections than the others have, and start it again."""
    site = hub.stage.sites[f"site-{TARGET}"]
    await site.stop()
    site.policy = site.policy.model_copy(update=sections)
    await site.start()


async def told(hub: LyingHub, plan: RingPlan, evaluate: dict[str, Any]) -> NDArray[np.uint64]:
    """What all sites' tallies add up to, unmasked by the compensator."""
    model = {"output.weight": np.array([[0.0], [1.0]]), "output.bias": np.array([0.0, -OLD])}
    asked = {"model": {"name": "logistic"}, "train": {}, "evaluate": evaluate}
    how: dict[str, Any] = {"kind": TaskKind.EVALUATE, "plan": plan, "model": model, "config": asked}
    results = await hub.ask(*(hub.task(name, "s1", **how) for name in hub.stage.names))
    assert refusals(results) == {}
    tallies = [read_tally(await hub.file(result, result.tally), plan) for result in results.values()]
    masks = await hub.tally_masks(await hub.ask_masks(results, "s1"))
    total: NDArray[np.uint64] = np.sum(tallies, axis=0, dtype=np.uint64) - decode_tensors(masks)[1]["u64"]
    return total


async def accuracy_of_one(hub: LyingHub) -> float:
    """The second metric of the sum, as the mean of whoever told it."""
    plan = hub.plan(metrics=["loss", "accuracy"])
    total = (await told(hub, plan, {})).view(np.int64)
    return float(total[3]) * 2.0 ** -metric_ring(plan).fraction


async def deaths_of_one(hub: LyingHub) -> int:
    """How many have died, of the histogram of the scores of class 1, by whoever counted."""
    plan = hub.plan(metrics=["loss", "accuracy"]).model_copy(update={"counts": COUNTS.words})
    words = (await told(hub, plan, {"counts": told_of(COUNTS), "optional": True}))[NUMBERS:]
    scores = words[COUNTS.parts["scores"]].reshape(2, COUNTS.bins) >> np.uint64(40)
    return int(scores.astype(object).sum(axis=1)[0])


def rightly() -> float:
    """The target's accuracy."""
    return float(np.mean([died == said for died, said in people()]))


async def test_a_metric_that_all_others_keep_back_is_not_read_of_the_one_who_tells_it(wards: Any) -> None:
    async with wards(outputs={"metrics": ["loss"]}) as hub:
        await open_the_target(hub, outputs=OutputPolicy())
        assert await accuracy_of_one(hub) != pytest.approx(rightly(), abs=1e-3)


@pytest.mark.control("test_a_metric_that_all_others_keep_back_is_not_read_of_the_one_who_tells_it")
async def test_control_where_what_is_kept_back_is_nothing_the_sum_is_one_sites_accuracy(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembered, "blinding", lambda *_: None)
    async with wards(outputs={"metrics": ["loss"]}) as hub:
        await open_the_target(hub, outputs=OutputPolicy())
        assert await accuracy_of_one(hub) == pytest.approx(rightly(), abs=1e-6)


async def test_counts_that_one_policy_alone_opens_are_not_read_of_that_site(wards: Any) -> None:
    async with wards() as hub:
        await open_the_target(hub, asking=AskingPolicy(protocols=("moments", "score_histograms")))
        assert await deaths_of_one(hub) != sum(died for died, _ in people())


@pytest.mark.control("test_counts_that_one_policy_alone_opens_are_not_read_of_that_site")
async def test_control_where_what_is_not_counted_is_nothing_the_sum_is_one_sites_histogram(
    wards: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Remembered, "blinding", lambda *_: None)
    async with wards() as hub:
        await open_the_target(hub, asking=AskingPolicy(protocols=("moments", "score_histograms")))
        assert await deaths_of_one(hub) == sum(died for died, _ in people())
