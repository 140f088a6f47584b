"""An event of a run as it is watched: the data of a server-sent event, whose id is the event's sequence."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from hanse_fabric.messages.base import Frozen


class WatchQuery(Frozen):
    """Events whose place in the stream is above `after` (`Last-Event-ID` says the same); `brief`: finished rounds
    without what each site has told, and without curves.

    `thinned`: of what has happened before the watch began only what still counts, some hundred events of a hundred
    thousand: states, the newest answer and progress of each site, the newest round that began and that finished, and
    the newest hundred notes and failures. That round has `sent` beside its `bytes`: those of all rounds up to it."""

    after: int = Field(default=0, ge=0, le=10**18)
    brief: bool = False
    thinned: bool = False


class Event(Frozen):
    """Something that happened in a run; `hanse_fabric.messages.RunEvent` says which kinds there are."""

    kind: str
    at: datetime
    round: int = 0
    data: dict[str, Any] = {}
