"""How long a site may be away and come back by its key alone: the owner's setting of its project.

A site is there when its token is renewed. That is written down once a day, so one that was away is let in for up to a
day more than the owner has said.
"""

from __future__ import annotations

from datetime import timedelta

from hanse_coordinator.records import ProjectRecord
from hanse_fabric.clock import Clock
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.records import Bucket

_NOTED_EVERY = timedelta(days=1)


async def note_there(participants: Bucket[ParticipantRecord], record: ParticipantRecord, clock: Clock) -> None:
    """Write down that the site is there now."""
    now = clock.now()
    if now - record.last_there >= _NOTED_EVERY:
        await participants.change(
            lambda old: old.model_copy(update={"renewed_at": now}),
            project=record.project, participant=record.participant,
        )  # fmt: skip


def was_away_too_long(project: ProjectRecord, record: ParticipantRecord, clock: Clock) -> bool:
    """Whether a site needs another invitation to come back."""
    longest = project.longest_absence_days
    return longest is not None and clock.now() - record.last_there > timedelta(days=longest) + _NOTED_EVERY


def check_absence(project: ProjectRecord, record: ParticipantRecord, clock: Clock) -> None:
    """Whether a site may come back by its key alone.

    Raises:
        HanseError: FORBIDDEN where it was away for longer than the project's owner lets sites be.
    """
    if was_away_too_long(project, record, clock):
        raise HanseError(
            ErrorCode.FORBIDDEN,
            f"participant: {record.participant!r} was away for {(clock.now() - record.last_there).days} days; "
            f"{project.name!r} takes sites back without asking for {project.longest_absence_days}",
            hint="the project's owner invites it again, by the same name; it joins with the key that it has",
        )
