"""API keys, join tokens, one-time links and sessions of people: `hanse_<id>_<secret>`, `join_<id>_<secret>` and so on.

The id (12 characters) finds the record; the record holds the SHA-256 of the secret alone. The secret has 256 bits, so
a plain hash is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.names import new_run_id


class Kind(StrEnum):
    """What a credential is for; its first word."""

    API_KEY = "hanse"
    JOIN_TOKEN = "join"  # noqa: S105 - a word, not a secret
    START = "start"
    SESSION = "session"


_FORM = re.compile(rf"({'|'.join(Kind)})_([a-z0-9]{{12}})_([A-Za-z0-9_-]{{43}})")
_CALLED = {
    Kind.API_KEY: "API key", Kind.JOIN_TOKEN: "join token", Kind.START: "one-time link", Kind.SESSION: "session",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential in the holder's hands. Its text is in `text`; its repr hides the secret."""

    kind: Kind
    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """What is handed to the holder, once."""
        return f"{self.kind.value}_{self.id}_{self.secret}"

    @property
    def hash(self) -> str:
        """What is kept: the SHA-256 of the secret, in hexadecimal."""
        return hash_secret(self.secret)

    def matches(self, kept: str) -> bool:
        """Whether this is the credential behind a kept hash, in constant time."""
        return hmac.compare_digest(self.hash.encode(), kept.encode())


def hash_secret(secret: str) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def make(kind: Kind, id_: str | None = None) -> Credential:
    """A fresh credential from the system's randomness; `id_`: of the record that it belongs to, None for a new one."""
    return Credential(kind, id_ or new_run_id(), secrets.token_urlsafe(32))


def make_api_key() -> Credential:
    return make(Kind.API_KEY)


def make_join_token() -> Credential:
    return make(Kind.JOIN_TOKEN)


def parse(text: str, kind: Kind) -> Credential:
    """Read a credential that somebody presents.

    Raises:
        HanseError: UNAUTHENTICATED when it does not have the form; the message never repeats the text.
    """
    found = _FORM.fullmatch(text.strip())
    if found is None or found[1] != kind.value:
        called = _CALLED[kind]
        other = _CALLED[Kind(found[1])] if found else None
        raise HanseError(
            ErrorCode.UNAUTHENTICATED,
            f"{called}: {f'a {other} was given' if other else 'this is not one'}; "
            f"it looks like {kind.value}_<12 characters>_<43 characters>",
            hint=f"copy the whole {called}",
        )
    return Credential(kind, found[2], found[3])
