"""Participants: who is enrolled, when last seen, with which clock."""

from __future__ import annotations

from datetime import datetime

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import HUB_REGION, Slug


class ParticipantView(Frozen):
    """A participant.

    Attributes:
        region: where it connects.
        public_key: raw Ed25519, base64.
        online: seen within three minutes.
        clock_difference: seconds that its clock is ahead of the hub's, transit included; null: not seen arriving.
        unfit: it has said that its data are not as the project declares them: it takes part in nothing.
        working_on: the task that it said it works on.
    """

    participant: Slug
    region: Slug = HUB_REGION
    enrolled_at: datetime
    revoked: bool
    public_key: str
    version: str
    device: str
    last_seen: datetime | None
    online: bool
    clock_difference: float | None
    working_on: str | None
    unfit: bool = False

    @property
    def state(self) -> str:
        """`revoked`, `offline`, `unfit` (there, and its data are refused) or `online`."""
        if self.revoked or not self.online:
            return "revoked" if self.revoked else "offline"
        return "unfit" if self.unfit else "online"


class ParticipantList(Frozen):
    """A project's participants, by name."""

    participants: tuple[ParticipantView, ...]
