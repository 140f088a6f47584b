"""What the hub keeps of people and of their sessions. Secrets are hashes, but that of an authenticator, which is no
secret to whoever has to check its codes."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Message
from hanse_fabric.names import RunId, Slug, derive_id
from hanse_schemas.http.sessions import PersonName


def person_key(name: str) -> str:
    """Under what a person's record is kept: names hold what keys of records may not."""
    return derive_id("person", name)[:12]


class PersonRecord(Message):
    """A person who may sign in.

    Attributes:
        password: Argon2id, in its usual form; None: nobody signs in by one.
        totp: the authenticator's secret (base32) in use; `asked_totp`: one whose first code was not shown yet.
        totp_step: of the last code that was taken: none is taken twice.
        browser_key: hexadecimal; it signs cookies of browsers in which the person has signed in.
        link: hash of the one-time link's secret; it ends at `link_expires_at`.
        generation: sessions of an earlier one are over.
    """

    schema_id: ClassVar[str] = "hanse.person_record/1"

    name: PersonName
    display: str = Field(default="", max_length=200)
    source: Literal["local", "provider"] = "local"
    role: Literal["owner", "operator"]
    projects: tuple[Slug, ...] | None = None
    password: str | None = None
    totp: str | None = None
    asked_totp: str | None = None
    totp_step: int = 0
    browser_key: str = ""
    link: str | None = None
    link_expires_at: Time | None = None
    generation: int = Field(default=1, ge=1)
    created_at: Time
    created_by: str
    last_sign_in: Time | None = None
    revoked: bool = False


class SessionRecord(Message):
    """A session, by the hash of its secret. `generation`: the person's, when it was opened."""

    schema_id: ClassVar[str] = "hanse.session_record/1"

    id: RunId
    hash: str
    person: PersonName
    generation: int
    created_at: Time
    expires_at: Time
    last_seen: Time
    ended: bool = False
