"""API keys, for the operator: their secrets are shown once."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug

LONGEST_S = 10 * 366 * 86_400
"""That a key which expires can be good for."""


class ApiRole(StrEnum):
    """Who holds an API key: an owner of projects, a site, or the hub's operator, who may do everything."""

    OWNER = "owner"
    SITE = "site"
    OPERATOR = "operator"


class CreateKey(Frozen):
    """A key to make. Sites get theirs by joining.

    Attributes:
        project: None: all projects.
        expires_in: seconds; None: it is good until it is revoked.
        read_only: it opens nothing that changes anything (GET alone).
    """

    role: Literal["owner", "operator"]
    project: Slug | None = None
    name: str = Field(default="", max_length=200)
    expires_in: float | None = Field(default=None, gt=0, le=LONGEST_S)
    read_only: bool = False


class KeyView(Frozen):
    """A key without its secret. `void`: the person who made it is no operator any more, so it lets nobody in."""

    id: str
    role: ApiRole
    project: Slug | None
    participant: Slug | None
    name: str
    created_at: datetime
    created_by: str
    revoked: bool
    expires_at: datetime | None = None
    read_only: bool = False
    void: bool = False


class IssuedKey(KeyView):
    """`key` is shown only here."""

    key: str


class KeyList(Frozen):
    """All keys, oldest first."""

    keys: tuple[KeyView, ...]
