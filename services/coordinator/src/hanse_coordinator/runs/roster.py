"""Who could take part: enrolled participants with their keys, and when each was last seen. One view for all runs."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING

from hanse_coordinator.boards import PresenceBoard
from hanse_fabric.bus.port import Bus
from hanse_fabric.clock import Clock
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.names import HUB_REGION, SLUG
from hanse_fabric.telemetry.catalogue import PARTICIPANTS, SILENT_SECONDS

if TYPE_CHECKING:
    from hanse_fabric.records import Bucket

STATES = ("online", "busy", "silent", "unseen", "revoked")
_MOST_SILENT = 50


class Roster:
    """Participants by project, kept current by `watch`."""

    def __init__(self, bus: Bus, participants: Bucket[ParticipantRecord], clock: Clock) -> None:
        self._bucket, self._clock = participants, clock
        self._presence = PresenceBoard(bus, clock, told=self._wake)
        self._members: dict[tuple[str, str], ParticipantRecord] = {}
        self._names: dict[str, set[str]] = {}
        self._waiters: set[asyncio.Event] = set()
        self.ready = asyncio.Event()

    async def watch(self) -> None:
        """Keep the view current, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._presence.watch())
            group.create_task(self._watch_members())

    async def knows(self, project: str, participant: str) -> bool:
        """Whether the participant was ever enrolled; it may be revoked. This view may not have heard of one who has
        joined just now: then the record itself is asked.

        Raises:
            UnreadableError: there is a record that this release cannot read.
        """
        if (project, participant) in self._members:
            return True
        if not re.fullmatch(SLUG, participant):
            return False
        return await self._bucket.get(project=project, participant=participant) is not None

    def key_of(self, project: str, participant: str) -> bytes | None:
        """The participant's raw Ed25519 key; None where it is not enrolled, or revoked."""
        member = self._members.get((project, participant))
        return None if member is None or member.revoked else member.public_key

    def region_of(self, project: str, participant: str) -> str:
        """Where the participant is told of its tasks: where it was enrolled, whoever brings its signs of life."""
        member = self._members.get((project, participant))
        return HUB_REGION if member is None else member.connects_in

    def keys_of(self, project: str) -> dict[str, bytes]:
        """Raw Ed25519 keys, by name, of all who are enrolled and not revoked."""
        keys = ((name, self.key_of(project, name)) for name in sorted(self._names.get(project, ())))
        return {name: key for name, key in keys if key is not None}

    def present(self, project: str) -> tuple[str, ...]:
        """Names, sorted, of those enrolled, not revoked, seen of late, and not paused by their administrators."""
        now = self._clock.now()
        return tuple(
            name
            for name in sorted(self._names.get(project, ()))
            if not self._members[project, name].revoked
            and (seen := self._presence.of(project, name)) is not None
            and seen.is_current(now)
            and not seen.presence.paused
        )

    def rests(self, project: str, participant: str, *, run: str) -> bool:
        """Whether the participant has said that its administrator lets no task begin, and has none of the run in
        hand."""
        seen = self._presence.of(project, participant)
        return seen is not None and bool(seen.presence.paused) and seen.presence.working_on != run

    def absent(self, project: str) -> list[str]:
        """Names of those enrolled and not revoked who were not seen of late, or are paused."""
        there = set(self.present(project))
        names = sorted(self._names.get(project, ()))
        return [name for name in names if name not in there and not self._members[project, name].revoked]

    def set_gauges(self) -> None:
        """Set the gauges of participants: how many are in which state, and who has gone silent.

        States: online; busy (online, with a task in hand); silent (not seen of late); unseen (not in the
        last day, or never); revoked.
        """
        now, silent = self._clock.now(), list[tuple[float, str, str]]()
        states = Counter[tuple[str, str]]()
        for (project, name), member in self._members.items():
            seen = self._presence.of(project, name)
            if member.revoked:
                state = "revoked"
            elif seen is None:
                state = "unseen"
            elif not seen.is_current(now):
                state = "silent"
                silent.append(((now - seen.at).total_seconds(), project, name))
            else:
                state = "online" if seen.presence.working_on is None else "busy"
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
                    self._members[project, name] = change.value
                    self._names.setdefault(project, set()).add(name)
                self._wake()
