"""Sums of one work with a compensator, as a hub asks for them that wants a difference of two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from adversary.lying_hub import MODEL, LyingHub, half_step, refusals
from adversary.stage import Array
from hanse_privacy.ring.codec import decode

TARGET = "site-0"
MOVED = MODEL.astype(np.float32).astype(np.float64)
MOVED[3] = np.nextafter(np.float32(MOVED[3]), np.float32(9))


async def summed(
    hub: LyingHub, names: Iterable[str], session: str, *, model: Array = MODEL, **task: Any
) -> tuple[Array | None, str]:
    """The sum of the updates of some, in a session of a run of its own; or why there is none."""
    plan, run = task.pop("plan", None) or hub.plan(bits=64), f"runof{session:0>7}"
    tasks = [hub.task(name, model=model, session=session, plan=plan, run=run, **task) for name in names]
    results = await hub.ask(*tasks)
    if refusals(results):
        return None, "; ".join(refusals(results).values())
    answer = await hub.ask_masks(results, session, run=run)
    if answer.sum is None:
        return None, answer.reason
    return decode(await hub.total(results) - await hub.masks(answer), plan.default), ""


def is_of(hub: LyingHub, read: Array | None, name: str, within: float = 8) -> bool:
    assert read is not None
    return bool(
        np.abs(read - hub.stage.sites[name].update(MODEL)).max() <= within * half_step(hub.plan(bits=64)) + 1e-7
    )


def without(hub: LyingHub, *names: str) -> list[str]:
    return [name for name in hub.stage.names if name not in names]
