"""An event of a run as it is watched: the data of a server-sent event, whose id is the event's sequence."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from hanse_fabric.messages.base import Frozen


class WatchQuery(Frozen):
    """Events whose place in the stream is above `after` (`Last-Event-ID` says the same); `brief`: finished rounds
    without what each site has told, and without curves."""

    after: int = Field(default=0, ge=0, le=10**18)
    brief: bool = False


class Event(Frozen):
    """Something that happened in a run; `hanse_fabric.messages.RunEvent` says which kinds there are."""

    kind: str
    at: datetime
    round: int = 0
    data: dict[str, Any] = {}
