"""The verb `compute`: the answers of a study's cohorts to objects and facts, by way of their sum."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hanse_coordinator.workflow.failures import RunFailure
from hanse_coordinator.workflow.gathering import Gathering
from hanse_coordinator.workflow.outcomes import Computed
from hanse_coordinator.workflow.reducing import Reducing, Unmasking
from hanse_coordinator.workflow.reductions import Reductions
from hanse_coordinator.workflow.steps import Steps
from hanse_coordinator.workflow.storage import RunObjects
from hanse_coordinator.workflow.vitals import RunVitals
from hanse_fabric.errors import ErrorCode
from hanse_fabric.messages import StudyJob


class Studying:
    """The joint computations of one run, their outcomes journalled. Any number may be under way."""

    def __init__(
        self, steps: Steps, reductions: Reductions, *, gathering: Gathering, reducing: Reducing, objects: RunObjects,
        vitals: RunVitals,
    ) -> None:  # fmt: skip
        self._vitals, self._steps, self._reductions, self._objects = vitals, steps, reductions, objects
        self._gathering, self._reducing = gathering, reducing

    def computed(self, step: str, *of: str, beside: int) -> Computed | None:
        """See `RunContext.computed`."""
        closed = self._steps.recorded(step)
        if closed is None:
            return None
        for former in of:
            self._steps.passed(former)
            self._gathering.tidy_later(former, beside=beside)
        return Computed.of(closed)

    async def compute(self, job: StudyJob, unmask: Callable[[], Awaitable[Unmasking]] | None) -> Computed:
        """See `RunContext.compute`."""
        await self._steps.begin()
        leaving = [update.ref for update in job.updates]
        if unmask is not None:
            with self._vitals.phase("unmask", job.id):
                unmasking = await unmask()
            if unmasking.ring is None:
                computed = _not_made(unmasking)
                await self._steps.close(job.id, computed.body())
                return computed
            job = job.model_copy(update={"sum": unmasking.ring})
            if unmasking.ring.masks is not None and unmasking.ring.masks.update is not None:
                leaving.append(unmasking.ring.masks.update)
        with self._vitals.phase("compute", job.id):
            computed = await self._reduced(job)
        await self._steps.close(job.id, computed.body())
        self._steps.later(self._objects.forget(leaving))
        return computed

    async def give_up(self, step: str, reason: str) -> Computed:
        """See `RunContext.give_up`."""
        await self._steps.begin()
        computed = Computed(lost=reason[:2000])
        await self._steps.close(step, computed.body())
        return computed

    async def _reduced(self, job: StudyJob) -> Computed:
        try:
            reduced = await self._reductions.study(job)
        except RunFailure as failure:
            if failure.code is not ErrorCode.TAMPERED:
                raise
            return Computed(lost=failure.message)
        return Computed(
            outputs={} if reduced.refused else reduced.outputs,
            facts={} if reduced.refused else reduced.facts or {},
            refused=self._reducing.told(job.id, 0, reduced),
        )


def _not_made(unmasking: Unmasking) -> Computed:
    if unmasking.refused:
        return Computed(refused=dict.fromkeys(unmasking.refused, "its part of the masking was refused"))
    return Computed(lost="too few helped to take the masks off")
