"""Invitations: one-time join tokens that expire."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import HUB_REGION, Slug

LONGEST_S = 90 * 86_400
"""That an invitation can be good for."""


class Invite(Frozen):
    """Whom to invite.

    Attributes:
        region: where the site is to connect, one that the hub's operator has added.
        expires_in: seconds; None: the hub's default.
    """

    participant: Slug
    region: Slug = HUB_REGION
    expires_in: float | None = Field(default=None, gt=0, le=LONGEST_S)


class IssuedInvitation(Frozen):
    """`token` is shown only here."""

    id: str
    token: str
    participant: Slug
    region: Slug = HUB_REGION
    expires_at: datetime


class InvitationView(Frozen):
    """An invitation without its token."""

    id: str
    participant: Slug
    region: Slug = HUB_REGION
    state: Literal["open", "used", "expired", "revoked"]
    created_at: datetime
    created_by: str
    expires_at: datetime


class InvitationList(Frozen):
    """A project's invitations, oldest first."""

    invitations: tuple[InvitationView, ...]
