"""Sums in the middle of a round whose masks cancel, as a hub asks for them that wants a difference of two."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from adversary.lying_hub import MODEL, LyingHub, payloads, refusals
from adversary.stage import Array, Regression
from adversary.works import TARGET, without
from hanse_datapod.worker.port import DATA_KEY, WorkOutcome, WorkRequest
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Contribution, MaskingMode, TaskKind
from hanse_fabric.subjects import EXCHANGE
from hanse_learning.binding import work_digest
from hanse_privacy.pairwise.coordination import order_masks
from hanse_privacy.ring.sums import decode_sum, sum_ring


class Normalised(Regression):
    """A worker that sums in the middle of its work, as FedTAN does, and gets no further."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        if request.exchange is None:
            return await super().work(request, on_progress)
        await request.exchange(DATA_KEY, self.state().told())
        await request.exchange("l0-mean", self.x.mean(axis=0).tobytes())
        raise HanseError(ErrorCode.TRAINING_FAILED, "the sum has come, and nothing else does")


FEDTAN: dict[str, Any] = {
    "model": {"name": "mlp", "hidden": [4], "batch_norm": True},
    "train": {"steps": 1, "algorithm": {"name": "fedtan", "patience": 1.0}},
}


async def sum_within(
    hub: LyingHub, session: str, names: list[str], number: int, sent: Array = MODEL, opened: list[str] | None = None,
    config: Any = FEDTAN,
) -> tuple[Array | None, str]:  # fmt: skip
    """The sum of what sites contribute in the middle of a round, which needs no unmasking.

    Args:
        opened: for whom the session is, of whom `names` share secrets and take part; None: for these.
    """
    run, ring = f"runof{session:0>7}", sum_ring(hub.plan(mode="pairwise"))
    model = hub.task(TARGET, model=sent, config=config)
    adverts = await hub.adverts(opened or names, run=run)
    request = hub.share_request(adverts, session, run=run, work=work_digest(model))
    shared = await hub.ask(*(hub.protocol(name, TaskKind.SHARE, request, request.encode()) for name in names))
    if refusals(shared):
        return None, "; ".join(refusals(shared).values())
    orders = order_masks(request, payloads(shared))
    plan, said = hub.plan(mode="pairwise"), len(hub.heard)
    results = await hub.ask(
        *(
            hub.task(name, model=sent, mode=MaskingMode.PAIRWISE, session=session, plan=plan, run=run, config=config,
                     round=number, payload=base64.b64encode(orders.payloads[name]))
            for name in names
        )
    )  # fmt: skip
    where = {"project": hub.stage.project, "run": run, "step": "r1-train", "key": "l0-mean"}
    given = {EXCHANGE.of(participant=name, **where): name for name in names}
    found = {
        given[subject]: np.frombuffer(Contribution.decode(data).values, "<u8")
        for subject, data in hub.heard[said:]
        if subject in given
    }
    if len(found) < len(names):
        return None, "; ".join(refusals(results).values())
    total = np.sum(list(found.values()), axis=0, dtype=np.uint64)
    return np.frombuffer(decode_sum(total.tobytes(), ring)), ""


async def within_without_one(
    hub: LyingHub, number: int = 1, sent: Array = MODEL, **how: Any
) -> tuple[Array | None, str]:
    """What the sums of all in a first round and, asked as `sum_within` is told, of all but the target differ by."""
    first, why = await sum_within(hub, "s0", hub.stage.names, 1)
    assert first is not None, why
    second, why = await sum_within(hub, "s1", without(hub, TARGET), number, sent, **how)
    return (None, why) if second is None else (first - second, "")


def are_statistics(hub: LyingHub, read: Array | None) -> bool:
    """Whether these are what the target contributes in the middle of a round."""
    assert read is not None
    return bool(np.abs(read - hub.stage.sites[TARGET].worker.x.mean(axis=0)).max() < 1e-8)
