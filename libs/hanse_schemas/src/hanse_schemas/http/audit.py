"""The audit: who did what, when, on whose authority."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug


class AuditQuery(Frozen):
    """A page: entries with a sequence above `after`, at most `limit` of them."""

    after: int = Field(default=0, ge=0)
    limit: int = Field(default=10_000, ge=1, le=100_000)


class AuditEntry(Frozen):
    """A decision that changed state; `sequence` is where the next page begins."""

    sequence: int
    project: Slug
    at: datetime
    actor: str
    action: str
    subject: str
    authority: str
    detail: dict[str, Any]


class AuditLog(Frozen):
    """Entries, oldest first."""

    events: tuple[AuditEntry, ...]
