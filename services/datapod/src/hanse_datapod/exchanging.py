"""The agent's part of sums in the middle of a task: the worker's arrays to the bus, the sums back to it.

Each contribution is in the outbox log before it leaves. A task that asks for masks or noise has no exchange, whatever
its algorithm: these sums have neither.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import numpy as np

from hanse_datapod.outbox import Leaving
from hanse_datapod.worker.port import Exchanging
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.exchange import open_exchange
from hanse_fabric.messages import END_KEY, Task, TaskKind
from hanse_fabric.site import SiteLink
from hanse_fabric.subjects import EXCHANGE
from hanse_learning.config import check_train, patience_of


@asynccontextmanager
async def exchanging(
    link: SiteLink, task: Task, write_down: Callable[[Leaving], Awaitable[None]]
) -> AsyncIterator[Exchanging | None]:
    """What the worker may contribute to while inside; None where the task has no sums.

    A contribution fails with QUORUM where another participant's does not come in the algorithm's patience.
    """
    patience = _patience(task)
    if patience is None:
        yield None
        return
    where = {"project": task.project, "run": task.run, "step": task.step, "participant": link.identity.participant}
    async with open_exchange(link.bus, **where) as exchange:

        async def give(key: str, values: bytes) -> bytes:
            await write_down(Leaving("sum", EXCHANGE.of(key=key, **where), len(values)))
            if key == END_KEY:
                await exchange.end()
                return b""
            try:
                total = await exchange.sum(key, np.frombuffer(values, "<f8"), timeout=patience)
            except HanseError as error:
                if error.code is not ErrorCode.TIMEOUT:
                    raise
                raise HanseError(ErrorCode.QUORUM, error.message, hint="the step is done again without them") from None
            return total.astype("<f8").tobytes()

        yield give


def _patience(task: Task) -> float | None:
    if task.kind is not TaskKind.TRAIN or task.masking is not None or task.privacy is not None:
        return None
    if task.config.get("code"):
        return None  # its `train` section is its own
    return patience_of(check_train(task.config.get("train") or {}))
