"""Sessions of people in browsers: signing in, by a name and password or by a one-time link, and what a session may."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, SecretStr, StringConstraints

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug

PersonName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9._@+-]{0,98}[a-z0-9])?$")]
"""A person's name for signing in: an address of electronic mail will do."""

Password = Annotated[SecretStr, Field(min_length=1, max_length=200)]
OneTimeCode = Annotated[SecretStr, Field(min_length=6, max_length=6)]
"""Six digits of an authenticator."""

CSRF_HEADER = "Hanse-CSRF"
"""What a browser sends beside its cookie with every request that changes something."""


class SignIn(Frozen):
    """A person's name and password; `code`, where they have an authenticator."""

    name: PersonName
    password: Password
    code: OneTimeCode | None = None


class Start(Frozen):
    """A one-time link's token, and the password that is to be the person's from now on."""

    token: Annotated[SecretStr, Field(max_length=200)]
    password: Password


class ChangePassword(Frozen):
    """The password of before, and the new one; `code`, where they have an authenticator."""

    password: Password
    new_password: Password
    code: OneTimeCode | None = None


class AskTotp(Frozen):
    """Who wants an authenticator shows the password again."""

    password: Password


class ConfirmTotp(Frozen):
    """The first code that the authenticator shows."""

    code: OneTimeCode


class RemoveTotp(Frozen):
    """Who wants none any more shows both."""

    password: Password
    code: OneTimeCode


class TotpSetup(Frozen):
    """What an authenticator is told: the secret (base32), and the same as an address to draw; shown once."""

    secret: str
    uri: str


class Provider(Frozen):
    """A provider of identities; `label`: what its button says."""

    label: str


class SignInWays(Frozen):
    """How people sign in here. `local`: by name and password."""

    local: bool
    provider: Provider | None


class SessionView(Frozen):
    """A person's session.

    Attributes:
        person: the name that the audit says.
        source: whether this hub knows the password, or a provider of identities vouches.
        projects: that they own; null: all.
        totp: whether codes of an authenticator are asked for.
        csrf: what goes into the header `Hanse-CSRF` of all that changes something.
        expires_at: when it ends at the latest.
        idle_seconds: after so long without a request it ends, too.
    """

    person: str
    display: str
    source: Literal["local", "provider"]
    role: Literal["owner", "operator"]
    projects: tuple[Slug, ...] | None
    totp: bool
    csrf: str
    created_at: datetime
    expires_at: datetime
    idle_seconds: float


class SignedOut(Frozen):
    """The session is over."""


class AskProvider(Frozen):
    """Somebody wants to sign in by the provider of identities."""


class ToProvider(Frozen):
    """Where the browser goes to sign in; it comes back by itself."""

    url: str


class BackFromProvider(Frozen):
    """With what a provider sends people back (RFC 6749, 4.1.2; RFC 9207). What else it says is passed over."""

    model_config = ConfigDict(extra="ignore")

    code: str | None = Field(default=None, max_length=4096)
    state: str | None = Field(default=None, max_length=1000)
    iss: str | None = Field(default=None, max_length=1000)
    error: str | None = Field(default=None, max_length=1000)
