"""Joining: what a site shows with its token, and what it gets for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

from pydantic import Base64Bytes, ConfigDict, Field

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.participants import Consent
from hanse_fabric.names import Digest, Slug
from hanse_schemas.schema import DataSchema
from hanse_schemas.terms import ProjectTerms

ALLOWED_SKEW_S = 300.0
"""That the clocks of a site and the hub may be apart."""


class AskChallenge(Frozen):
    """A site is about to join with this token."""

    token: str = Field(max_length=200)


class Challenge(Frozen):
    """What the site's proof must hold: good for one joining with this token, until the next is asked for."""

    challenge: str = Field(max_length=100)


class Preview(Frozen):
    """What joining with a token would mean, before anything is joined.

    Attributes:
        participant: as whom the site would join.
        terms: what it must agree to; null: nothing.
        terms_digest: of these; who reads them computes it anew.
    """

    model_config = ConfigDict(populate_by_name=True)

    hub_name: str
    project: Slug
    participant: Slug
    description: str
    data_schema: DataSchema = Field(alias="schema")
    terms: ProjectTerms | None = None
    terms_digest: Digest | None = None


class JoinProof(Message):
    """What a joining site signs with both of its keys (the canonical bytes; they are not sent).

    Attributes:
        challenge: the hub's.
        token: SHA-256 of the token's secret, hexadecimal: a proof for one token is none for another.
        public_key: as in `Join`.
        bus_key: as in `Join`: the two keys belong together.
    """

    schema_id: ClassVar[str] = "hanse.join_proof/1"

    challenge: str
    token: str
    public_key: str
    bus_key: str


class Join(Frozen):
    """What a site sends.

    Attributes:
        token: `join_<id>_<secret>`.
        public_key: raw Ed25519 key, base64; it verifies the site's results.
        bus_key: NATS user public key, `U...`.
        version: of the site's software.
        sent_at: the site's clock.
        challenge: the hub's answer to `AskChallenge`; empty: from a site of release 0.1.0, which is told to upgrade.
        signature: by `public_key`, over `JoinProof`.
        bus_signature: by `bus_key`, over the same.
        consent: to the project's terms, where it has some.
    """

    token: str = Field(max_length=200)
    public_key: str = Field(max_length=100)
    bus_key: str = Field(max_length=100)
    version: str = Field(default="", max_length=100)
    sent_at: Time
    challenge: str = Field(default="", max_length=100)
    signature: Base64Bytes = Field(default=b"", max_length=100)
    bus_signature: Base64Bytes = Field(default=b"", max_length=100)
    consent: Consent | None = None


class Joined(Frozen):
    """What a site gets: where the bus is, its credential there, its API key. CAs are PEM, null for public ones."""

    model_config = ConfigDict(populate_by_name=True)

    project: Slug
    participant: Slug
    bus_url: str
    bus_jwt: str
    bus_ca: str | None
    store_ca: str | None
    data_schema: DataSchema = Field(alias="schema")
    hub_name: str
    api_key: str


def check_clocks(site: datetime, hub: datetime, *, field: str) -> None:
    """CLOCK_SKEW naming both times where they are more than ALLOWED_SKEW_S apart; `field`: what told the other's."""
    apart = (site - hub).total_seconds()
    if abs(apart) > ALLOWED_SKEW_S:
        raise HanseError(
            ErrorCode.CLOCK_SKEW,
            f"{field}: {site.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC at the site, "
            f"{hub.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC at the hub, "
            f"{abs(apart):.0f} s apart (at most {ALLOWED_SKEW_S:.0f} s are allowed)",
            hint="synchronise the site's clock (NTP) and join again; the token is still good",
        )


class ToConsent(Frozen):
    """A site that has joined agrees to the project's terms of now; signed, as `Consent` says, by its enrolled key."""

    project: Slug
    participant: Slug
    consent: Consent


class Consented(Frozen):
    """The hub has it."""

    terms: Digest


class ToLeave(Frozen):
    """A site ends its own membership: its keys are void from then on.

    Attributes:
        reason: for the owner; empty: none is given.
        sent_at: the site's clock.
        signature: Ed25519 by its enrolled key over `leaving_statement`.
    """

    project: Slug
    participant: Slug
    reason: str = Field(default="", max_length=200)
    sent_at: Time
    signature: Base64Bytes = Field(max_length=100)


class HasLeft(Frozen):
    """The site is no member any more."""

    participant: Slug


def leaving_statement(*, project: str, participant: str, reason: str, sent_at: datetime) -> bytes:
    """What a site signs to leave."""
    return f"hanse leave 1\n{project}\n{participant}\n{sent_at.astimezone(UTC).isoformat()}\n{reason}".encode()


class Renew(Frozen):
    """A site asks for another token for the bus, with the keys that it joined with.

    Attributes:
        sent_at: the site's clock.
        signature: Ed25519 by its enrolled key over `renewal_statement`.
    """

    project: Slug
    participant: Slug
    sent_at: Time
    signature: Base64Bytes = Field(max_length=100)


class Renewed(Frozen):
    """Its token."""

    bus_jwt: str


def renewal_statement(*, project: str, participant: str, sent_at: datetime) -> bytes:
    """What a site signs to renew its token."""
    return f"hanse renew 1\n{project}\n{participant}\n{sent_at.astimezone(UTC).isoformat()}".encode()
