"""Reads at a stream's leader. It knows all that was ever confirmed; in a cluster any other copy may be behind.

A write is confirmed once most of a stream's copies have it. An ordinary read is answered by whichever copy is near, and
a copy that does not have the message yet says that there is none (seen with NATS 2.15 and a server that was paused for
a moment). So messages that may have changed are read here; those that never change are read here only when another copy
has none.
"""

from __future__ import annotations

import base64
import json

from hanse_fabric.bus.api import ask_or_none
from hanse_fabric.bus.connection import Connection
from hanse_fabric.bus.port import Record

_NOTHING = 10037  # no message found


async def newest(connection: Connection, stream: str, pattern: str, deadline: float) -> Record | None:
    """The newest message on subjects that match `pattern`, or None.

    Raises:
        HanseError: FORBIDDEN for participants, who may not ask for it; UNAVAILABLE at `deadline` (event loop's time).
    """
    request = json.dumps({"last_by_subj": pattern}).encode()
    subject = f"$JS.API.STREAM.MSG.GET.{stream}"
    body = await ask_or_none(connection, subject, request, deadline, f"reading {pattern}", absent=_NOTHING)
    if body is None:
        return None
    message = body["message"]
    headers = _headers(base64.b64decode(message.get("hdrs", "")))
    return Record(message["subject"], base64.b64decode(message.get("data", "")), int(message["seq"]), headers)


def _headers(raw: bytes) -> dict[str, str]:
    """Headers as they are stored: a line with the protocol's version, then one for each."""
    lines = raw.decode(errors="replace").split("\r\n")[1:]
    return {name.strip(): value.strip() for name, found, value in (line.partition(":") for line in lines) if found}
