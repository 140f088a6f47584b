"""What the coordinator asks of the aggregators, and what they answer."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Base64Bytes, Field

from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.masking import MaskingMode, MaskSum, RingPlan
from hanse_fabric.messages.objects import MOST_TEXT, ObjectKey, ObjectRef
from hanse_fabric.names import Digest, RunId, Slug, StepKey
from hanse_fabric.strict_json import LARGE


class UpdateInput(Frozen):
    """One row of the K x P matrix: whose update, with which weight, and where it is.

    In a masked sum the weight is 1 (the true one is in the tally), and `tally` is there. `info` has the numbers that a
    strategy may need of each update (`steps`, `first_loss`, `normalizer`).
    """

    participant: Slug
    weight: float = Field(gt=0)
    ref: ObjectRef
    tally: ObjectRef | None = None
    info: dict[str, float] | None = None


MEASURE_LEAVES = 8
"""Leaves whose measurements are added up first, then those of all groups: a fixed order of summation."""

MEASURED = "measured"
"""Name of a MEASURE job's output: a tensor file of F64 arrays."""


ENCODED = "encoded"
"""Name of an ENCODE job's output."""

BASE, DELTA = "base", "delta"
"""Names of a DELTA job's input, among the states, and of its output."""

MOST_WARNING = 300
"""Characters of a warning."""


class JobKind(StrEnum):
    """WHOLE does everything in one job. A large reduction is OPEN (start the outputs' multipart uploads), any number
    of SHARD (reduce a range of leaves), CLOSE (compose the parts). Where the strategy measures all updates before it
    combines any, a MEASURE for each MEASURE_LEAVES leaves comes between OPEN and SHARD. TALLY sums tallies alone: each
    `ref` is one. ENCODE makes of a model what is sent to sites, by `codec`. DELTA makes what leads to it, by `codec`,
    from an older one."""

    WHOLE = "whole"
    OPEN = "open"
    MEASURE = "measure"
    SHARD = "shard"
    CLOSE = "close"
    TALLY = "tally"
    ENCODE = "encode"
    DELTA = "delta"


class Part(Frozen):
    """A part of a multipart upload: output name ("model" or a state array's), part number from 1, ETag, leaf digest."""

    output: str
    number: int = Field(ge=1, le=10_000)
    etag: str
    digest: str


class RingSum(Frozen):
    """How a reduction adds and unmasks ring elements.

    Attributes:
        session: of the sum, which names small mask sums on the bus.
        masks: the sum of all the masks (COMPENSATOR), which is subtracted.
        recovery: what PAIRWISE needs to cancel masks that are left: the bytes of the protocol's own message.
        noise: fixed sums that are subtracted, too: the shuffler's re-masking of oblivious noise.
    """

    mode: MaskingMode
    session: StepKey
    plan: RingPlan
    masks: MaskSum | None = None
    recovery: Base64Bytes | None = None
    noise: ObjectRef | None = None


class ReduceJob(Message):
    """One job of a reduction. The same id always gives the same bytes.

    Attributes:
        strategy: the job file's `strategy` section (`hanse_learning.server.build_strategy` reads it).
        updates: sorted by participant; the order of summation.
        model: the model that the updates are differences to; None to adopt the single update as the model.
        state: the server optimizer's arrays by name, from the round before; empty in the first.
        output_key: prefix of the outputs' keys: `<output_key>/<output name>`.
        uploads: multipart upload ids by output name (SHARD, CLOSE).
        leaves: first and last + 1 leaf of a SHARD or MEASURE.
        measured: of all MEASURE jobs, in the order of their leaves, for SHARD and CLOSE.
        parts: all parts, for CLOSE.
        round: the round, for optimizers that count steps (from 1).
        sum: how the updates are masked; None: they are not.
        strategy_digest, optimizer_digest: of the plug-ins that the reduction and the server optimizer are, as the
            coordinator knows them; None: Hanse's own.
        from_zero: where there is no `model`: begin with zeros in the updates' layout, instead of adopting the only one.
        codec: the codecs that the updates went through, as sections with every setting; None: they are tensor files.
        codec_digests: of those that are plug-ins, by name.
    """

    schema_id: ClassVar[str] = "hanse.reduce_job/2"
    grown: ClassVar = (
        "hanse.reduce_job/1", frozenset({"codec", "codec_digests", "sum.plan.counts", "sum.plan.signs"}),
    )  # fmt: skip
    limits = LARGE

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
    measured: tuple[ObjectRef, ...] | None = None
    parts: tuple[Part, ...] = ()
    sum: RingSum | None = None
    from_zero: bool | None = None
    strategy_digest: Digest | None = None
    optimizer_digest: Digest | None = None
    codec: tuple[dict[str, Any], ...] | None = None
    codec_digests: dict[str, Digest] | None = None


class StudyJob(Message):
    """A joint computation of a study: sum what the participants sent, and run the hub's function on it.

    Answered by `Reduced`, with `outputs` (objects of named arrays) and `facts`.

    Attributes:
        function: name of the function of `hanse_genomics.hub`.
        study: the job's section (`hanse_schemas.study.Study` reads it).
        settings: what this step is told.
        updates: sorted by participant; none where the sites have no part in it.
        sum: how the updates are masked; None: the function is given each participant's arrays.
        inputs: what former steps have made, by name.
        output_key: prefix of the outputs' keys: `<output_key>/<output name>`.
    """

    schema_id: ClassVar[str] = "hanse.study_job/1"
    limits = LARGE

    id: StepKey
    project: Slug
    run: RunId
    step: StepKey
    function: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")
    study: dict[str, Any]
    settings: dict[str, Any] = {}
    updates: tuple[UpdateInput, ...] = ()
    sum: RingSum | None = None
    inputs: dict[str, ObjectRef] = {}
    output_key: ObjectKey


class Refusal(Frozen):
    """An update that cannot be reduced, and why."""

    participant: Slug
    reason: str
    code: str


class Tally(Frozen):
    """What a masked sum says of all participants together: their weights' sum, the metrics' weighted means, and the sum
    of what they have counted (`hanse_fabric.tensors.words`), where they were to count."""

    weight: float
    metrics: dict[str, float] = {}
    counted: str | None = Field(default=None, max_length=MOST_TEXT)


class Reduced(Message):
    """The outcome of a ReduceJob or StudyJob: outputs, or uploads, or parts, or the updates that must be left out.

    Attributes:
        outputs: finished objects by output name ("model", and state arrays). Small ones are inline.
        refused: updates that are tampered with, wrongly shaped or not finite: redo without them.
        error: why the job cannot succeed at all; empty if it did.
        seconds, bytes_read: for the metrics.
        clip: the next round's clipping norm, where central privacy moves it (WHOLE, SHARD).
        facts: small things that a study's step has found (StudyJob).
        code: of the error, where it is one of the job's owner, not of the platform (StudyJob).
        device: that updates were combined on, where it is not the processor (WHOLE, SHARD).
        warning: for the owner: that a device was set, and could not be used.
    """

    schema_id: ClassVar[str] = "hanse.reduced/2"
    grown: ClassVar = ("hanse.reduced/1", frozenset({"tally.counted"}))
    limits = LARGE

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
    tally: Tally | None = None
    clip: float | None = Field(default=None, gt=0)
    facts: dict[str, Any] | None = None
    code: str | None = None
    device: str | None = None
    warning: str | None = Field(default=None, max_length=MOST_WARNING)
