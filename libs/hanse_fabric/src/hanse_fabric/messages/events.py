"""What people watch (events of a run) and what they can prove later (audit)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Message
from hanse_fabric.names import RunId, Slug
from hanse_fabric.strict_json import LARGE


class RunEvent(Message):
    """Something that happened in a run, for watching it.

    `kind` is one of: state, round-started, task-answered, progress, round-finished, note, late-result, refused; of a
    study also computed (bytes by cohort) and structure.
    `data` holds the kind's own fields (state, round, participant, metrics, reason, seconds ...).
    """

    schema_id: ClassVar[str] = "hanse.run_event/1"
    limits = LARGE

    project: Slug
    run: RunId
    kind: str
    at: Time
    round: int = Field(default=0, ge=0)
    data: dict[str, Any] = {}


class AuditEvent(Message):
    """A decision that changed state: who, what, when, on whose authority.

    Attributes:
        actor: `key:<id>`, `participant:<name>`, or `service:<name>`.
        action: dotted, for example `run.submit`, `model.promote`, `participant.revoke`.
        subject: what it was done to.
        authority: the credential or rule that permitted it.
    """

    schema_id: ClassVar[str] = "hanse.audit_event/1"

    project: Slug
    at: Time
    actor: str
    action: str
    subject: str
    authority: str
    detail: dict[str, Any] = {}
