"""The agent's part of sums in the middle of a task: the worker's arrays to the bus, the sums back to it.

Each contribution is in the outbox log before it leaves. Where the answer is masked, so are the sums (`hidden_sums`). A
task that asks for noise, or for a compensator's masks, has no exchange, whatever its algorithm.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.answers.delivery import name_of
from hanse_datapod.answers.withheld import of_the_data
from hanse_datapod.home.outbox import Leaving
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.masking.sums import hidden_sums
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import DATA_KEY, AskSum, DataState
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import END_KEY, MaskingMode, Task, TaskKind
from hanse_fabric.subjects import EXCHANGE
from hanse_site import SiteLink
from hanse_site.trying import keep_trying

if TYPE_CHECKING:
    from hanse_learning.config import TrainConfig

_LEAST_WAIT = 0.1


@asynccontextmanager
async def open_sums(
    link: SiteLink, task: Task, write_down: Callable[[Leaving], Awaitable[None]], policy: Policy, *, examples: int,
    home: Path, remembered: Remembered,
) -> AsyncIterator[AskSum | None]:  # fmt: skip
    """What the worker may contribute to while inside; None where the task has no sums.

    A contribution fails with QUORUM where another participant's does not come in the algorithm's patience.

    Args:
        examples: of the site; a contribution is a result of those in one batch.
        remembered: the site's memory of such sums.
        home: where the keys of mode `pairwise` are.

    Raises:
        HanseError: POLICY where a batch has fewer examples than a result must have, in fixed words under masks; what
            `hidden_sums` refuses.
    """
    train = _train(task)
    if train is None:
        yield None
        return
    from hanse_learning.config import patience_of

    patience = patience_of(train)
    if patience is None:
        yield None
        return
    import numpy as np  # loaded here, for most agents never need it

    from hanse_fabric.exchange import open_exchange

    with of_the_data(task):
        policy.check_examples(min(examples, train.batch_size), tell=task.masking is None)
    hidden = None
    if task.masking is not None:
        hidden = await asyncio.to_thread(hidden_sums, link, policy, task, task.masking, home, remembered)
    where = {"project": task.project, "run": task.run, "step": task.step, "participant": link.identity.participant}
    clock = link.bus.clock
    async with open_exchange(link.doors, run=task.run, step=task.step) as exchange:

        async def give(key: str, values: bytes) -> bytes:
            if key == DATA_KEY:
                if hidden is not None:
                    await asyncio.to_thread(hidden.made_of, DataState.heard(values))
                return b""
            if hidden is not None and key != END_KEY:
                values = await asyncio.to_thread(hidden.hide, key, values)
            await write_down(
                Leaving(
                    "sum", EXCHANGE.of(key=key, **where), len(values), task=name_of(task),
                    masked=None if key == END_KEY else hidden is not None,
                )
            )  # fmt: skip
            if key == END_KEY:
                await exchange.end()
                return b""
            ends = clock.monotonic() + patience

            async def total() -> bytes:
                left = max(_LEAST_WAIT, ends - clock.monotonic())
                if hidden is not None:
                    return await exchange.sum_bytes(key, values, timeout=left)
                return (await exchange.sum(key, np.frombuffer(values, "<f8"), timeout=left)).astype("<f8").tobytes()

            try:
                # A repeated contribution counts once, so a bus that is away for a moment breaks no sum.
                summed = await keep_trying(total, patience, clock)
            except HanseError as error:
                if error.code not in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE):
                    raise
                raise HanseError(ErrorCode.QUORUM, error.message, hint="the step is done again without them") from None
            return summed if hidden is None else await asyncio.to_thread(hidden.read, key, summed)

        yield give


def waits_for_others(task: Task) -> bool:
    """Whether the work on a task may wait for other sites' work on the same step. Pure."""
    given = task.config.get("train")
    if not isinstance(given, Mapping) or not given.get("algorithm"):
        return False
    from hanse_learning.config import patience_of

    try:
        train = _train(task)
    except HanseError:
        return False  # it will be refused, with the reason
    return train is not None and patience_of(train) is not None


def _train(task: Task) -> TrainConfig | None:
    """How the built-in trainer trains, where sums may leave at all."""
    if task.kind is not TaskKind.TRAIN or task.privacy is not None:
        return None
    if task.masking is not None and task.masking.mode is MaskingMode.COMPENSATOR:
        return None
    if task.config.get("code"):
        return None  # site code has a `train` section of its own
    from hanse_learning.config import check_train

    return check_train(task.config.get("train") or {})
