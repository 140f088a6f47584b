"""What the coordinator asks of the aggregators, and what they answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Field

from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.objects import ObjectKey, ObjectRef
from hanse_fabric.names import RunId, Slug, StepKey


class UpdateInput(Frozen):
    """One row of the K x P matrix: whose update, with which weight, and where it is."""

    participant: Slug
    weight: float = Field(gt=0)
    ref: ObjectRef


class JobKind(StrEnum):
    """WHOLE does everything in one job. A large reduction is OPEN (start the outputs' multipart uploads), any number
    of SHARD (reduce a range of leaves), CLOSE (compose the parts)."""

    WHOLE = "whole"
    OPEN = "open"
    SHARD = "shard"
    CLOSE = "close"


class Part(Frozen):
    """A part of a multipart upload: output name ("model" or a state array's), part number from 1, ETag, leaf digest."""

    output: str
    number: int = Field(ge=1, le=10_000)
    etag: str
    digest: str


class ReduceJob(Message):
    """One job of a reduction. The same id always gives the same bytes.

    Attributes:
        strategy: the job file's `strategy` section (`hanse_learning.server.build_strategy` reads it).
        updates: sorted by participant; the order of summation.
        model: the model that the updates are differences to; None to adopt the single update as the model.
        state: the server optimizer's arrays by name, from the round before; empty in the first.
        output_key: prefix of the outputs' keys: `<output_key>/<output name>`.
        uploads: multipart upload ids by output name (SHARD, CLOSE).
        leaves: first and last + 1 leaf of a SHARD.
        parts: all parts, for CLOSE.
        round: the round, for optimizers that count steps (from 1).
    """

    schema_id: ClassVar[str] = "hanse.reduce_job/1"

    id: StepKey
    project: Slug
    run: RunId
    step: StepKey
    kind: JobKind
    round: int = Field(ge=0)
    strategy: dict[str, Any]
    updates: tuple[UpdateInput, ...]
    model: ObjectRef | None = None
    state: dict[str, ObjectRef] = {}
    output_key: ObjectKey
    uploads: dict[str, str] = {}
    leaves: tuple[int, int] | None = None
    parts: tuple[Part, ...] = ()


class Refusal(Frozen):
    """An update that cannot be reduced, and why."""

    participant: Slug
    reason: str
    code: str


class Reduced(Message):
    """The outcome of a ReduceJob: outputs, or uploads, or parts, or the updates that must be left out.

    Attributes:
        outputs: finished objects by output name ("model", and state arrays). Small ones are inline.
        refused: updates that are tampered with, wrongly shaped or not finite: redo without them.
        error: why the job cannot succeed at all; empty if it did.
        seconds, bytes_read: for the metrics.
    """

    schema_id: ClassVar[str] = "hanse.reduced/1"

    job: StepKey
    project: Slug
    run: RunId
    step: StepKey
    outputs: dict[str, ObjectRef] = {}
    uploads: dict[str, str] = {}
    parts: tuple[Part, ...] = ()
    refused: tuple[Refusal, ...] = ()
    error: str = ""
    seconds: float = Field(default=0.0, ge=0)
    bytes_read: int = Field(default=0, ge=0)
