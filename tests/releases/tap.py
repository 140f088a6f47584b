"""Hears all that is published on a hub's bus: in the server's order, with the sequence that each message was given."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.js.errors import NotFoundError

from hanse_fabric.subjects import AUDIT, PRESENCE, STREAMS, SUBJECTS, Subject
from overhearing import with_all_rights
from releases.recording import Said

_OURS = ("hanse.", "$KV.")
_PURGE = "$JS.API.STREAM.PURGE."


@dataclass
class Tap:
    """All that was heard, in order."""

    said: list[Said] = field(default_factory=list)
    _asked: dict[str, int] = field(default_factory=dict)

    def hear(self, message: Any) -> None:
        """One message, as any subscriber gets it."""
        subject, data, reply = message.subject, message.data, message.reply
        if reply.startswith("$JS.ACK"):
            return  # delivered by a stream, and heard when it was published
        if subject.startswith(_OURS):
            self._asked[reply] = len(self.said)
            self.said.append(Said("message" if row_of(subject).stream else "request", subject, data,
                                  dict(message.headers or {})))  # fmt: skip
        elif subject.startswith(_PURGE):
            self.said.append(
                Said("purge", json.loads(data or b"{}").get("filter", ">"), stream=subject.removeprefix(_PURGE))
            )
        elif subject in self._asked:
            place = self._asked.pop(subject)
            self.said[place] = _answered(self.said[place], data)


def _answered(said: Said, data: bytes) -> Said:
    if said.what == "request":
        return replace(said, answer=data)
    body = json.loads(data)
    if "error" in body:
        return replace(said, error=body["error"]["description"])
    if body.get("duplicate"):
        return replace(said, stream=body["stream"], error=f"a duplicate of sequence {body['seq']}")
    return replace(said, stream=body["stream"], sequence=body["seq"])


def row_of(subject: str) -> Subject:
    """The row of the table of subjects that a concrete subject belongs to."""
    tokens = subject.split(".")
    for row in SUBJECTS:
        pattern = row.pattern.split(".")
        if len(pattern) == len(tokens) and all(
            want == token or want.startswith("{") for want, token in zip(pattern, tokens, strict=True)
        ):
            return row
    raise LookupError(f"{subject} is no subject of the table")


@asynccontextmanager
async def tapped(hub: Path) -> AsyncIterator[Tap]:
    """Listen to the bus of the embedded hub in this folder, with a credential that only a test has."""
    tap, port = Tap(), json.loads((hub / "ports.json").read_text())["bus"]
    client = await with_all_rights(f"nats://127.0.0.1:{port}", hub / "bus-authority")

    async def hear(message: Any) -> None:
        tap.hear(message)

    try:
        tap.said += await _standing(client)
        # One subscription, so that the order is the server's.
        await client.subscribe(">", cb=hear, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await client.flush()
        yield tap
        await client.flush()
        await asyncio.sleep(0.2)
    finally:
        await client.close()


async def _standing(client: Client) -> list[Said]:
    """What records, presence and audit hold already."""
    found, jetstream = [], client.jetstream()
    for stream in STREAMS:
        if stream.name.startswith("KV_") or stream in (PRESENCE.stream, AUDIT.stream):
            state = (await jetstream.stream_info(stream.name)).state
            for sequence in range(max(1, state.first_seq), state.last_seq + 1):
                with suppress(NotFoundError):  # replaced by a newer one
                    one = await jetstream.get_msg(stream.name, sequence)
                    found.append(Said("message", str(one.subject), one.data or b"", dict(one.headers or {}),
                                      stream.name, sequence))  # fmt: skip
    return found
