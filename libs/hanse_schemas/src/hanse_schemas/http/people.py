"""People who sign in: made, given rights, reset and revoked by the hub's operators."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug
from hanse_schemas.http.sessions import PersonName


class Rights(Frozen):
    """What a person may. `projects`: that they own; null: all. An operator's are all."""

    role: Literal["owner", "operator"]
    projects: tuple[Slug, ...] | None = Field(default=None, min_length=1, max_length=100)


class CreatePerson(Rights):
    """A person to let in; `display`: how they are called."""

    name: PersonName
    display: str = Field(default="", max_length=200)


class PersonView(Frozen):
    """A person.

    Attributes:
        state: `invited`: the one-time link was not used yet.
        sessions: that are open.
    """

    name: str
    display: str
    source: Literal["local", "provider"]
    role: Literal["owner", "operator"]
    projects: tuple[Slug, ...] | None
    totp: bool
    state: Literal["invited", "active", "revoked"]
    created_at: datetime
    created_by: str
    last_sign_in: datetime | None
    sessions: int


class IssuedPerson(PersonView):
    """`token` is shown only here: who has it chooses the person's password, once, until `token_expires_at`.

    `link` is where a browser goes with it; null where the hub was not told where its console is.
    """

    token: str
    token_expires_at: datetime
    link: str | None


class PersonList(Frozen):
    """All people, by name."""

    people: tuple[PersonView, ...]
