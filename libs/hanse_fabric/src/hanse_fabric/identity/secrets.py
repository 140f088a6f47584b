"""API keys and join tokens: `hanse_<id>_<secret>` and `join_<id>_<secret>`.

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


_FORM = re.compile(r"(hanse|join)_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_CALLED = {Kind.API_KEY: "API key", Kind.JOIN_TOKEN: "join token"}


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


def make(kind: Kind) -> Credential:
    """A fresh credential from the system's randomness."""
    return Credential(kind, new_run_id(), secrets.token_urlsafe(32))


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
