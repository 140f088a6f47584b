"""Plays a sweep on a hub: what is there already is found by its tags, the rest is submitted, some at a time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hanse.sweeps.outcome import Swept
from hanse.sweeps.plan import Trial
from hanse_fabric.errors import ErrorCode, HanseError, invalid

if TYPE_CHECKING:
    from hanse.aio import AsyncProject, AsyncRun
    from hanse.views import RunView

MOST_AT_ONCE = 32
_BROKEN = ("failed", "cancelled")
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a sweep will do, before it does it.

    Attributes:
        trials: all of them, in order.
        there: runs that have been submitted, by trial tag.
        epsilon: what the runs that are not there cost a site's privacy budget together, at most; infinite where it
            depends on each site's data; 0 where they are not private.
    """

    trials: tuple[Trial, ...]
    there: dict[str, RunView]
    epsilon: float

    @property
    def new(self) -> tuple[Trial, ...]:
        """What is to be submitted."""
        return tuple(trial for trial in self.trials if trial.trial not in self.there)

    @property
    def said(self) -> str:
        """In words."""
        words = f"{len(self.trials)} runs"
        if self.there:
            words += f", {len(self.there)} of them there already"
        words += f". Each of the {len(self.new)} new ones counts where a site limits runs a day (asking.runs)"
        if self.epsilon == math.inf:
            return f"{words}, and each is charged to sites' privacy budgets, how much depends on their data."
        if self.epsilon:
            return f"{words}. Together they cost each site epsilon {self.epsilon:.4g} of its privacy budget."
        return f"{words}."


async def foresee(project: AsyncProject, trials: Sequence[Trial], *, again: bool = False) -> Foreseen:
    """Have the hub check every job before any is submitted, and find the runs that are there.

    Args:
        again: whether runs that failed or were cancelled count as not there.

    Raises:
        HanseError: INVALID_INPUT and others, naming the settings of a job that the hub refuses.
    """
    sweep, there = trials[0].sweep, dict[str, "RunView"]()
    for run in reversed(await project.runs()):  # oldest first: of two that are alike, the newer one
        tags = [tag for tag in run.view.tags if tag.startswith("trial:")]
        if sweep in run.view.tags and tags and not (again and run.state in _BROKEN):
            there[tags[-1]] = run.view
    wanted = {trial.trial for trial in trials}
    found = {tag: run for tag, run in there.items() if tag in wanted}
    epsilon = 0.0
    for trial in trials:
        if trial.trial in found:
            continue
        try:
            checked = await project.check(trial.job)
        except HanseError as error:
            raise HanseError(error.code, f"{trial.said}: {error.message}", hint=error.hint) from None
        if trial.job.get("privacy"):
            charge = checked.get("epsilon")
            epsilon += math.inf if charge is None else float(charge)
    return Foreseen(tuple(trials), found, epsilon)


async def conduct(
    project: AsyncProject,
    foreseen: Foreseen,
    *,
    at_once: int = 1,
    epsilon: float | None = None,
    metric: str = "",
    tell: Tell | None = None,
) -> Swept:
    """Submit what is not there, and wait until all have ended. What is cut off goes on by being called again.

    Args:
        at_once: how many runs are under way at the same time.
        epsilon: what the new runs may cost a site's privacy budget together; needed where they cost any.
        metric: to compare the runs by.
        tell: hears of every run that begins or has ended.

    Raises:
        HanseError: INVALID_INPUT before anything is submitted, where `epsilon` is missing or too small; what the hub
            answers. A run that fails is an outcome.
    """
    if not 1 <= at_once <= MOST_AT_ONCE:
        raise invalid("at_once", at_once, f"1 to {MOST_AT_ONCE}")
    if foreseen.epsilon and (epsilon is None or not epsilon >= foreseen.epsilon * (1 - 1e-9)):
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"epsilon: {epsilon}, expected {foreseen.epsilon:.6g} at least, which the sweep's {len(foreseen.new)} new "
            "runs cost each site's privacy budget together",
            hint="give it to spend so much; or fewer runs, fewer rounds, or a smaller privacy.epsilon",
        )
    said = tell or (lambda _: None)
    places = asyncio.Semaphore(at_once)

    async def play(trial: Trial) -> AsyncRun:
        async with places:
            if (former := foreseen.there.get(trial.trial)) is not None:
                run = await project.get_run(former.run)
            else:
                run = await project.run(trial.job)
                said(f"{trial.said}: run {run.id} is submitted")
            if not run.view.ended:
                await run.wait()
                said(f"{trial.said}: run {run.id} is {run.state}")
            return await project.get_run(run.id)  # with its job, which lists do not have

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(play(trial)) for trial in foreseen.trials]
    except BaseExceptionGroup as group_of_errors:
        raise group_of_errors.exceptions[0] from None  # the others were cut off by it; their runs go on
    runs = [task.result() for task in tasks]
    return Swept(foreseen.trials, [(run.view, await run.history()) for run in runs], metric)
