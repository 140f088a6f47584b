"""Who could take part: enrolled participants with their keys, and when each was last seen. One view for all runs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.clock import Clock
from hanse_fabric.errors import HanseError
from hanse_fabric.messages import Presence
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.subjects import PRESENCE, Stream
from hanse_fabric.telemetry.catalogue import PARTICIPANTS, SILENT_SECONDS

if TYPE_CHECKING:
    from hanse_fabric.records import Bucket

_LOG = logging.getLogger(__name__)
STATES = ("online", "busy", "silent", "unseen", "revoked")
_MOST_SILENT = 50
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
        self._busy: dict[tuple[str, str], bool] = {}
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

    def absent(self, project: str, within: float) -> list[str]:
        """Names of those enrolled and not revoked who were not seen within so many seconds."""
        there = set(self.present(project, within))
        names = sorted(self._names.get(project, ()))
        return [name for name in names if name not in there and not self._members[project, name].revoked]

    def tell(self, within: float) -> None:
        """Set the gauges of participants: how many are in which state, and who has gone silent.

        States: online; busy (online, with a task in hand); silent (not seen within so many seconds); unseen (not in the
        last day, or never); revoked.
        """
        now, silent = self._clock.now(), list[tuple[float, str, str]]()
        states = Counter[tuple[str, str]]()
        for (project, name), member in self._members.items():
            seen = self._seen.get((project, name))
            ago = None if seen is None else (now - seen).total_seconds()
            if member.revoked:
                state = "revoked"
            elif ago is None:
                state = "unseen"
            elif ago > within:
                state = "silent"
                silent.append((ago, project, name))
            else:
                state = "busy" if self._busy.get((project, name)) else "online"
            states[project, state] += 1
        every = [(project, state) for project in self._names for state in STATES]
        PARTICIPANTS.replace({series: states[series] for series in every})
        # The newest first: who has just gone is whom somebody can call.
        SILENT_SECONDS.replace({(project, name): ago for ago, project, name in sorted(silent)[:_MOST_SILENT]})

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
                self._note(record, presence, presence.sent_at)
        after = max((record.sequence for record in stored), default=0)
        async with self._bus.follow(_STREAM, pattern, after=after) as records:
            async for record in records:
                presence = _read(record)
                if presence is not None:
                    # Live signs of life count at our own time: the site's clock may be minutes off.
                    self._note(record, presence, self._clock.now())

    def _note(self, record: Record, presence: Presence, at: datetime) -> None:
        tokens = PRESENCE.parse(record.subject)
        self._busy[tokens["project"], tokens["participant"]] = presence.working_on is not None
        self._seen[tokens["project"], tokens["participant"]] = min(at, self._clock.now())
        self._wake()


def _read(record: Record) -> Presence | None:
    try:
        return Presence.decode(record.data)
    except HanseError as error:
        _LOG.warning("presence on %s is not understood: %s", record.subject, error)
        return None
