"""The table of subjects: every stream, who may publish, who may read. Bus permissions are generated from it.

There is no second list. A pattern's `{name}` tokens are filled when a subject is built, become `*` in a wildcard, and
`{participant}` and `{project}` become the site's own names in a participant's permissions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

VERSION = "v1"


class Role(StrEnum):
    """Who holds a bus credential.

    PROVISIONER makes the streams at installation; BACKUP copies them, contents and all; RESTORER puts copies in their
    place. None of the three does anything else.
    """

    COORDINATOR = "coordinator"
    AGGREGATOR = "aggregator"
    COMPENSATOR = "compensator"
    MODEL_REGISTRY = "model-registry"
    PARTICIPANT = "participant"
    PROVISIONER = "provisioner"
    BACKUP = "backup"
    RESTORER = "restorer"


class Verb(StrEnum):
    """What a role may do with a subject: the operations of `bus.port.Bus`."""

    PUBLISH = "publish"
    FOLLOW = "follow"
    LAST = "last"
    PURGE = "purge"
    WORK = "work"
    REQUEST = "request"
    SERVE = "serve"
    TELL = "tell"
    HEAR = "hear"


class Retention(StrEnum):
    """KEEP: until purged or the limits of age and size; QUEUE: until one worker has acknowledged it."""

    KEEP = "keep"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Stream:
    """A JetStream stream.

    Attributes:
        name: as NATS knows it; `KV_...` for key-value buckets.
        max_age_s: seconds that a message is kept; 0 for ever.
        last_only: keep only the newest message of each subject.
        max_bytes: the room that is reserved for it, of `SMALLEST_STORE`; a larger store gives more in proportion.
        sheds: whether the oldest messages go when it is full. Where not, nothing more is taken: nothing that is still
            needed is lost.
        workers: name of the durable consumer of a QUEUE.
        ack_wait_s: a job whose worker is silent for so long goes to another.
        rarely_there: what is looked for here is mostly not there yet, so the stream's leader is asked for it at once,
            who has to say so anyway.
    """

    name: str
    retention: Retention = Retention.KEEP
    max_age_s: int = 0
    last_only: bool = False
    max_bytes: int = 64 << 20
    sheds: bool = False
    workers: str = ""
    ack_wait_s: float = 10.0
    rarely_there: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the table. `stream` is None for request and reply."""

    pattern: str
    stream: Stream | None
    rights: dict[Role, frozenset[Verb]] = field(default_factory=dict)

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(re.findall(r"{(\w+)}", self.pattern))

    def of(self, **tokens: str) -> str:
        """The concrete subject; every token must be given."""
        return self.pattern.format(**tokens)

    def wildcard(self, **tokens: str) -> str:
        """The subject with `*` for the tokens that are not given."""
        return self.pattern.format(**{name: tokens.get(name, "*") for name in self.tokens})

    def parse(self, subject: str) -> dict[str, str]:
        """The tokens of a concrete subject of this row."""
        values = subject.split(".")
        names = self.pattern.split(".")
        return {name[1:-1]: value for name, value in zip(names, values, strict=True) if name.startswith("{")}


_DAY = 86_400
_MONTH = 30 * _DAY
_MIB = 1 << 20
SMALLEST_STORE = 8 << 30
"""Bytes that the bus's servers must have for JetStream at least: all streams are reserved their room there."""


def _bucket(name: str, room: int = 64 * _MIB, *, max_age_s: int = 0) -> Stream:
    return Stream(name=f"KV_hanse_{name}", last_only=True, max_bytes=room, max_age_s=max_age_s)


C, A, R, P = Role.COORDINATOR, Role.AGGREGATOR, Role.MODEL_REGISTRY, Role.PARTICIPANT
PUBLISH, FOLLOW, LAST, PURGE, WORK = Verb.PUBLISH, Verb.FOLLOW, Verb.LAST, Verb.PURGE, Verb.WORK
REQUEST, SERVE, TELL_, HEAR = Verb.REQUEST, Verb.SERVE, Verb.TELL, Verb.HEAR


def _rights(**by_role: set[Verb]) -> dict[Role, frozenset[Verb]]:
    return {Role[role.upper()]: frozenset(verbs) for role, verbs in by_role.items()}


_RECORD = {PUBLISH, FOLLOW, LAST}

TASK = Subject(
    f"hanse.{VERSION}.task.{{project}}.{{participant}}.{{run}}.{{step}}",
    Stream("HANSE_TASKS", max_age_s=_MONTH, last_only=True, max_bytes=512 * _MIB),
    _rights(coordinator={PUBLISH, FOLLOW, LAST, PURGE}),
)
"""Open tasks: published when a step opens, purged when it closes, so that the stream holds what is open now."""

RESULT = Subject(
    f"hanse.{VERSION}.result.{{project}}.{{run}}.{{step}}.{{participant}}",
    Stream("HANSE_RESULTS", max_age_s=_MONTH, max_bytes=512 * _MIB),
    _rights(coordinator={PUBLISH, FOLLOW, LAST, PURGE}),
)

UPDATE = Subject(
    f"hanse.{VERSION}.update.{{project}}.{{run}}.{{participant}}.{{digest}}",
    Stream("HANSE_UPDATES", max_age_s=_DAY, last_only=True, max_bytes=1024 * _MIB, sheds=True),
    _rights(aggregator={PUBLISH, LAST}, coordinator={PURGE}),
)
"""Updates up to INLINE_LIMIT, which the coordinator may not read; larger ones go through the object store."""

EXCHANGE = Subject(
    f"hanse.{VERSION}.exchange.{{project}}.{{run}}.{{step}}.{{participant}}.{{key}}",
    Stream("HANSE_EXCHANGE", max_age_s=_DAY, max_bytes=256 * _MIB, sheds=True),
    _rights(aggregator={PUBLISH, FOLLOW}, coordinator={PURGE}),
)

EXCHANGED = Subject(
    f"hanse.{VERSION}.exchanged.{{project}}.{{run}}.{{step}}.{{key}}",
    Stream("HANSE_EXCHANGED", max_age_s=_DAY, last_only=True, max_bytes=128 * _MIB, sheds=True),
    _rights(aggregator={PUBLISH, FOLLOW, LAST}, coordinator={PURGE}),
)

JOB = Subject(
    f"hanse.{VERSION}.job.{{project}}.{{run}}.{{step}}.{{job}}",
    Stream(
        "HANSE_JOBS",
        retention=Retention.QUEUE,
        max_age_s=_MONTH,
        workers="aggregators",
        ack_wait_s=5.0,
        max_bytes=256 * _MIB,
    ),
    _rights(coordinator={PUBLISH, PURGE}, aggregator={WORK}),
)

REDUCED = Subject(
    f"hanse.{VERSION}.reduced.{{project}}.{{run}}.{{step}}.{{job}}",
    Stream("HANSE_REDUCED", max_age_s=_MONTH, last_only=True, max_bytes=128 * _MIB, sheds=True, rarely_there=True),
    _rights(coordinator={FOLLOW, LAST, PURGE}, aggregator={PUBLISH, LAST}),
)

MASK_REQUEST = Subject(
    f"hanse.{VERSION}.mask-request.{{project}}.{{run}}.{{session}}",
    Stream(
        "HANSE_MASK_REQUESTS",
        retention=Retention.QUEUE,
        max_age_s=_MONTH,
        workers="compensators",
        ack_wait_s=5.0,
        max_bytes=128 * _MIB,
    ),
    _rights(coordinator={PUBLISH, PURGE}, compensator={WORK}),
)

MASK_ANSWER = Subject(
    f"hanse.{VERSION}.mask-answer.{{project}}.{{run}}.{{session}}",
    Stream("HANSE_MASK_ANSWERS", max_age_s=_MONTH, last_only=True, max_bytes=64 * _MIB, sheds=True),
    _rights(coordinator={FOLLOW, LAST, PURGE}, compensator={PUBLISH, LAST}),
)

MASKS = Subject(
    f"hanse.{VERSION}.masks.{{project}}.{{run}}.{{session}}.{{digest}}",
    Stream("HANSE_MASKS", max_age_s=_DAY, last_only=True, max_bytes=256 * _MIB, sheds=True),
    _rights(aggregator={LAST}, compensator={PUBLISH}, coordinator={PURGE}),
)
"""Sums of masks up to INLINE_LIMIT, which the coordinator may not read; larger ones go through the object store."""

JOURNAL = Subject(
    f"hanse.{VERSION}.journal.{{project}}.{{run}}",
    Stream("HANSE_JOURNAL", max_bytes=1024 * _MIB),
    _rights(coordinator={PUBLISH, FOLLOW, LAST, PURGE}),
)

EVENT = Subject(
    f"hanse.{VERSION}.event.{{project}}.{{run}}",
    Stream("HANSE_EVENTS", max_age_s=_MONTH, max_bytes=512 * _MIB, sheds=True),
    _rights(coordinator={PUBLISH, FOLLOW, LAST, PURGE}),
)

SENT_BYTES = Subject(
    f"hanse.{VERSION}.bytes.{{project}}.{{run}}.{{round}}",
    Stream("HANSE_BYTES", max_age_s=_MONTH, sheds=True),
    _rights(coordinator={PUBLISH, FOLLOW, PURGE}, aggregator={PUBLISH}),
)
"""What passed between the hub and each site, as its processes count it (`hanse_fabric.doors.byte_ledger`)."""

PROGRESS = Subject(
    f"hanse.{VERSION}.progress.{{project}}.{{run}}.{{participant}}",
    Stream("HANSE_PROGRESS", max_age_s=3600, last_only=True, max_bytes=64 * _MIB, sheds=True),
    _rights(coordinator={PUBLISH, FOLLOW}),
)

PRESENCE = Subject(
    f"hanse.{VERSION}.presence.{{project}}.{{participant}}",
    Stream("HANSE_PRESENCE", max_age_s=_DAY, last_only=True, max_bytes=64 * _MIB, sheds=True),
    _rights(coordinator={PUBLISH, FOLLOW, LAST}),
)

AUDIT = Subject(
    f"hanse.{VERSION}.audit.{{project}}",
    Stream("HANSE_AUDIT", max_bytes=512 * _MIB),
    _rights(coordinator={PUBLISH, FOLLOW, LAST}, model_registry={PUBLISH}),
)

SET_ASIDE = Subject(
    f"hanse.{VERSION}.set-aside.{{area}}.{{project}}.{{who}}",
    Stream("HANSE_SET_ASIDE", max_age_s=_MONTH, last_only=True, max_bytes=64 * _MIB, sheds=True),
    _rights(coordinator={PUBLISH, FOLLOW}, aggregator={PUBLISH}, compensator={PUBLISH}, model_registry={PUBLISH}),
)
"""The newest message of each sender that could not be read, for the operator; `who` is `-` where it was no site."""

LINK = Subject(f"hanse.{VERSION}.link.{{project}}.{{participant}}", None, _rights(coordinator={SERVE}))
"""Where sites of release 0.1.0 ask for links, as long as their tokens of then are let in."""


DOORS_OF_ALL, TELLS_OF_ALL = f"hanse.{VERSION}.door.>", f"hanse.{VERSION}.tell.>"
"""What the hub's account exports to those of the regions; sites reach nothing else of it."""


class Door(StrEnum):
    """What a site may ask for; each kind is served by one role.

    TASKS: what is open for it; RESULT, PROGRESS, PRESENCE, UPDATE, EXCHANGE: to write one down; LINK: to the store;
    RENEW: its token; EXCHANGED: a sum that it takes part in.
    """

    TASKS = "tasks"
    RESULT = "result"
    PROGRESS = "progress"
    PRESENCE = "presence"
    LINK = "link"
    RENEW = "renew"
    UPDATE = "update"
    EXCHANGE = "exchange"
    EXCHANGED = "exchanged"


def _door(kind: Door, role: Role) -> Subject:
    pattern = f"{DOORS_OF_ALL[:-2]}.{{region}}.{kind}.{{project}}.{{participant}}"
    return Subject(pattern, None, {role: frozenset({SERVE}), P: frozenset({REQUEST})})


DOORS = {
    kind: _door(kind, C) for kind in (Door.TASKS, Door.RESULT, Door.PROGRESS, Door.PRESENCE, Door.LINK, Door.RENEW)
}
DOORS |= {kind: _door(kind, A) for kind in (Door.UPDATE, Door.EXCHANGE, Door.EXCHANGED)}
"""The only subjects that a site may publish to: requests, each signed with its enrolled key."""

TELL = Subject(
    f"{TELLS_OF_ALL[:-2]}.{{region}}.{{project}}.{{participant}}",
    None,
    _rights(coordinator={TELL_}, participant={HEAR}),
)
"""What a site hears: its tasks, when they open. A tell may be lost; TASKS repairs that."""

TASK_MARK = "Hanse-Task"
"""Header of a tell: which publication of a task it is (`messages.doors.GivenTask.mark`)."""

REFUSED = "Hanse-Refused"
"""Header of a tell that is no task: what of the site's was refused that had no answer; the text says why."""

OPENED = Subject(
    f"hanse.{VERSION}.opened.{{project}}.{{participant}}.{{run}}.{{step}}",
    None,
    _rights(coordinator={SERVE}, aggregator={REQUEST}),
)
"""Whether a step is open for a participant, for those who must know before they write, and may not read tasks."""

OPENS = Subject(
    f"hanse.{VERSION}.opens.{{project}}.{{run}}.{{step}}", None, _rights(coordinator={TELL_}, aggregator={HEAR})
)
"""For whom a step opens, told to aggregators before its tasks are sent: what has not come is asked for by `OPENED`."""

HANDED_IN = Subject(
    f"hanse.{VERSION}.handed-in.{{project}}.{{run}}.{{participant}}.{{digest}}",
    None,
    _rights(aggregator={SERVE}, coordinator={REQUEST}),
)
"""Whether a small update is written down, for the coordinator, which may not read it, and counts no result before."""

WRITTEN = Subject(
    f"hanse.{VERSION}.written.{{project}}.{{run}}.{{participant}}.{{digest}}",
    None,
    _rights(aggregator={TELL_}, coordinator={HEAR}),
)
"""A small update is written down, told to coordinators: what has not come is asked for by `HANDED_IN`."""

SHARED_MASKS = Subject(
    f"hanse.{VERSION}.shared-masks.{{compensator}}",
    None,
    _rights(coordinator={REQUEST}, compensator={SERVE}),
)
"""What one of several compensators, named by its lasting key in hexadecimal, is asked for; its ballots are signed."""

PUBLISH_MODEL = Subject(
    f"hanse.{VERSION}.registry.publish.{{project}}",
    None,
    _rights(coordinator={REQUEST}, model_registry={SERVE}),
)

REGISTRY = Subject(
    f"hanse.{VERSION}.registry.request.{{project}}",
    None,
    _rights(coordinator={REQUEST}, model_registry={SERVE}),
)

PROJECTS = Subject(
    "$KV.hanse_projects.{project}", _bucket("projects"), _rights(coordinator=_RECORD, model_registry={LAST})
)
PARTICIPANTS = Subject(
    "$KV.hanse_participants.{project}.{participant}",
    _bucket("participants", 192 * _MIB),
    _rights(coordinator=_RECORD, compensator={FOLLOW, LAST}, aggregator={FOLLOW, LAST}),
)
COMPENSATORS = Subject(
    "$KV.hanse_compensators.{name}", _bucket("compensators"), _rights(coordinator={FOLLOW, LAST}, compensator=_RECORD)
)
MASK_RECORDS = Subject(
    "$KV.hanse_mask_records.{project}.{run}.{session}",
    _bucket("mask_records", 192 * _MIB),
    _rights(compensator=_RECORD),
)
WORK_RECORDS = Subject(
    "$KV.hanse_work_records.{work}", _bucket("work_records", 192 * _MIB), _rights(compensator=_RECORD)
)
LEDGERS = Subject(
    "$KV.hanse_ledgers.{project}.{participant}", _bucket("ledgers", 192 * _MIB), _rights(coordinator=_RECORD)
)
INVITATIONS = Subject("$KV.hanse_invitations.{invitation}", _bucket("invitations"), _rights(coordinator=_RECORD))
KEYS = Subject("$KV.hanse_keys.{key}", _bucket("keys"), _rights(coordinator=_RECORD))
PEOPLE = Subject("$KV.hanse_people.{person}", _bucket("people"), _rights(coordinator=_RECORD))
"""Who may sign in, by what their names are derived to."""

SESSION_DAYS = 8
SESSIONS = Subject(
    "$KV.hanse_sessions.{login}",
    _bucket("sessions", 32 * _MIB, max_age_s=SESSION_DAYS * _DAY),
    _rights(coordinator=_RECORD),
)
"""Open sessions of people, as hashes. None lasts for as long as the bus keeps them."""

USAGE = Subject("$KV.hanse_usage.{project}.{instance}", _bucket("usage"), _rights(coordinator=_RECORD))
"""What each project has taken of what the operator allows it, as each coordinator has counted it."""

REVOCATIONS = Subject("$KV.hanse_revocations.{key}", _bucket("revocations"), _rights(coordinator=_RECORD))
STATE = Subject(
    "$KV.hanse_state.{name}",
    _bucket("state"),
    _rights(
        provisioner={PUBLISH, LAST}, coordinator={LAST}, aggregator={LAST}, model_registry={LAST}, compensator={LAST}
    ),
)
"""The version of all that is stored here; every service looks at it when it starts."""

RUNS = Subject("$KV.hanse_runs.{project}.{run}", _bucket("runs", 192 * _MIB), _rights(coordinator=_RECORD))
LEASES = Subject("$KV.hanse_leases.{run}", _bucket("leases"), _rights(coordinator=_RECORD))
MODELS = Subject(
    "$KV.hanse_models.{project}.{version}",
    _bucket("models", 192 * _MIB),
    _rights(coordinator={FOLLOW, LAST}, model_registry=_RECORD),
)
OUTPUTS = Subject("$KV.hanse_outputs.{project}.{run}.{output}", _bucket("outputs"), _rights(model_registry=_RECORD))
"""What studies have made, as it was signed first: a second file under the same name is refused."""

SUBJECTS: tuple[Subject, ...] = (
    TASK, RESULT, UPDATE, EXCHANGE, EXCHANGED, JOB, REDUCED, JOURNAL, EVENT, PROGRESS, PRESENCE, AUDIT, SET_ASIDE, LINK,
    MASK_REQUEST, MASK_ANSWER, MASKS, SHARED_MASKS, PUBLISH_MODEL, REGISTRY, PROJECTS, PARTICIPANTS, COMPENSATORS,
    MASK_RECORDS, WORK_RECORDS, LEDGERS, INVITATIONS, KEYS, REVOCATIONS, USAGE, SENT_BYTES, STATE, RUNS, LEASES, MODELS,
    OUTPUTS, PEOPLE, SESSIONS, OPENS, OPENED, WRITTEN, HANDED_IN, TELL, *DOORS.values(),
)  # fmt: skip

STREAMS: tuple[Stream, ...] = tuple({row.stream.name: row.stream for row in SUBJECTS if row.stream}.values())
