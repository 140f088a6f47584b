"""Masked sums: what a site is told about masking, the sealed seed that it answers with, and what is asked of the
compensator.

Three parties, three views. The aggregator gets masked updates and the sum of the masks; the compensator gets seeds and
no update; the coordinator passes on what is sealed and sees neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Base64Bytes, Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.names import Digest, RunId, Slug, StepKey
from hanse_fabric.strict_json import LARGE

MOST_COUNTS = 12_000
"""Words that sites count together in one evaluation, so that a tally fits on the bus."""

MOST_COMPENSATORS = 7
"""Of one sum. A seed is drawn for each choice of n - k + 1 of them: 35 at most."""

X25519Key = Annotated[Base64Bytes, Field(min_length=32, max_length=32)]
Ed25519Key = Annotated[Base64Bytes, Field(min_length=32, max_length=32)]
# Limits within Annotated hold for the bytes; those of a plain field would hold for their base64.
Signature = Annotated[Base64Bytes, Field(max_length=64)]


class MaskingMode(StrEnum):
    """RING: ring arithmetic without masks, for comparisons. COMPENSATOR: a third party sums the masks.
    PAIRWISE: the sites' masks cancel each other."""

    RING = "ring"
    COMPENSATOR = "compensator"
    PAIRWISE = "pairwise"


class Ring(Frozen):
    """How the numbers of one entry become elements of Z_2^bits: round(weight/largest_weight * x * 2^fraction), two's
    complement, for |x| <= bound.

    `fraction` is chosen such that the sum over all announced participants cannot overflow (`hanse_privacy.ring.plan`).
    Integer entries have fraction 0, are not weighted, and are exact. `tail` is the magnitude that noise in the sum does
    not exceed, which comes on top of the bounds.
    """

    bits: Literal[8, 16, 32, 40, 48, 64]
    fraction: int = Field(ge=0, le=60)
    bound: float = Field(gt=0)
    tail: float = Field(default=0.0, ge=0)


class Chosen(Frozen):
    """Which parameters are summed: places that a seed chooses, the same for all sites (`hanse_privacy.ring.choice`).

    Attributes:
        fraction: how many, of each piece of the parameters.
        seed: no secret.
    """

    fraction: float = Field(gt=0, lt=1)
    seed: Digest


class RingPlan(Frozen):
    """The ring of every entry of a model, and of the tally.

    Attributes:
        participants: the largest number of summands; more are refused.
        largest_weight: the largest weight of a participant; larger ones are refused. 1 for uniform weights.
        default: the ring of entries that are not in `entries`.
        entries: by entry name, where it differs.
        metrics: names of the metrics in the tally, in its order.
        counts: number of words that come after these in the tally, and are summed as they are; None: there are none.
        stochastic: whether rounding is to either neighbour with the probability that makes it unbiased.
        refuse_out_of_range: refuse values beyond the bound instead of clipping them.
        rotation: seed by which parameters are rotated first (`hanse_privacy.ring.rotation`), which is no secret; the
            bound is of rotated numbers then. None: they are not.
        chosen: which parameters are summed, after the rotation where there is one; None: all.
        total: what all weights together do not exceed, as the run knows of earlier rounds; the default ring is made for
            that then. None: each may be the largest.
        signs: bits of the ring in which the signs of all parameters (-1, 0 or 1) are summed beside them, for
            gradient-masked averaging. None: they are not.
    """

    participants: int = Field(ge=1, le=1_000_000)
    largest_weight: int = Field(default=1, ge=1, le=2**40)
    default: Ring
    entries: dict[str, Ring] = {}
    metrics: tuple[str, ...] = Field(default=(), max_length=64)
    stochastic: bool = False
    refuse_out_of_range: bool = False
    counts: int | None = Field(default=None, ge=1, le=MOST_COUNTS)
    rotation: Digest | None = None
    chosen: Chosen | None = None
    total: int | None = Field(default=None, ge=1, le=2**60)
    signs: Literal[8, 16, 32] | None = None


class SeedKey(Frozen):
    """A compensator's sealing key of some hours, after which its private half is destroyed.

    Attributes:
        owner: the compensator's lasting Ed25519 key, which sites pin.
        key: X25519, to which seeds are sealed.
        until: nothing is sealed to it later.
        signature: the owner's, over `hanse_privacy.compensators.keys.statement(...)`.
    """

    owner: Ed25519Key
    key: X25519Key
    until: Time
    signature: Signature


class Compensators(Frozen):
    """Several compensators, of which so many as are needed can sum masks, and fewer learn nothing.

    Attributes:
        needed: k of the n.
        keys: of each one the present key, sorted by owner.
        gone: lasting keys of those, n - k at most, that have none of the present: nothing is sealed to them.
    """

    needed: int = Field(ge=2, le=MOST_COMPENSATORS)
    keys: tuple[SeedKey, ...] = Field(min_length=2, max_length=MOST_COMPENSATORS)
    gone: tuple[Ed25519Key, ...] | None = Field(default=None, min_length=1, max_length=MOST_COMPENSATORS)

    @property
    def owners(self) -> tuple[bytes, ...]:
        """The lasting keys of all n, sorted: a compensator's place is that of its key."""
        return tuple(sorted((*(key.owner for key in self.keys), *(self.gone or ()))))


class KnownSets(Frozen):
    """What a compensator remembers of a work: its digest or a tag, and over which sets it was summed
    (`hanse_privacy.works.codec.encode_whole`)."""

    work: Base64Bytes = Field(max_length=64)
    keys: Base64Bytes
    sets: Base64Bytes


class Ballot(Frozen):
    """One of several compensators says that it would sum the masks of a set, and what it remembers of its work.

    Attributes:
        owner: who says so.
        known: the sets of the work and of the works near to it, this one included.
        signature: over `hanse_privacy.compensators.ballots.statement(...)`.
    """

    owner: Ed25519Key
    known: tuple[KnownSets, ...]
    signature: Signature


class Masking(Frozen):
    """The part of a task that says how the answer is to be masked.

    Attributes:
        session: names the sum: all answers of a session are summed once. Seeds are bound to it.
        minimum: the sum of fewer participants is made for nobody.
        compensator: its X25519 public key (COMPENSATOR), which the site's policy pins.
        compensators: in its place, where several share the mask.
    """

    mode: MaskingMode
    session: StepKey
    minimum: int = Field(ge=1)
    ring: RingPlan
    compensator: X25519Key | None = None
    compensators: Compensators | None = None


class MaskShape(Frozen):
    """The ring elements of a masked file's data, in file order: first all of 64 bits, then all of 48, 40, 32, 16 and 8.

    Release 0.1.0 knows 64 and 32 alone; the others are named where there are some.
    """

    u64: int = Field(default=0, ge=0, le=2**40)
    u48: int | None = Field(default=None, ge=1, le=2**40)
    u40: int | None = Field(default=None, ge=1, le=2**40)
    u32: int = Field(default=0, ge=0, le=2**40)
    u16: int | None = Field(default=None, ge=1, le=2**40)
    u8: int | None = Field(default=None, ge=1, le=2**40)

    @property
    def counts(self) -> dict[int, int]:
        """Elements by their bits, in file order; of 64 and 32 bits also where there are none."""
        found = {64: self.u64, 48: self.u48, 40: self.u40, 32: self.u32, 16: self.u16, 8: self.u8}
        return {bits: count for bits, count in found.items() if count is not None}

    @property
    def nbytes(self) -> int:
        return sum(bits // 8 * count for bits, count in self.counts.items())

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> MaskShape:
        """The shape with so many elements by bits."""
        return cls(**{f"u{bits}": count for bits, count in counts.items() if count})

    @property
    def in_words(self) -> str:
        return ", ".join(f"{count} of {bits} bits" for bits, count in self.counts.items())


class SealedSeed(Frozen):
    """A participant's mask seed, which only the compensator can open, signed with the participant's enrolled key.

    Attributes:
        sealed: `hanse_privacy.masks.seal` of seed, minimum and roster, bound to project, run, session and participant.
        update: shape of the masked update; None where there is a tally alone.
        tally: number of 64-bit elements of the masked tally.
        parts: noise of which the compensator chooses (`hanse_privacy.noise.parts`), encrypted under the seed.
        request: digest of what the participant was asked (`hanse_learning.binding`): its mask serves for answers to
            that alone. None: of release 0.1.0, which binds nothing.
        seals: in place of `sealed`, which is empty: each compensator's share of the seeds, in the order of their keys.
        signature: over `hanse_privacy.masks.statement(...)`.
    """

    participant: Slug
    sealed: Base64Bytes = Field(max_length=512)
    seals: tuple[Annotated[Base64Bytes, Field(max_length=1024)], ...] | None = Field(
        default=None, min_length=2, max_length=MOST_COMPENSATORS
    )
    update: MaskShape | None = None
    tally: int = Field(ge=1, le=1024 + MOST_COUNTS)
    parts: Base64Bytes | None = Field(default=None, max_length=256 << 10)
    request: Digest | None = None
    signature: Signature


class MaskStage(StrEnum):
    """What one of several compensators is asked for."""

    LOOK = "look"
    BALLOT = "ballot"
    SUM = "sum"


class MaskRequest(Message):
    """Asks the compensator for the sum of the masks of one session's participants. One set is answered, once.

    Attributes:
        members: sorted by participant; their masks are summed.
        compensators: among whom the members have shared their seeds; None: one has them all.
        stage: of several compensators: LOOK says whose seals are wrong and remembers nothing; BALLOT asks for this
            one's ballot; SUM for its part of the sum.
        ballots: of those who sum (SUM).
    """

    schema_id: ClassVar[str] = "hanse.mask_request/2"
    limits = LARGE
    grown: ClassVar = ("hanse.mask_request/1", frozenset({"members.request"}))

    project: Slug
    run: RunId
    session: StepKey
    members: tuple[SealedSeed, ...] = Field(min_length=1)
    compensators: Compensators | None = None
    stage: MaskStage | None = None
    ballots: tuple[Ballot, ...] | None = Field(default=None, max_length=MOST_COMPENSATORS)

    def answered(self, **outcome: object) -> MaskAnswer:
        """The answer to it, with this outcome."""
        about = {"project": self.project, "run": self.run, "session": self.session}
        participants = tuple(member.participant for member in self.members)
        return MaskAnswer.model_validate({**about, "participants": participants, **outcome})


class MaskPart(Frozen):
    """Sums of masks: tensor files with the arrays `u64` and `u32`, and `u48`, `u40`, `u16` or `u8` where there are
    such elements (for the tally `u64` alone).

    A small one is the last message of its MASKS subject, a large one in the store; the coordinator sees the references.
    """

    update: ObjectRef | None = None
    tally: ObjectRef


class MaskSum(MaskPart):
    """All that is subtracted.

    Attributes:
        more: where several compensators share the masks, the parts of the others.
    """

    more: tuple[MaskPart, ...] | None = None

    @property
    def parts(self) -> tuple[MaskPart, ...]:
        """One of each compensator."""
        return (self, *(self.more or ()))

    @property
    def updates(self) -> tuple[ObjectRef, ...]:
        """What of it belongs to the updates."""
        return tuple(part.update for part in self.parts if part.update is not None)


class MaskAnswer(Message):
    """The compensator's answer: the sum, or why there is none, ever, for this session.

    Attributes:
        refused: whose seeds are the reason (not signed by an enrolled key, do not open, other shapes): the step can be
            done again, in a new session, without them.
        ballot: where one of several compensators was asked for it.
    """

    schema_id: ClassVar[str] = "hanse.mask_answer/1"
    limits = LARGE

    project: Slug
    run: RunId
    session: StepKey
    participants: tuple[Slug, ...]
    refused: tuple[Slug, ...] = ()
    sum: MaskSum | None = None
    ballot: Ballot | None = None
    code: str = ""
    reason: str = Field(default="", max_length=2000)


class MaskRecord(Message):
    """What the compensator remembers of a session, before it answers: whose masks it sums, made from which seeds.

    Attributes:
        members: SHA-256 over participants and sealed seeds (`hanse_compensator`), which a second request must equal.
    """

    schema_id: ClassVar[str] = "hanse.mask_record/1"
    limits = LARGE

    project: Slug
    run: RunId
    session: StepKey
    participants: tuple[Slug, ...]
    members: Digest
    at: Time


class WorkRecord(Message):
    """Which sets a work was summed over, as compensators tell each other (`hanse_privacy.works`).

    Attributes:
        work: the work's digest.
        keys: of the members, 16 bytes each.
        sets: by the members' places among these.
    """

    schema_id: ClassVar[str] = "hanse.work_record/1"
    limits = LARGE

    work: Digest
    keys: Base64Bytes
    sets: Base64Bytes


class CompensatorRecord(Message):
    """A compensator's public key, as it announces it. Sites trust the key that their policy pins, not this.

    Attributes:
        seed_key: of one that can be one of several: its present key, signed with the one that sites pin.
    """

    schema_id: ClassVar[str] = "hanse.compensator/1"

    public_key: X25519Key
    version: str
    at: Time
    seed_key: SeedKey | None = None
