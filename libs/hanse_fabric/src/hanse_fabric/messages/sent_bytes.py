"""What passed between the hub and its sites, as the hub's processes count it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.names import RunId, Slug
from hanse_fabric.strict_json import LARGE


class LinkBytes(Frozen):
    """Bytes on one site's two links: `bus`, content and headers of messages; `store`, content of objects. `up` is from
    the site to the hub."""

    bus_up: int = Field(default=0, ge=0)
    bus_down: int = Field(default=0, ge=0)
    store_up: int = Field(default=0, ge=0)
    store_down: int = Field(default=0, ge=0)

    def __add__(self, other: LinkBytes) -> LinkBytes:
        return LinkBytes(
            bus_up=self.bus_up + other.bus_up, bus_down=self.bus_down + other.bus_down,
            store_up=self.store_up + other.store_up, store_down=self.store_down + other.store_down,
        )  # fmt: skip

    @property
    def total(self) -> int:
        return self.bus_up + self.bus_down + self.store_up + self.store_down


class SentBytes(Message):
    """Bytes of one round by participant, since the process wrote the last down; all of a round are added up.

    Attributes:
        round: 0 for what comes before the first.
    """

    schema_id: ClassVar[str] = "hanse.sent_bytes/1"
    limits = LARGE

    project: Slug
    run: RunId
    round: int = Field(ge=0)
    sites: dict[Slug, LinkBytes]
