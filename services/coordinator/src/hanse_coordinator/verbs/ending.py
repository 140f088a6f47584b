"""What is left to do on the bus when a run has ended: its messages are removed, and sites are told of a study's end."""

from __future__ import annotations

from datetime import timedelta

from hanse_coordinator.runs.roster import Roster
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.names import derive_id
from hanse_fabric.subjects import (
    EXCHANGE,
    EXCHANGED,
    JOB,
    MASK_ANSWER,
    MASK_REQUEST,
    MASKS,
    REDUCED,
    RESULT,
    TASK,
    UPDATE,
)

FORGET = "forget"
"""The step of a task that nobody answers: the study of its run is over."""

_FORGET_WITHIN = timedelta(days=30)
_OF_A_RUN = (TASK, JOB, RESULT, UPDATE, EXCHANGE, EXCHANGED, REDUCED, MASK_REQUEST, MASK_ANSWER, MASKS)


class Ending:
    """The end of one run."""

    def __init__(self, bus: Bus, clock: Clock, roster: Roster, *, project: str, run: str, workflow: str) -> None:
        self._bus, self._clock, self._roster = bus, clock, roster
        self._project, self._run, self._workflow = project, run, workflow

    async def purge(self) -> None:
        """Remove the run's messages, but for its journal and its events."""
        for subject in _OF_A_RUN:
            if subject.stream is not None:
                await self._bus.purge(subject.stream, subject.wildcard(project=self._project, run=self._run))

    async def tell_sites(self) -> None:
        """Tell the sites that the study is over, whenever they come by: they keep files of it."""
        now, names = self._clock.now(), tuple(self._roster.keys_of(self._project))
        for name in names:
            task = Task(
                id=derive_id(self._run, FORGET, name), project=self._project, run=self._run, step=FORGET,
                participant=name, workflow=self._workflow, kind=TaskKind.STUDY, round=0, config={"step": FORGET},
                seed=0, peers=len(names), issued_at=now, deadline=now + _FORGET_WITHIN,
            )  # fmt: skip
            subject = TASK.of(project=self._project, participant=name, run=self._run, step=FORGET)
            await self._bus.publish(subject, task.encode())
