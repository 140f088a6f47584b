"""Handing in a finished answer: what leaves, in which order, and by which way."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path

from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.home.outbox import Leaving
from hanse_datapod.worker.port import extra_output
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import MaskingMode, ObjectRef, Task
from hanse_fabric.subjects import LINK, RESULT, UPDATE
from hanse_fabric.waiting import all_of
from hanse_site import SiteLink


def outbox_entries(task: Task, finished: FinishedTask) -> list[Leaving]:
    """The outbox entries of all that `send` sends, in its order: update, extras, tally, and the result last."""
    result = finished.result
    found: list[Leaving] = []
    if result.update is not None:
        if result.update.key is not None:
            found.append(Leaving("link-request", link_subject(task), 0))
        hidden = task.masking is not None and task.masking.mode is not MaskingMode.RING
        found.append(_object(task, result.update, "masked-update" if hidden else "update"))
    for ref in (result.extras or {}).values():
        if ref.key is not None:
            found.append(Leaving("link-request", link_subject(task), 0))
        found.append(_object(task, ref, "extra"))
    if result.tally is not None:
        found.append(_object(task, result.tally, "tally"))
    encoded = result.encode()
    subject = RESULT.of(project=task.project, run=task.run, step=task.step, participant=task.participant)
    found.append(Leaving("result", subject, len(encoded), hashlib.sha256(encoded).hexdigest()))
    return found


async def send(
    link: SiteLink, task: Task, finished: FinishedTask, file: Path, *, seconds: float, headers: Mapping[str, str]
) -> None:
    """Send update, extras, tally and result, for `seconds` at most each: what is small with the result, for the hub
    counts that only once it has them; what goes to the store before it.

    Args:
        file: where a large update rests; its extras are beside it.
        headers: that go beside the result.

    Raises:
        HanseError: UNAVAILABLE when that time is over; what the hub answered, if it refused; NOT_FOUND without the
            file.
    """
    result = finished.result
    pieces = [] if result.update is None else [(result.update, finished.update, file)]
    pieces += [
        (ref, finished.extras.get(name), extra_output(file, name)) for name, ref in (result.extras or {}).items()
    ]
    if result.tally is not None and finished.tally is not None:
        pieces.append((result.tally, finished.tally, file))
    for ref, data, path in pieces:
        if data is None:
            await _send_file(link, task, ref, path, seconds)
    small = [link.send_update_bytes(task, ref, data, seconds=seconds) for ref, data, _ in pieces if data is not None]
    await all_of((*small, link.publish(result, seconds=seconds, headers=headers)))


async def _send_file(link: SiteLink, task: Task, ref: ObjectRef, file: Path, seconds: float) -> None:
    if not await asyncio.to_thread(file.exists):
        # A later task of the run has cleared it away: this one cannot be open any more.
        raise HanseError(ErrorCode.NOT_FOUND, f"task {task.id}: its update is not there any more")
    await link.send_update(task, file, ref=ref, seconds=seconds)


def link_subject(task: Task) -> str:
    """Where a presigned link is asked for."""
    return LINK.of(project=task.project, participant=task.participant)


def _object(task: Task, ref: ObjectRef, what: str) -> Leaving:
    to = ref.key or UPDATE.of(project=task.project, run=task.run, participant=task.participant, digest=ref.digest)
    return Leaving(what, to, ref.size, ref.digest)
