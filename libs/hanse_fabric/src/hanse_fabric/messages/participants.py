"""What the hub remembers of a participant: the coordinator writes it, the compensator reads whose keys are enrolled."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from pydantic import Base64Bytes, Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.names import HUB_REGION, Digest, Slug


class Consent(Frozen):
    """That a site agrees to a project's terms.

    Attributes:
        terms: their digest.
        by: who has said so for the site, and `at`: when, by the site's clock.
        signature: Ed25519 by the site's key over `hanse_schemas.terms.SiteConsent`.
    """

    terms: Digest
    by: str = Field(max_length=200)
    at: Time
    signature: Base64Bytes = Field(max_length=100)


class ParticipantRecord(Message):
    """A site in a project.

    Attributes:
        public_key: raw Ed25519 key that its results are signed with.
        bus_key: its NATS user key.
        api_key: id of its API key.
        former_bus_keys: those that it had before and that are revoked with it; None: none.
        region: whose credentials it has; None: the hub's own.
        renewed_at: when it had a token renewed, within a day; None: not since it was enrolled.
        consent: its newest, to terms of the project; None: there were none when it joined.
        left_at: when the site itself ended its membership, by the hub's clock; None: it has not.
    """

    schema_id: ClassVar[str] = "hanse.participant_record/2"
    grown: ClassVar = (
        "hanse.participant_record/1",
        frozenset({"former_bus_keys", "region", "renewed_at", "consent", "left_at"}),
    )

    project: Slug
    participant: Slug
    public_key: Base64Bytes
    bus_key: str
    api_key: str = ""
    enrolled_at: Time
    version: str = ""
    revoked: bool = False
    former_bus_keys: tuple[str, ...] | None = None
    region: Slug | None = None
    renewed_at: Time | None = None
    consent: Consent | None = None
    left_at: Time | None = None

    @property
    def last_there(self) -> datetime:
        """When the hub last gave it credentials, within a day."""
        return self.renewed_at or self.enrolled_at

    @property
    def connects_in(self) -> str:
        """The region's name, HUB_REGION's too."""
        return self.region or HUB_REGION
