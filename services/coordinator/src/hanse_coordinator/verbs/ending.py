"""What is left to do on the bus when a run has ended: its messages are removed, and sites are told of a study's end."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from hanse_coordinator.doors import mark_of
from hanse_coordinator.runs.roster import Roster
from hanse_fabric import subjects
from hanse_fabric.bus.port import Bus
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.names import derive_id

FORGET = "forget"
"""The step of a task that nobody answers: the study of its run is over."""

_FORGET_WITHIN = timedelta(days=30)
_OF_A_RUN = (
    subjects.TASK, subjects.JOB, subjects.RESULT, subjects.UPDATE, subjects.EXCHANGE, subjects.EXCHANGED,
    subjects.REDUCED, subjects.MASK_REQUEST, subjects.MASK_ANSWER, subjects.MASKS,
)  # fmt: skip


async def purge_run(bus: Bus, project: str, run: str) -> None:
    """Remove a run's messages, but for its journal and its events."""
    await _purge(bus, project, run, _OF_A_RUN)


async def purge_past(bus: Bus, project: str, run: str, *, study: bool) -> None:
    """Remove what was left of the messages of a run that has ended, and its journal and its events.

    Args:
        study: sites that were away are still to hear that it is over (`tell_sites`), so its tasks stay.
    """
    left = [subject for subject in _OF_A_RUN if subject is not subjects.TASK or not study]
    await _purge(bus, project, run, (*left, subjects.EVENT, subjects.SENT_BYTES, subjects.JOURNAL))


async def _purge(bus: Bus, project: str, run: str, rows: Iterable[subjects.Subject]) -> None:
    for subject in rows:
        if subject.stream is not None:
            await bus.purge(subject.stream, subject.wildcard(project=project, run=run))


async def tell_sites(bus: Bus, roster: Roster, now: datetime, *, project: str, run: str, workflow: str) -> None:
    """Tell the sites that a study is over, those that are there at once and the others whenever they come by: they
    keep files of it."""
    names = roster.keys_of(project)
    for name in names:
        task = Task(
            id=derive_id(run, FORGET, name), project=project, run=run, step=FORGET, participant=name,
            workflow=workflow, kind=TaskKind.STUDY, round=0, config={"step": FORGET}, seed=0, peers=len(names),
            issued_at=now, deadline=now + _FORGET_WITHIN,
        )  # fmt: skip
        subject, data = subjects.TASK.of(project=project, participant=name, run=run, step=FORGET), task.encode()
        told = {subjects.TASK_MARK: mark_of(subject, await bus.publish(subject, data))}
        region = roster.region_of(project, name)
        await bus.tell(subjects.TELL.of(region=region, project=project, participant=name), data, headers=told)
