"""Asking the hub for presigned links, so that large objects go straight between the site and the store."""

from __future__ import annotations

from hanse_fabric.doors.asking import Doors
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Link, LinkReply, LinkRequest, ObjectRef, Task
from hanse_fabric.messages.uploads import UploadState, UploadStep
from hanse_fabric.subjects import Door


async def ask_link(doors: Doors, task: Task, key: str) -> Link:
    """A link to download the object with this key, for this task.

    Raises:
        HanseError: the refusal that the hub answered; TIMEOUT when nobody did.
    """
    reply = await _ask(doors, task, get=key)
    if reply.link is None:
        raise HanseError(ErrorCode.of(reply.code), reply.message or "the hub gave no link")
    return reply.link


async def ask_upload(doors: Doors, task: Task, update: ObjectRef, step: UploadStep) -> UploadState:
    """The next step of an update's upload; as `ask_link`."""
    named = ObjectRef(digest=update.digest, size=update.size)
    reply = await _ask(doors, task, put=named, upload=step)
    if reply.upload is None:
        raise HanseError(ErrorCode.of(reply.code), reply.message or "the hub gave no links")
    return reply.upload


async def _ask(
    doors: Doors, task: Task, *, get: str | None = None, put: ObjectRef | None = None, upload: UploadStep | None = None
) -> LinkReply:
    request = LinkRequest(
        project=task.project, participant=task.participant, run=task.run, step=task.step, put=put, get=get,
        upload=upload,
    )  # fmt: skip
    return LinkReply.decode(await doors.ask(Door.LINK, request.encode(), run=task.run, step=task.step))
