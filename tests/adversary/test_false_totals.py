"""False sums in the middle of a step (FedTAN's, attack 7): the hub tells sites of one session different totals.

What a site contributes next depends on the total that it heard. A hub that tells the others a total with which their
next contributions are known, and the target the true one, would read the target's from the sum. Sums are told by step,
and a step's name is the hub's: the target is asked under another one, in the same session.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from adversary.conftest import Attacked
from adversary.lying_hub import MODEL, LyingHub
from adversary.stage import FEATURES, Array, Regression
from hanse_datapod.worker.port import DATA_KEY, WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Contribution, MaskingMode
from hanse_fabric.messages.exchange import ExchangeSum
from hanse_fabric.subjects import EXCHANGE, EXCHANGED
from hanse_learning.binding import work_digest
from hanse_privacy.pairwise.sums import SumMasks
from hanse_privacy.ring.sums import decode_sum, sum_ring

TARGET, MEAN, SQUARES = "site-0", "l0-mean", "l0-squares"
LARGEST = 2.0**16
"""The bound of sums in the middle of a step: a layer's squares are cut to it."""
KNOWN_MEAN = np.full(FEATURES, 1e4)
"""With this total every site's squares are beyond the ring's bound, and known to be cut to it."""
FEDTAN = {
    "model": {"name": "mlp", "hidden": [4], "batch_norm": True},
    "train": {"steps": 1, "algorithm": {"name": "fedtan", "patience": 20.0}},
}


class Normalised(Regression):
    """A worker that sums means, then squares about the mean that it heard, as FedTAN does; and gets no further."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        assert request.exchange is not None
        await request.exchange(DATA_KEY, self.state().told())
        total = np.frombuffer(await request.exchange(MEAN, self.x.mean(axis=0).tobytes()), "<f8")
        await request.exchange(SQUARES, self.squares(total).tobytes())
        raise HanseError(ErrorCode.TRAINING_FAILED, "both sums have come, and nothing else does")

    def squares(self, total: Array) -> Array:
        made: Array = np.minimum(np.mean((self.x - total / 4) ** 2, axis=0), LARGEST)
        return made


class SessionSums:
    """The sums of one session, of which the hub hears each site's contribution and tells each site what it likes."""

    def __init__(self, hub: LyingHub) -> None:
        self.hub, self.ring = hub, sum_ring(hub.plan(mode="pairwise"))
        assert self.ring.bound == LARGEST
        self.steps = {name: "r1-apart" if name == TARGET else "r1-train" for name in hub.stage.names}

    async def begin(self) -> asyncio.Task[object]:
        hub, names = self.hub, self.hub.stage.names
        work = work_digest(hub.task(TARGET, model=MODEL, config=FEDTAN))
        request = hub.share_request(await hub.adverts(names), "s1", work=work)
        orders = await hub.shared(request)
        tasks = [
            hub.task(name, self.steps[name], model=MODEL, mode=MaskingMode.PAIRWISE, session="s1",
                     plan=hub.plan(mode="pairwise"), config=FEDTAN, payload=base64.b64encode(orders.payloads[name]))
            for name in names
        ]  # fmt: skip
        assert set(orders.payloads) == set(names)
        return asyncio.create_task(hub.ask(*tasks))

    async def given(self, key: str) -> NDArray[np.uint64]:
        """The sum of all contributions."""
        where = {"project": self.hub.stage.project, "run": self.hub.stage.run, "key": key}
        subjects = [EXCHANGE.of(participant=name, step=step, **where) for name, step in self.steps.items()]
        said = await asyncio.gather(*(self.hub.said(subject) for subject in subjects))
        parts = [np.frombuffer(Contribution.decode(data).values, "<u8") for data in said]
        return np.sum(parts, axis=0, dtype=np.uint64)

    async def tell(self, key: str, total: bytes, step: str) -> None:
        where = {"project": self.hub.stage.project, "run": self.hub.stage.run, "step": step, "key": key}
        message = ExchangeSum(values=base64.b64encode(total), **where)
        await self.hub.aggregator.publish(EXCHANGED.of(**where), message.encode())

    def real(self, total: bytes) -> Array:
        return np.frombuffer(decode_sum(total, self.ring), "<f8")

    def elements(self, values: Array) -> bytes:
        return np.rint(values * 2.0**self.ring.fraction).astype("<i8").tobytes()


async def played(hub: LyingHub, told: Array | None) -> float:
    """How far the sum of all squares, less what the hub knows of the others', is from the target's own; they were
    `told` this total of the means, None: the true one."""
    sums, sites = SessionSums(hub), hub.stage.sites
    asking = await sums.begin()
    means = (await sums.given(MEAN)).tobytes()
    await sums.tell(MEAN, means, sums.steps[TARGET])
    await sums.tell(MEAN, means if told is None else sums.elements(told), "r1-train")
    squares = sums.real((await sums.given(SQUARES)).tobytes())
    mean = sums.real(means)
    heard = mean if told is None else told
    asking.cancel()
    known = sum(site.worker.squares(heard) for name, site in sites.items() if name != TARGET)
    return float(np.abs(squares - known - sites[TARGET].worker.squares(mean)).max())


async def test_an_honest_total_leaves_sums_exact(attacked: Attacked) -> None:
    async with attacked(worker=Normalised) as hub:
        assert await played(hub, None) < 1e-6


async def test_under_false_totals_the_masks_do_not_cancel(attacked: Attacked) -> None:
    async with attacked(worker=Normalised) as hub:
        assert await played(hub, KNOWN_MEAN) > 1e3


@pytest.mark.control("test_under_false_totals_the_masks_do_not_cancel")
async def test_control_where_masks_do_not_take_the_totals_a_false_one_tells_one_sites_statistics(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SumMasks, "hear", lambda _masks, _key, _total: None)
    async with attacked(worker=Normalised) as hub:
        assert await played(hub, KNOWN_MEAN) < 1e-6
