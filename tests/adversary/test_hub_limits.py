"""A hub that lies, or an owner, sets a bound of the masked sum and sees which site refuses it: one bit of that site's
number, whatever the masks hide, and a bisection has the number.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub, payloads
from adversary.stage import EXAMPLES
from adversary.sums_within import FEDTAN, Normalised
from hanse_datapod.masking import answer
from hanse_fabric.messages import MaskingMode, Outcome, TaskKind
from hanse_fabric.subjects import EXCHANGE
from hanse_learning.binding import work_digest
from hanse_privacy.pairwise.coordination import order_masks
from hanse_privacy.ring import sums
from hanse_privacy.ring.plan import make_plan, metric_ring
from hanse_schemas.secure_aggregation import SecureAggregation

TARGET, STEPS = "site-2", 11
DIRECTION = np.linspace(1.0, 2.0, MODEL.size)
_numbers = itertools.count(1)


async def refuses(hub: LyingHub, **task: Any) -> bool:
    step = f"q{next(_numbers)}"
    return (await hub.ask(hub.task(TARGET, step, **task)))[TARGET].outcome is not Outcome.DONE


def by_examples(hub: LyingHub, largest_weight: int) -> Any:
    settings = SecureAggregation(mode="compensator", metrics=("loss",), bits=64, largest_weight=largest_weight)
    return make_plan(settings, participants=len(hub.stage.sites), weighting="examples")


async def more_examples(hub: LyingHub, weight: float) -> bool:
    """Whether the site has more examples than so many."""
    model = MODEL + next(_numbers)
    return await refuses(hub, kind=TaskKind.EVALUATE, model=model, plan=by_examples(hub, round(weight)))


async def a_small_loss(hub: LyingHub, scale: float) -> bool:
    """Whether the site's loss at a model of such a length is within what is announced for metrics."""
    return not await refuses(hub, kind=TaskKind.EVALUATE, model=scale * DIRECTION, plan=by_examples(hub, 2**40))


async def a_small_update(hub: LyingHub, rate: float) -> bool:
    """Whether the largest number of the site's update at such a learning rate is within the bound, which is 8."""
    config = {"model": {"name": "linear"}, "train": {"steps": 1, "optimizer": {"lr": rate}}}
    return not await refuses(hub, model=MODEL, config=config, plan=hub.plan(bits=64, out_of_range="refuse"))


async def a_large_mean(hub: LyingHub, bound: float) -> bool:
    """Whether the largest mean of the site's columns is beyond what is announced for sums in the middle of a step."""
    number = next(_numbers)
    session, run, names = f"s{number}", f"runof{number:0>7}", hub.stage.names
    task = {"model": MODEL + number, "config": FEDTAN, "run": run}
    request = hub.share_request(
        await hub.adverts(names, run=run), session, run=run, work=work_digest(hub.task(TARGET, **task))
    )
    shared = await hub.ask(*(hub.protocol(name, TaskKind.SHARE, request, request.encode()) for name in names))
    order = base64.b64encode(order_masks(request, payloads(shared)).payloads[TARGET])
    plan = hub.plan(mode="pairwise", buffer_bound=bound)
    await hub.ask(hub.task(TARGET, mode=MaskingMode.PAIRWISE, session=session, plan=plan, payload=order, **task))
    given = EXCHANGE.of(project=hub.stage.project, run=run, step="r1-train", participant=TARGET, key="l0-mean")
    return given not in [subject for subject, _ in hub.heard]


Asks = Callable[[LyingHub, float], Awaitable[bool]]
ASKED: dict[str, tuple[Asks, float, float]] = {
    "its number of examples": (more_examples, 2, 2**14),
    "its mean square": (a_small_loss, 1, 1e6),
    "its largest number": (a_small_update, 1e-3, 1e6),
    "its largest mean": (a_large_mean, 1e-3, 1e3),
}


async def bracket(hub: LyingHub, what: str) -> tuple[float, float]:
    """Between which two bounds the site's answers change, as far as so many questions tell."""
    asks, low, high = ASKED[what]
    for _ in range(STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if await asks(hub, middle) else (low, middle)
    return low, high


def true_bound(hub: LyingHub, what: str) -> float:
    worker = hub.stage.sites[TARGET].worker
    if what == "its number of examples":
        return EXAMPLES + 2.0
    if what == "its mean square":
        square = np.mean((worker.x @ DIRECTION) ** 2)
        return float(np.sqrt(metric_ring(by_examples(hub, 2**40)).bound / square))
    if what == "its largest mean":
        return float(np.abs(worker.x.mean(axis=0)).max())
    return float(8.0 / np.abs(worker.update(MODEL, rate=1.0)).max())


@pytest.mark.parametrize("what", ASKED)
async def test_no_bound_of_a_masked_sum_tells_a_sites_number(attacked: Attacked, what: str) -> None:
    async with attacked(worker=Normalised, masking={"near": 0}) as hub:
        low, high = await bracket(hub, what)
    assert (low, high)[ANSWERED_ALIKE[what]] == ASKED[what][1 + ANSWERED_ALIKE[what]]


ANSWERED_ALIKE = {"its number of examples": 0, "its mean square": 1, "its largest number": 1, "its largest mean": 0}
"""Which of the two bounds has never moved: the site does what it is asked, whatever the bound is."""


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.control("test_no_bound_of_a_masked_sum_tells_a_sites_number")
async def test_control_a_site_that_refuses_what_is_beyond_a_bound_tells_its_number(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(answer, "hides", lambda _task: False)
    monkeypatch.setattr(sums, "wrap_sum", lambda values, ring: (sums.encode_sum("l0-mean", values, ring), 0))
    async with attacked(worker=Normalised, masking={"near": 0}) as hub:
        low, high = await bracket(hub, what)
        assert low * 0.98 <= true_bound(hub, what) <= high * 1.02
    assert high <= low * 1.02
