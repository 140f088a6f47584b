"""Participants: who is enrolled, when last seen, with which clock."""

from __future__ import annotations

from datetime import datetime

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import HUB_REGION, Digest, Slug


class BudgetView(Frozen):
    """What a site says of its privacy budget for the project.

    Attributes:
        spent: epsilon, at `delta`.
        allowed: the ceiling; null: there is none.
    """

    spent: float
    delta: float
    allowed: float | None = None


class ConsentView(Frozen):
    """That a site agrees to terms of the project.

    Attributes:
        terms: their digest.
        by, at: who has said so at the site, and when.
        current: whether these are the project's terms now.
    """

    terms: Digest
    by: str
    at: datetime
    current: bool


class ParticipantView(Frozen):
    """A participant.

    Attributes:
        region: where it connects.
        public_key: raw Ed25519, base64.
        online: seen within three minutes.
        clock_difference: seconds that its clock is ahead of the hub's, transit included; null: not seen arriving.
        unfit: it has said that its data are not as the project declares them: it takes part in nothing.
        working_on: the task that it said it works on.
        paused: its administrator lets no task begin.
        rules: its policy in words, where it tells that; null: it does not.
        budget: what of its privacy budget for this project is spent, where it tells that.
        consent: its newest; null: to no terms.
        left_at: when the site itself ended its membership; null: it has not.
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
    paused: bool = False
    rules: tuple[str, ...] | None = None
    budget: BudgetView | None = None
    consent: ConsentView | None = None
    left_at: datetime | None = None

    @property
    def state(self) -> str:
        """`left`, `revoked`, `offline`, `unfit` (there, and its data are refused), `paused` or `online`."""
        if self.revoked:
            return "revoked" if self.left_at is None else "left"
        if not self.online:
            return "offline"
        if self.unfit:
            return "unfit"
        return "paused" if self.paused else "online"


class ParticipantList(Frozen):
    """A project's participants, by name."""

    participants: tuple[ParticipantView, ...]
