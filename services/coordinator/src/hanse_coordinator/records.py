"""What the coordinator remembers, in JetStream key-value buckets, changed by compare-and-set only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from hanse_coordinator.people.records import PersonRecord, SessionRecord
from hanse_fabric.bus.port import Bus
from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Message
from hanse_fabric.messages.models import ModelVersion
from hanse_fabric.messages.participants import ParticipantRecord
from hanse_fabric.names import Digest, RunId, Slug
from hanse_fabric.records import Bucket
from hanse_fabric.strict_json import LARGE
from hanse_fabric.subjects import INVITATIONS, KEYS, MODELS, PARTICIPANTS, PEOPLE, PROJECTS, RUNS, SESSIONS, USAGE
from hanse_schemas.http.keys import ApiRole
from hanse_schemas.http.runs import RunState, Wanted
from hanse_schemas.job import Job
from hanse_schemas.schema import DataSchema
from hanse_schemas.terms import ProjectTerms


class ProjectRecord(Message):
    """A project and the schema that every site's data must have. `longest_absence_days`: a site that was away for
    longer needs another invitation; None: none does. `terms`: what sites agree to when they join; None: nothing."""

    schema_id: ClassVar[str] = "hanse.project_record/2"
    grown: ClassVar = ("hanse.project_record/1", frozenset({"longest_absence_days", "terms"}))

    name: Slug
    data_schema: DataSchema
    description: str = Field(default="", max_length=2000)
    created_at: Time
    created_by: str
    longest_absence_days: int | None = Field(default=None, ge=1)
    terms: ProjectTerms | None = None


class InvitationRecord(Message):
    """A one-time token, as a hash. `used_by` is the public key (base64) that it was used with; `challenge`: what the
    proof of the next joining must hold; `region`: whose credentials the site gets, None: the hub's own."""

    schema_id: ClassVar[str] = "hanse.invitation_record/2"
    grown: ClassVar = ("hanse.invitation_record/1", frozenset({"challenge", "region"}))

    id: str
    project: Slug
    participant: Slug
    hash: str
    created_at: Time
    created_by: str
    expires_at: Time
    used_by: str | None = None
    revoked: bool = False
    challenge: str | None = None
    region: Slug | None = None


class ApiKeyRecord(Message):
    """An API key, as a hash. `project` None: all projects; `expires_at` None: it does not; `read_only` None: no."""

    schema_id: ClassVar[str] = "hanse.api_key_record/2"
    grown: ClassVar = ("hanse.api_key_record/1", frozenset({"expires_at", "read_only"}))

    id: str
    hash: str
    role: ApiRole
    project: Slug | None = None
    participant: Slug | None = None
    name: str = Field(default="", max_length=200)
    created_at: Time
    created_by: str = ""
    revoked: bool = False
    expires_at: Time | None = None
    read_only: bool | None = None


class RunRecord(Message):
    """A run. The API writes `wanted`; all else is the supervisor's that holds the run's lease."""

    schema_id: ClassVar[str] = "hanse.run_record/1"
    limits = LARGE

    project: Slug
    run: RunId
    job: Job
    state: RunState = "waiting"
    wanted: Wanted = "run"
    created_at: Time
    created_by: str
    updated_at: Time
    round: int = Field(default=0, ge=0)
    reason: str = ""
    metrics: dict[str, Any] = {}
    model_version: int | None = None
    model_digest: Digest | None = None
    best_version: int | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    """Of the best evaluation, where the job says `keep: best`."""
    outputs: dict[str, Any] = {}
    """References to the objects that a study has made, by name; they rest in the store."""
    cohorts: tuple[Slug, ...] | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    """Whose data the outputs are made of: of all sites, these alone may fetch them. None: of a study of before."""
    problem: dict[str, Any] | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    """What the model is for: see `ModelVersion`. None: of a study, or of site code's own model."""
    terms: Digest | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    """Of the project, when the run was submitted."""
    trace: str | None = Field(default=None, max_length=100)
    """The `traceparent` (W3C) of the request that submitted the run."""
    journal: int | None = Field(default=None, ge=0, exclude_if=lambda given: given is None)  # since 0.2.0
    """Bytes of its journal, when this was written. None: of a run of before."""


class UsageRecord(Message):
    """Bytes that a project has announced for upload on a day (UTC, `2026-05-01`), as one coordinator has counted."""

    schema_id: ClassVar[str] = "hanse.usage_record/1"

    project: Slug
    day: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    size: int = Field(ge=0)


@dataclass(frozen=True)
class Buckets:
    """All buckets that the coordinator reads; `models` is written by the registry alone."""

    projects: Bucket[ProjectRecord]
    participants: Bucket[ParticipantRecord]
    invitations: Bucket[InvitationRecord]
    keys: Bucket[ApiKeyRecord]
    runs: Bucket[RunRecord]
    models: Bucket[ModelVersion]
    usage: Bucket[UsageRecord]
    people: Bucket[PersonRecord]
    sessions: Bucket[SessionRecord]

    @classmethod
    def on(cls, bus: Bus) -> Buckets:
        """The buckets of a hub."""
        return cls(
            projects=Bucket(bus, PROJECTS, ProjectRecord),
            participants=Bucket(bus, PARTICIPANTS, ParticipantRecord),
            invitations=Bucket(bus, INVITATIONS, InvitationRecord),
            keys=Bucket(bus, KEYS, ApiKeyRecord),
            runs=Bucket(bus, RUNS, RunRecord),
            models=Bucket(bus, MODELS, ModelVersion),
            usage=Bucket(bus, USAGE, UsageRecord),
            people=Bucket(bus, PEOPLE, PersonRecord),
            sessions=Bucket(bus, SESSIONS, SessionRecord),
        )
