"""What the hub remembers of itself: the form of its stored state, void credentials, what it could not read."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Base64Bytes, Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Message
from hanse_fabric.names import Slug


class StateRecord(Message):
    """Which form the stored state has.

    Attributes:
        version: rises with each change that an earlier release could not read.
        release: the release that wrote it, for people.
    """

    schema_id: ClassVar[str] = "hanse.state_record/1"

    version: int = Field(ge=1)
    release: str = ""
    at: Time


class RevocationRecord(Message):
    """A key whose tokens are void up to a time (unix seconds): a participant's, or a leaf node's.

    Attributes:
        region: in whose account alone the key has any; None: not known, so it is void in all.
    """

    schema_id: ClassVar[str] = "hanse.revocation_record/2"
    grown: ClassVar = ("hanse.revocation_record/1", frozenset({"region"}))

    bus_key: str
    at: int = Field(ge=0)
    region: Slug | None = None


class SetAside(Message):
    """A message that could not be read, as somebody may look at it.

    Attributes:
        subject, sequence: where it was; sequence 0 for a request, which has none.
        size: of the message, in bytes; `head` is how it begins.
    """

    schema_id: ClassVar[str] = "hanse.set_aside/1"

    subject: str = Field(max_length=1000)
    sequence: int = Field(ge=0)
    at: Time
    code: str = Field(max_length=100)
    reason: str = Field(max_length=2000)
    size: int = Field(ge=0)
    head: Base64Bytes = Field(max_length=6 << 10)
