"""Asking the hub for a presigned link, so that large objects go straight between the site and the store."""

from __future__ import annotations

from hanse_fabric.bus.port import Bus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Link, LinkReply, LinkRequest, ObjectRef, Task
from hanse_fabric.subjects import LINK


async def ask_link(bus: Bus, task: Task, *, put: ObjectRef | None = None, get: str | None = None) -> Link:
    """A link to upload `put` or to download the object with key `get`, for this task.

    Raises:
        HanseError: the refusal that the hub answered; TIMEOUT when nobody did.
    """
    request = LinkRequest(
        project=task.project, participant=task.participant, run=task.run, step=task.step, put=put, get=get
    )
    subject = LINK.of(project=task.project, participant=task.participant)
    reply = LinkReply.decode(await bus.request(subject, request.encode(), timeout=10.0))
    if reply.link is None:
        raise HanseError(ErrorCode.of(reply.code), reply.message or "the hub gave no link")
    return reply.link
