"""What the hub could not read, for its operator."""

from __future__ import annotations

from datetime import datetime

from hanse_fabric.messages.base import Frozen


class UnreadableMessage(Frozen):
    """The newest message of a sender that could not be read. `head` is how it begins (base64)."""

    subject: str
    sequence: int
    at: datetime
    code: str
    reason: str
    size: int
    head: str


class UnreadableRecord(Frozen):
    """A record that is passed over, because it cannot be read."""

    subject: str
    revision: int
    code: str
    reason: str


class UnreadableView(Frozen):
    """Messages, the oldest first, and records."""

    messages: tuple[UnreadableMessage, ...]
    records: tuple[UnreadableRecord, ...]
