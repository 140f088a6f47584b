"""Handing in a finished answer: what leaves, in which order, and by which way."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path

from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.home.outbox import Leaving
from hanse_datapod.home.shapes import shape_of
from hanse_datapod.worker.port import extra_output
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import MaskingMode, ObjectRef, Result, Task, TaskKind
from hanse_fabric.subjects import LINK, RESULT, UPDATE
from hanse_fabric.waiting import all_of
from hanse_site import SiteLink

_SHOWN = 160
"""Characters of a list of names."""


def outbox_entries(task: Task, finished: FinishedTask, file: Path) -> list[Leaving]:
    """The outbox entries of all that `send` sends, in its order: update, extras, tally, and the result last.

    Args:
        file: where a large update rests; its extras are beside it.
    """
    result = finished.result
    found: list[Leaving] = []
    hidden = task.masking is not None and task.masking.mode is not MaskingMode.RING
    if result.update is not None:
        if result.update.key is not None:
            found.append(asked_link(task))
        what = "masked-update" if hidden else "update"
        found.append(_object(task, result.update, what, finished.update or file, hidden=hidden))
    for name, ref in (result.extras or {}).items():
        if ref.key is not None:
            found.append(asked_link(task))
        content = finished.extras.get(name) or extra_output(file, name)
        found.append(_object(task, ref, "extra", content, hidden=hidden))
    if result.tally is not None:
        found.append(_object(task, result.tally, "tally", finished.tally or b"", hidden=hidden))
    encoded = result.encode()
    subject = RESULT.of(project=task.project, run=task.run, step=task.step, participant=task.participant)
    told = _numbers_in(result)
    found.append(
        Leaving(
            "result", subject, len(encoded), hashlib.sha256(encoded).hexdigest(), task=name_of(task),
            shape="; ".join((result.outcome.value, *told)), masked=False if told else None,
        )
    )  # fmt: skip
    return found


def name_of(task: Task) -> str:
    """As the outbox log names a task."""
    return f"{task.run}/{task.step}"


def asked_link(task: Task) -> Leaving:
    """That a presigned link is asked for."""
    return Leaving("link-request", link_subject(task), 0, task=name_of(task))


def _numbers_in(result: Result) -> list[str]:
    """Which numbers of the data a result has in itself, for people."""
    told = ["the number of examples"] if result.examples else []
    for what, named in (("metrics", result.metrics), ("numbers", result.info or {})):
        if named:
            told.append(f"{what} {', '.join(sorted(named))}"[:_SHOWN])
    return told + (["counts"] if result.counted else [])


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


def _object(task: Task, ref: ObjectRef, what: str, content: bytes | Path, *, hidden: bool) -> Leaving:
    to = ref.key or UPDATE.of(project=task.project, run=task.run, participant=task.participant, digest=ref.digest)
    masked = None if task.kind is TaskKind.INITIALIZE else hidden
    return Leaving(what, to, ref.size, ref.digest, task=name_of(task), shape=shape_of(content), masked=masked)
