"""What sites ask at doors: the head of every request, which tasks are open, and refusals."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Base64Bytes, Field

from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.names import Digest, RunId, Slug, StepKey

MOST_KNOWN = 256
BESIDE = "Hanse-Outbox"
"""The header of a stored message that holds `DoorRequest.beside`."""


class DoorRequest(Message):
    """The head of a request; its content follows it, and the site's signature covers both.

    Attributes:
        kind: the door's.
        nonce: random; no answer to another request is an answer to this one.
        run, step, key, digest: what it is about, where the kind says so.
        beside: what is stored beside its content (`hanse_privacy.witness`).
    """

    schema_id: ClassVar[str] = "hanse.asked/1"

    kind: str = Field(max_length=20)
    project: Slug
    participant: Slug
    nonce: str = Field(pattern=r"^[0-9a-f]{32}$")
    run: RunId | None = None
    step: StepKey | None = None
    key: StepKey | None = None
    digest: Digest | None = None
    beside: str | None = Field(default=None, max_length=1024)


class Refused(Message):
    """Why a door does not do what was asked: a code of the catalogue, and words."""

    schema_id: ClassVar[str] = "hanse.refused/1"

    code: str
    message: str = Field(default="", max_length=4000)
    hint: str = Field(default="", max_length=1000)


class OpenFor(Message):
    """The participants that a step opens for."""

    schema_id: ClassVar[str] = "hanse.open_for/1"

    participants: tuple[Slug, ...]


class KnownTasks(Message):
    """The tasks that a site knows of already, by their marks; the newest are enough."""

    schema_id: ClassVar[str] = "hanse.known_tasks/1"

    marks: tuple[str, ...] = Field(default=(), max_length=MOST_KNOWN)


class GivenTask(Frozen):
    """An open task as it is stored.

    Attributes:
        mark: tells one publication of a task from all others: `run.step.sequence`.
        headers: they carry the trace.
        data: the encoded `Task`.
    """

    mark: str = Field(max_length=200)
    headers: dict[str, str] = {}
    data: Base64Bytes


class OpenTasks(Message):
    """What is open for a site: marks of all of it, and of the tasks that it does not know what one message holds.

    Attributes:
        again: in answer to a sign of life: seconds until the next one is wanted.
    """

    schema_id: ClassVar[str] = "hanse.open_tasks/1"

    open: tuple[str, ...] = ()
    tasks: tuple[GivenTask, ...] = ()
    again: float | None = Field(default=None, gt=0)
