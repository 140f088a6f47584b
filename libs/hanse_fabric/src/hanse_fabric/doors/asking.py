"""A site's side of the doors: signed requests, and what it is told."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from hanse_fabric.bus.port import Bus, Record
from hanse_fabric.doors.frames import read_answer, write_request
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.doors import DoorRequest
from hanse_fabric.names import HUB_REGION
from hanse_fabric.subjects import DOORS, TELL, Door
from hanse_fabric.telemetry.traces import inject


@dataclass(frozen=True, slots=True)
class Doors:
    """The doors as one participant finds them.

    Attributes:
        region: whose account its token is of.
        key: its enrolled key.
    """

    bus: Bus
    project: str
    participant: str
    key: SigningKey
    region: str = HUB_REGION

    async def ask(self, kind: Door, content: bytes = b"", *, timeout: float = 10.0, **about: str) -> bytes:
        """The answer to a request. It may arrive more than once; whoever serves it writes it down once.

        Args:
            about: fields of `DoorRequest`: run, step, key, digest.

        Raises:
            HanseError: the refusal; TIMEOUT when nobody answers; what `Bus.request` raises.
        """
        request = self._signed(kind, content, about)
        return read_answer(request, await self.bus.request(self._subject(kind), request, timeout=timeout))

    async def say(self, kind: Door, content: bytes, **about: str) -> None:
        """The same without an answer; it may be lost."""
        await self.bus.tell(self._subject(kind), self._signed(kind, content, about), headers=inject())

    def told(self) -> AbstractAsyncContextManager[AsyncIterator[Record | None]]:
        """What the hub tells this participant (`Bus.hear`)."""
        return self.bus.hear(TELL.of(region=self.region, project=self.project, participant=self.participant))

    def _subject(self, kind: Door) -> str:
        return DOORS[kind].of(region=self.region, project=self.project, participant=self.participant)

    def _signed(self, kind: Door, content: bytes, about: dict[str, str]) -> bytes:
        head = {"kind": kind.value, "project": self.project, "participant": self.participant} | about
        return write_request(self.key, DoorRequest.model_validate(head | {"nonce": secrets.token_hex(16)}), content)
