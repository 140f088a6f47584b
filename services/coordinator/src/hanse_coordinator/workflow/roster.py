"""Who could take part: enrolled participants with their keys, and when each was last seen. One view for all runs."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Presence
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.subjects import PRESENCE, Stream

if TYPE_CHECKING:
    from hanse_fabric.records import Bucket

_LOG = logging.getLogger(__name__)
_STREAM: Stream = PRESENCE.stream or Stream("")


@dataclass(slots=True)
class _Member:
    key: bytes  # raw Ed25519
    revoked: bool


class Roster:
    """Participants by project, kept current by `watch`."""

    def __init__(self, bus: Bus, participants: Bucket[ParticipantRecord], clock: Clock) -> None:
        self._bus, self._bucket, self._clock = bus, participants, clock
        self._members: dict[tuple[str, str], _Member] = {}
        self._seen: dict[tuple[str, str], datetime] = {}
        self._names: dict[str, set[str]] = {}
        self._waiters: set[asyncio.Event] = set()
        self.ready = asyncio.Event()

    async def watch(self) -> None:
        """Keep the view current, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_presence())
            group.create_task(self._watch_members())

    def key_of(self, project: str, participant: str) -> bytes | None:
        """The participant's raw Ed25519 key; None where it is not enrolled, or revoked."""
        member = self._members.get((project, participant))
        return None if member is None or member.revoked else member.key

    def keys_of(self, project: str) -> dict[str, bytes]:
        """Raw Ed25519 keys, by name, of all who are enrolled and not revoked."""
        keys = ((name, self.key_of(project, name)) for name in sorted(self._names.get(project, ())))
        return {name: key for name, key in keys if key is not None}

    def present(self, project: str, within: float) -> tuple[str, ...]:
        """Names, sorted, of those enrolled, not revoked, and seen within so many seconds."""
        now = self._clock.now()
        return tuple(
            name
            for name in sorted(self._names.get(project, ()))
            if not self._members[project, name].revoked
            and (seen := self._seen.get((project, name))) is not None
            and (now - seen).total_seconds() <= within
        )

    async def changed(self) -> None:
        """Return at the next change of who is there."""
        event = asyncio.Event()
        self._waiters.add(event)
        try:
            await event.wait()
        finally:
            self._waiters.discard(event)

    def _wake(self) -> None:
        for event in self._waiters:
            event.set()

    async def _watch_members(self) -> None:
        async with self._bucket.watch() as changes:
            async for change in changes:
                if change is None:
                    self.ready.set()
                    continue
                project, name = change.tokens["project"], change.tokens["participant"]
                if change.value is None:
                    self._members.pop((project, name), None)
                    self._names.get(project, set()).discard(name)
                else:
                    self._members[project, name] = _Member(change.value.public_key, change.value.revoked)
                    self._names.setdefault(project, set()).add(name)
                self._wake()

    async def _watch_presence(self) -> None:
        pattern = PRESENCE.wildcard()
        stored = await self._bus.snapshot(_STREAM, pattern)
        for record in stored:
            presence = _read(record)
            if presence is not None:
                self._note(record, presence.sent_at)
        after = max((record.sequence for record in stored), default=0)
        async with self._bus.follow(_STREAM, pattern, after=after) as records:
            async for record in records:
                if _read(record) is not None:
                    # Live signs of life count at our own time: the site's clock may be minutes off.
                    self._note(record, self._clock.now())

    def _note(self, record: Record, at: datetime) -> None:
        tokens = PRESENCE.parse(record.subject)
        self._seen[tokens["project"], tokens["participant"]] = min(at, self._clock.now())
        self._wake()


def _read(record: Record) -> Presence | None:
    try:
        return Presence.decode(record.data)
    except HanseError as error:
        _LOG.warning("presence on %s is not understood: %s", record.subject, error)
        return None
