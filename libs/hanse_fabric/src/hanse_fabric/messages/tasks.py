"""What the coordinator asks of a participant, and what the participant answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Base64Bytes, BeforeValidator, Field, StringConstraints

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.masking import Masking, SealedSeed
from hanse_fabric.messages.objects import MOST_DELTAS, MOST_TEXT, Delta, ObjectRef
from hanse_fabric.messages.privacy import LedgerHead, PrivacyTerms
from hanse_fabric.messages.uploads import UploadState, UploadStep
from hanse_fabric.names import Digest, RunId, Slug, StepKey

ProtocolName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class TaskKind(StrEnum):
    """INITIALIZE makes the first model from the run's seed; TRAIN makes an update; EVALUATE only metrics.

    The others carry a privacy protocol's messages in `payload`: ADVERTISE keys, SHARE secrets or noise among the sites,
    UNMASK what the dropped have left in the sum. STUDY computes arrays for a step of a genome-wide association study.
    PREPARE counts and sums a table's columns, before the first model. CHECK asks whether the site would do a job's
    work: the answer is a `SiteCheck` in the payload, and nothing is done.
    """

    INITIALIZE = "initialize"
    TRAIN = "train"
    EVALUATE = "evaluate"
    ADVERTISE = "advertise"
    SHARE = "share"
    UNMASK = "unmask"
    STUDY = "study"
    PREPARE = "prepare"
    CHECK = "check"


class Bound(Frozen):
    """What a masked task's request is bound to, beside what the task says itself (`hanse_learning.binding`).

    Attributes:
        job: digest of the run's job, the same for all sites.
        seed: the job's, of which each participant works out its own.
        key: of a study's computation; empty where the round's number tells seeds apart.
    """

    job: Digest
    seed: int = Field(ge=0, lt=2**63)
    key: str = Field(default="", pattern=r"^[a-z0-9-]{0,64}$")


class Task(Message):
    """Work for one participant in one step of a run. The same id always means the same work.

    Attributes:
        id: derived from run, step and participant.
        round: the round, from 1; 0 before the first.
        config: what the trainer needs (the job's `model`, `train`, `evaluate`, `code` sections); of a STUDY `study`
            (the job's section), `step` (the function's name) and `settings` (what that step is told); of a PREPARE
            `prepare`, the rules of all columns; of a CHECK also `kinds`, of the tasks that the run will have, and
            `rounds`, in how many this site will take part. `preparation` is what the others apply to the raw table.
        seed: for this run, round and participant (INITIALIZE: for the run alone).
        model: the model to start from; None for INITIALIZE.
        peers: how many participants the step was sent to, which a site's policy may bound from below.
        issued_at, deadline: UTC.
        masking: how the answer is to be masked; None: not at all.
        privacy: the noise that the site adds, and what its ledger is charged; None: none.
        payload: what a privacy protocol has for this participant.
        extras: further objects that the algorithm needs beside the model, by name (SCAFFOLD's `control`); of a STUDY
            what former steps have made.
        trained: the last round of this run in which this participant's answer was counted, 0 where none was: what a
            site keeps between rounds is taken as of then. None: not told.
        bound: of a masked task: with it the site's answer is summed only with answers to the same request. None: a hub
            of release 0.1.0, which binds nothing.
        ledger: the newest head of this site's own ledger that the hub has seen; None: of none.
        deltas: ways to the model from older ones, which a site that holds one may go, in place of fetching the whole.
            No answer depends on them: what comes out has the model's digest, or the whole is fetched.
        terms: digest of the project's terms that its run was begun under; None: it had none.
    """

    schema_id: ClassVar[str] = "hanse.task/2"
    grown: ClassVar = ("hanse.task/1", frozenset({
        "bound", "ledger", "terms", "masking.ring.counts", "masking.ring.signs", "deltas",
    }))  # fmt: skip

    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    project: Slug
    run: RunId
    step: StepKey
    participant: Slug
    workflow: str
    kind: TaskKind
    round: int = Field(ge=0)
    config: dict[str, Any]
    seed: int = Field(ge=0, lt=2**63)
    model: ObjectRef | None = None
    peers: int = Field(ge=1)
    issued_at: Time
    deadline: Time
    masking: Masking | None = None
    privacy: PrivacyTerms | None = None
    payload: Base64Bytes | None = Field(default=None, max_length=256 << 10)
    extras: dict[str, ObjectRef] | None = None
    trained: int | None = Field(default=None, ge=0)
    bound: Bound | None = None
    ledger: LedgerHead | None = None
    deltas: tuple[Delta, ...] | None = Field(default=None, max_length=MOST_DELTAS)
    terms: Digest | None = None


class Outcome(StrEnum):
    """DONE; REFUSED by the site's policy or checks (final); FAILED in the trainer (final for this task)."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"


class HiddenFailure(StrEnum):
    """All that a hub hears of a failure that may depend on the data, where the answer is masked or has noise.

    Its `code` in the result; `text` is the reason, always the same. docs/privacy.md has the table.
    """

    UNFIT = "schema-mismatch"
    FAILED = "training-failed"
    UNABLE = "too-large"

    @property
    def text(self) -> str:
        """The reason in words."""
        return _HIDDEN[self]


_HIDDEN = {
    HiddenFailure.UNFIT: "the site's data do not serve this task: they are not as declared, too few by the site's "
    "policy, or near answers were made on other terms, where "
    "another seed helps; the site's own log says which",
    HiddenFailure.FAILED: "the work failed at the site, or made numbers that no sum can carry (not finite); the "
    "site's own log says which",
    HiddenFailure.UNABLE: "the site lacks the time, memory, disk or device for this; the site's own log says which",
}


class Result(Message):
    """A participant's signed answer to a task.

    Attributes:
        task: the task's id.
        update: what was made: for TRAIN the difference to the task's model (parameters) and values (buffers); for STUDY
            the step's arrays.
        examples: number of training (or, for EVALUATE, test) examples behind it.
        metrics: finite numbers by name.
        reason: why, where the outcome is not DONE; in plain words.
        code: the error catalogue's code, where the outcome is not DONE.
        seconds: time that the work took.
        tally: where the answer is masked: masked weight and metrics; `examples` and `metrics` are empty then.
        seed: where a compensator sums the masks: the sealed seed of this answer's.
        payload: a privacy protocol's message.
        extras: further updates of the algorithm's, by name, each in the model's layout.
        info: numbers that the strategy needs, beside `examples`: `steps`, `first_loss`, `normalizer`.
        ledger: how far the site's privacy ledger had come, where the task was charged.
        counted: of an EVALUATE without masking whose config asks for it: what the site has counted of its test examples
            (`hanse_fabric.tensors.words`); where the answer is masked, it is in the tally.
        signature: Ed25519 by the participant's key over `canonical(without={"signature"})`.
    """

    schema_id: ClassVar[str] = "hanse.result/2"
    grown: ClassVar = ("hanse.result/1", frozenset({"seed.request", "ledger", "counted"}))

    task: str = Field(pattern=r"^[0-9a-f]{32}$")
    project: Slug
    run: RunId
    step: StepKey
    participant: Slug
    outcome: Outcome
    update: ObjectRef | None = None
    examples: int = Field(default=0, ge=0, le=2**53)
    metrics: dict[str, float] = {}
    reason: str = Field(default="", max_length=2000)
    code: str = ""
    seconds: float = Field(default=0.0, ge=0)
    code_digest: Digest | None = None
    tally: ObjectRef | None = None
    seed: SealedSeed | None = None
    payload: Base64Bytes | None = Field(default=None, max_length=256 << 10)
    extras: dict[str, ObjectRef] | None = None
    info: dict[str, float] | None = None
    ledger: LedgerHead | None = None
    counted: str | None = Field(default=None, max_length=MOST_TEXT)
    signature: Base64Bytes = b""


SLOWEST_PACE_S = 60.0
"""Between signs of life."""

MOST_RULES, MOST_RULE, MOST_WORDS = 32, 500, 500
"""Rules that a sign of life tells, and letters of each, and of whatever else it says: the hub holds the last of each
site in memory, and shows it."""


def _cut(words: object) -> object:
    """What a site trains on names all its pools with their labels: many are no reason to take it for absent."""
    if isinstance(words, str) and MOST_WORDS < len(words) <= 16 * MOST_WORDS:
        return f"{words[: MOST_WORDS - 4]} ..."
    return words


class BudgetTold(Frozen):
    """What a site says of its privacy budget for a project.

    Attributes:
        spent: epsilon, at `delta`.
        allowed: the ceiling; None: there is none.
    """

    spent: float = Field(ge=0)
    delta: float = Field(ge=0, lt=1)
    allowed: float | None = Field(default=None, gt=0)


class Presence(Message):
    """A participant's sign of life, on connecting and at the pace that the hub asks for: clocks, versions and devices
    are seen early.

    Attributes:
        protocols: those of many fine questions that its policy opens; None: it does not say.
        unfit: true where it refuses its data, which are not as the project declares them; None: it has not said so.
        every: seconds until its next one; None: SLOWEST_PACE_S.
        rules: its policy in words; None: it does not say.
        budget: what of its privacy budget for the project is spent; None: it does not say.
        paused: true where its administrator lets no task begin; None: tasks may.
        place: a word for where its home lies, which tells nothing of it; None: it does not say.
    """

    schema_id: ClassVar[str] = "hanse.presence/2"
    grown: ClassVar = (
        "hanse.presence/1",
        frozenset({"protocols", "unfit", "every", "rules", "budget", "paused", "place"}),
    )

    project: Slug
    participant: Slug
    version: str = Field(max_length=MOST_WORDS)
    sent_at: Time
    device: Annotated[str, BeforeValidator(_cut), Field(max_length=MOST_WORDS)] = "cpu"
    working_on: str | None = Field(default=None, max_length=MOST_WORDS)
    protocols: tuple[ProtocolName, ...] | None = Field(default=None, max_length=32)
    unfit: bool | None = None
    every: float | None = Field(default=None, ge=1, le=SLOWEST_PACE_S)
    rules: tuple[Annotated[str, StringConstraints(max_length=MOST_RULE)], ...] | None = Field(
        default=None, max_length=MOST_RULES
    )
    budget: BudgetTold | None = None
    paused: bool | None = None
    place: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")


class Progress(Message):
    """How far a participant is with a task; shown to people, never decided upon."""

    schema_id: ClassVar[str] = "hanse.progress/1"

    project: Slug
    run: RunId
    step: StepKey
    participant: Slug
    fraction: float = Field(ge=0, le=1)
    text: str = Field(default="", max_length=200)


class LinkRequest(Message):
    """A participant asks to upload or to download by presigned links.

    `put` names an update and `upload` how far it is; `get` the key of an object of a task of `run`.
    """

    schema_id: ClassVar[str] = "hanse.link_request/2"
    grown: ClassVar = ("hanse.link_request/1", frozenset({"upload"}))

    project: Slug
    participant: Slug
    run: RunId
    step: StepKey
    put: ObjectRef | None = None
    get: str | None = None
    upload: UploadStep | None = None


class Link(Frozen):
    """A presigned URL, the key behind it, and when it ends."""

    url: str
    key: str
    expires_at: Time


class LinkReply(Message):
    """The answer to a LinkRequest: a link, how an upload goes on, or the refusal's code and message."""

    schema_id: ClassVar[str] = "hanse.link_reply/2"
    grown: ClassVar = ("hanse.link_reply/1", frozenset({"upload"}))

    link: Link | None = None
    upload: UploadState | None = None
    code: str = ""
    message: str = ""
