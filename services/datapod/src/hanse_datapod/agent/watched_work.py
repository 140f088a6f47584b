"""Work under watch: its progress is told to the hub, and it is given up once the hub no longer waits for it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

from hanse_datapod.answers.delivery import name_of
from hanse_datapod.home.now import Now
from hanse_datapod.home.outbox import Leaving
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.worker.port import Worker, WorkOutcome, WorkRequest
from hanse_fabric.clock import ends_within
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task
from hanse_fabric.subjects import PROGRESS
from hanse_site import SiteLink
from hanse_site.link import open_or_unknown

TICK_S = 1.0
LOOK_S = 10.0
BELIEVED = 3
"""So many looks in a row must find a task closed: a server of the bus that was away may lack it for a moment."""
LIVES = 3


def coarse(fraction: float, text: str) -> tuple[float, str]:  # noqa: ARG001 - it has losses and steps
    """Progress of an answer that is hidden: quarters. An exact fraction tells the number of steps, and so of people."""
    return math.floor(4 * fraction) / 4, ""


async def watch_over(
    link: SiteLink,
    worker: Worker,
    request: WorkRequest,
    task: Task,
    write_down: Callable[[Leaving], Awaitable[None]],
    policy: PrivacyPolicy,
    now: Now,
) -> WorkOutcome:
    """Have the worker do `request`; again if its process died meanwhile, LIVES times at most.

    Its progress is shown at the site by `now`, and told to the hub where the policy lets durations and numbers of
    examples leave, for it speaks of both.

    When this is cancelled, the worker is told to stop before it returns.

    Raises:
        HanseError: what the worker raises; CANCELLED when the hub has closed the task meanwhile.
    """

    told_at_all = policy.tells("seconds") and policy.tells("examples")

    async def watched() -> WorkOutcome:
        told: tuple[float, str] | None = None
        latest: list[tuple[float, str]] = []
        here: list[tuple[float, str]] = []
        shown: tuple[float, str] | None = None

        def on_progress(fraction: float, text: str) -> None:
            here[:] = [(fraction, text)]
            if told_at_all:
                hidden = task.masking is not None or task.privacy is not None
                latest[:] = [coarse(fraction, text) if hidden else (fraction, text)]

        subject = PROGRESS.of(project=task.project, run=task.run, participant=task.participant)
        work = asyncio.ensure_future(worker.work(request, on_progress))
        clock = link.bus.clock
        looked, closed = clock.monotonic(), 0
        try:
            while not await ends_within(clock, work, TICK_S):
                if here and here[0] != shown:
                    shown = here[0]
                    now.progress(task, *shown)
                if latest and latest[0] != told:
                    told = latest[0]
                    size = len(told[1].encode())
                    await write_down(Leaving("progress", subject, size, task=name_of(task)))
                    await link.progress(task, *told)
                if clock.monotonic() - looked > LOOK_S:
                    looked = clock.monotonic()
                    closed = 0 if await open_or_unknown(link, task) else closed + 1
                    if closed == BELIEVED:
                        raise HanseError(ErrorCode.CANCELLED, f"task {task.id}: the hub has closed it")
            return work.result()
        finally:
            if not work.done():
                work.cancel()
                await asyncio.wait({work})

    for _ in range(LIVES - 1):
        try:
            return await watched()
        except HanseError as error:
            # The process was killed; the next one gives the same bits for the same request.
            if error.code is not ErrorCode.UNAVAILABLE:
                raise
    return await watched()
