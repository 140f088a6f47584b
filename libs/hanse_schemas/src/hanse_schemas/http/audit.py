"""The audit: who did what, when, on whose authority."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug


class AuditQuery(Frozen):
    """A page: entries with a sequence above `after`, at most `limit` of them.

    Attributes:
        before: entries with a sequence below it; `newest`: the newest of these, newest first. So the first page has
            what happened last, and the next page is before the last entry of this one.
        action: that and what is under it: `run` is `run.submit`, too. `actor`: exactly that one.
        since, until: moments, both included.
        contains: in any case, in actor, action, subject, authority or detail.
    """

    after: int = Field(default=0, ge=0)
    before: int | None = Field(default=None, ge=1)
    limit: int = Field(default=10_000, ge=1, le=100_000)
    newest: bool = False
    action: str | None = Field(default=None, min_length=1, max_length=100)
    actor: str | None = Field(default=None, min_length=1, max_length=200)
    since: datetime | None = None
    until: datetime | None = None
    contains: str | None = Field(default=None, min_length=1, max_length=200)


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
    """Entries, oldest first; with `newest`, newest first."""

    events: tuple[AuditEntry, ...]
