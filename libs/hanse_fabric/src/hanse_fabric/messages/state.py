"""What the hub remembers of itself: the form of its stored state, and whose credentials on the bus are void."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Message


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
    """A participant's key whose tokens are void up to a time (unix seconds)."""

    schema_id: ClassVar[str] = "hanse.revocation_record/1"

    bus_key: str
    at: int = Field(ge=0)
