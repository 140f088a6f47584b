"""Joining: what a site shows with its token, and what it gets for it."""

from __future__ import annotations

from pydantic import AwareDatetime, ConfigDict, Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug
from hanse_schemas.schema import DataSchema


class Join(Frozen):
    """What a site sends.

    Attributes:
        token: `join_<id>_<secret>`.
        public_key: raw Ed25519 key, base64; it verifies the site's results.
        bus_key: NATS user public key, `U...`.
        version: of the site's software.
        sent_at: the site's clock.
    """

    token: str = Field(max_length=200)
    public_key: str = Field(max_length=100)
    bus_key: str = Field(max_length=100)
    version: str = Field(default="", max_length=100)
    sent_at: AwareDatetime


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
