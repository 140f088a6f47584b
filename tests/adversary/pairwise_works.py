"""Sums of one work whose masks cancel, as a hub asks for them that wants a difference of two."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from adversary.lying_hub import MODEL, LyingHub, Results, half_step, payloads, refusals
from adversary.stage import Array, Site
from adversary.works import TARGET
from hanse_fabric.messages import MaskingMode, TaskKind
from hanse_learning.binding import work_digest
from hanse_privacy.pairwise.coordination import order_masks
from hanse_privacy.ring.codec import decode

RUN = "runof00000s0"


async def opened(
    hub: LyingHub, session: str, names: list[str], run: str, *, threshold: int | None = None, model: Array = MODEL
) -> tuple[Any, Any, dict[str, str]]:
    adverts, work = await hub.adverts(names, run=run), work_digest(hub.task(TARGET, model=model))
    request = hub.share_request(adverts, session, run=run, threshold=threshold, work=work)
    tasks = [hub.protocol(name, TaskKind.SHARE, request, request.encode()) for name in names]
    answers = await hub.ask(*tasks)
    if refusals(answers):
        return request, None, refusals(answers)
    return request, order_masks(request, payloads(answers)), {}


async def answered(
    hub: LyingHub, session: str, orders: Any, names: Iterable[str], run: str, *, model: Array = MODEL, **task: Any
) -> Results:
    plan = hub.plan(mode="pairwise", bits=64)
    return await hub.ask(
        *(
            hub.task(name, model=model, mode=MaskingMode.PAIRWISE, session=session, plan=plan, run=run,
                     payload=base64.b64encode(orders.payloads[name]), **task)
            for name in names
        )
    )  # fmt: skip


async def pairwise_sum(
    hub: LyingHub, session: str, names: list[str], *, model: Array = MODEL, **how: Any
) -> tuple[Array | None, str]:
    """The sum of some, in a session of a run of its own; or why there is none."""
    run = f"runof{session:0>7}"
    request, orders, refused = await opened(hub, session, names, run, model=model, **how)
    if orders is None:
        return None, "; ".join(refused.values())
    results = await answered(hub, session, orders, names, run, model=model)
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    return await hub.unmasked(request, orders, results, hub.plan(mode="pairwise", bits=64)), "not unmasked"


async def answered_again(
    hub: LyingHub, orders: Any, meanwhile: Callable[[Site], None]
) -> tuple[Array | None, Array, str]:
    """What the target's two answers to one task differ by, and what its updates do: between them its site is stopped,
    `meanwhile` is done to it, and its data change."""
    site = hub.stage.sites[TARGET]
    first = await answered(hub, "s0", orders, [TARGET], RUN)
    before, masked = site.update(MODEL), await hub.update(first[TARGET])
    await site.stop()
    meanwhile(site)
    site.worker.y = site.worker.y + 1
    await site.start()
    again = await answered(hub, "s0", orders, [TARGET], RUN)
    apart = site.update(MODEL) - before
    if refusals(again):
        return None, apart, refusals(again)[TARGET]
    return decode(await hub.update(again[TARGET]) - masked, hub.plan(mode="pairwise", bits=64).default), apart, ""


def is_under_one_mask(hub: LyingHub, read: Array | None, apart: Array) -> bool:
    """Whether what two answers differ by is what their updates do."""
    assert read is not None
    return bool(np.abs(read - apart).max() <= 2 * half_step(hub.plan(mode="pairwise", bits=64)) + 1e-9)
