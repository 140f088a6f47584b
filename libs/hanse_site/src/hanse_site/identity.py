"""Who a participant is: what enrolling left in its home folder.

The home holds `signing.pem` (Ed25519, signs results), `bus.seed` (nkey, signs in on the bus), `bus.creds` (what the
hub gave for it), `site.json` (this record), all readable by their owner alone, and the hub's CA certificates if any.
Where the bus wants a client certificate, the administrator puts `bus-cert.pem` and `bus-key.pem` there before joining.
The two private keys are made here and never leave. A file `bound` says that the hub binds what it asks of masked sums.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import ClassVar

from pydantic import TypeAdapter

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.frozen import Time
from hanse_fabric.identity.keys import SigningKey
from hanse_fabric.messages.base import Message
from hanse_fabric.names import Slug
from hanse_schemas.schema import DataSchema

RECORD = "site.json"
SIGNING_KEY = "signing.pem"
BUS_SEED = "bus.seed"
BUS_CREDS = "bus.creds"
BUS_CA = "bus-ca.pem"
STORE_CA = "store-ca.pem"
HUB_CA = "hub-ca.pem"
BUS_CERT = "bus-cert.pem"
BUS_KEY = "bus-key.pem"
BOUND = "bound"
"""File of a home: the project's hub binds what it asks of masked sums, and is believed no more where it does not."""
_SCHEMAS: TypeAdapter[DataSchema] = TypeAdapter(DataSchema)


class SiteRecord(Message):
    """The content of `site.json`. `token_id` tells whether a token is the one that was used up here."""

    schema_id: ClassVar[str] = "hanse.site/1"

    hub: str
    hub_name: str
    project: Slug
    participant: Slug
    bus_url: str
    api_key: str
    data_schema: DataSchema
    token_id: str
    joined_at: Time


class SiteIdentity:
    """An enrolled participant: its record and the keys beside it."""

    def __init__(self, home: Path, record: SiteRecord) -> None:
        self.home = home
        self.record = record

    @property
    def project(self) -> str:
        return self.record.project

    @property
    def participant(self) -> str:
        return self.record.participant

    @property
    def schema(self) -> DataSchema:
        """What the project declares data to look like."""
        return self.record.data_schema

    @property
    def inbox_prefix(self) -> str:
        """Where replies on the bus go: nobody else may listen there."""
        return f"_INBOX.{self.project}.{self.participant}"

    @cached_property
    def signing_key(self) -> SigningKey:
        return SigningKey.load(self.home / SIGNING_KEY)

    @property
    def creds(self) -> Path:
        return self.home / BUS_CREDS

    @property
    def bus_ca(self) -> Path | None:
        return _existing(self.home / BUS_CA)

    @property
    def hub_ca(self) -> Path | None:
        return _existing(self.home / HUB_CA)

    @property
    def bus_cert(self) -> Path | None:
        """For mutual TLS with the bus, where the administrator has put it; so is `bus_key`."""
        return _existing(self.home / BUS_CERT)

    @property
    def bus_key(self) -> Path | None:
        return _existing(self.home / BUS_KEY)

    @property
    def store_ca(self) -> Path | None:
        return _existing(self.home / STORE_CA)


def load_identity(home: Path) -> SiteIdentity | None:
    """The identity in `home`; None if nobody has enrolled there.

    Raises:
        HanseError: INVALID_INPUT or UNKNOWN_SCHEMA when `site.json` is damaged or of another release.
    """
    try:
        data = (home / RECORD).read_bytes()
    except FileNotFoundError:
        return None
    return SiteIdentity(home, SiteRecord.decode(data))


def parse_schema(value: object) -> DataSchema:
    """A project's schema as the hub sent it.

    Raises:
        HanseError: UNKNOWN_SCHEMA when this release does not know such a schema.
    """
    try:
        return _SCHEMAS.validate_python(value)
    except ValueError as error:
        raise HanseError(
            ErrorCode.UNKNOWN_SCHEMA,
            f"the project's schema is not understood here: {error}",
            hint="upgrade the datapod",
        ) from None


def _existing(path: Path) -> Path | None:
    return path if path.exists() else None
