"""What the hub could not read: messages that were set aside, and records that are passed over."""

from __future__ import annotations

import base64
from dataclasses import fields

from hanse_coordinator.api.hub import Hub
from hanse_coordinator.api.route import OPERATE, Request, Route, view
from hanse_fabric.set_aside import kept
from hanse_schemas.http.unreadable import UnreadableMessage, UnreadableRecord, UnreadableView


async def list_unreadable(hub: Hub, request: Request) -> UnreadableView:
    messages = [
        view(UnreadableMessage, each, head=base64.b64encode(each.head).decode()) for each in await kept(hub.bus)
    ]
    records: list[UnreadableRecord] = []
    for bucket in fields(hub.buckets):
        for found in (await getattr(hub.buckets, bucket.name).scan())[1]:
            error = found.error
            records.append(
                UnreadableRecord(
                    subject=found.subject, revision=found.revision, code=error.code.code, reason=error.message
                )
            )
    return UnreadableView(messages=messages, records=tuple(records))


ROUTES = (
    Route("GET", "/v1/unreadable", OPERATE, list_unreadable, UnreadableView,
          "Messages and records that could not be read", unscoped=True),
)  # fmt: skip
