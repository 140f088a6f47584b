"""The hub's records: projects, participants, invitations, API keys, runs; and their buckets in one place.

The coordinator alone writes them, by compare-and-set. Secrets are kept as hashes, public keys raw.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Base64Bytes, Field

from hanse_fabric.bus.port import Bus
from hanse_fabric.job import Job
from hanse_fabric.messages.base import Message
from hanse_fabric.messages.models import ModelVersion
from hanse_fabric.names import Digest, RunId, Slug
from hanse_fabric.records import Bucket
from hanse_fabric.schema import DataSchema
from hanse_fabric.subjects import INVITATIONS, KEYS, MODELS, PARTICIPANTS, PROJECTS, RUNS

CredentialId = RunId
"""12 characters of a-z and 0-9, as in a run's id."""


class KeyRole(StrEnum):
    """OWNER: a project, or all; SITE: reads its own project; OPERATOR: the hub, but no project's content."""

    OWNER = "owner"
    SITE = "site"
    OPERATOR = "operator"


class ProjectRecord(Message):
    """A project. `data_schema` is what every site's data must look like."""

    schema_id: ClassVar[str] = "hanse.project_record/1"

    name: Slug
    data_schema: DataSchema
    description: str = Field(default="", max_length=2000)
    created_at: datetime
    created_by: str


class ParticipantRecord(Message):
    """An enrolled site.

    Attributes:
        public_key: raw Ed25519, 32 bytes; verifies its results.
        bus_key: NATS user key (`U...`); the subject of its bus credential.
        api_key: id of its API key.
    """

    schema_id: ClassVar[str] = "hanse.participant_record/1"

    project: Slug
    participant: Slug
    public_key: Base64Bytes
    bus_key: str
    api_key: CredentialId
    enrolled_at: datetime
    version: str = Field(default="", max_length=100)
    revoked: bool = False


class InvitationRecord(Message):
    """A one-time join token: its hash, and (once used) by which keys, so that the same site may try again."""

    schema_id: ClassVar[str] = "hanse.invitation_record/1"

    id: CredentialId
    project: Slug
    participant: Slug
    hash: Digest
    created_at: datetime
    created_by: str
    expires_at: datetime
    used_by: Base64Bytes | None = None
    used_bus_key: str | None = None
    used_at: datetime | None = None
    revoked: bool = False


class ApiKeyRecord(Message):
    """An API key: the hash of its secret, and what it may do. `project` None: all projects."""

    schema_id: ClassVar[str] = "hanse.api_key_record/1"

    id: CredentialId
    hash: Digest
    roles: tuple[KeyRole, ...] = Field(min_length=1)
    project: Slug | None = None
    participant: Slug | None = None
    name: str = Field(default="", max_length=200)
    created_at: datetime
    created_by: str
    revoked: bool = False


class RunState(StrEnum):
    """WAITING for participants or a coordinator; the last three are final."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        return self in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)


class RunRecord(Message):
    """A run. The API writes `wanted` after creation, the run's supervisor everything else that changes."""

    schema_id: ClassVar[str] = "hanse.run_record/1"

    project: Slug
    run: RunId
    job: Job
    state: RunState = RunState.WAITING
    wanted: Literal["run", "pause", "cancel"] = "run"
    created_at: datetime
    created_by: str
    updated_at: datetime
    round: int = Field(default=0, ge=0)
    reason: str = ""
    metrics: dict[str, float] = {}
    model_version: int | None = None
    model_digest: Digest | None = None


@dataclass(frozen=True, slots=True)
class Buckets:
    """All buckets that the coordinator uses. Keys by the tokens of their rows in `subjects`."""

    projects: Bucket[ProjectRecord]
    participants: Bucket[ParticipantRecord]
    invitations: Bucket[InvitationRecord]
    keys: Bucket[ApiKeyRecord]
    runs: Bucket[RunRecord]
    models: Bucket[ModelVersion]

    @classmethod
    def on(cls, bus: Bus) -> Buckets:
        return cls(
            projects=Bucket(bus, PROJECTS, ProjectRecord),
            participants=Bucket(bus, PARTICIPANTS, ParticipantRecord),
            invitations=Bucket(bus, INVITATIONS, InvitationRecord),
            keys=Bucket(bus, KEYS, ApiKeyRecord),
            runs=Bucket(bus, RUNS, RunRecord),
            models=Bucket(bus, MODELS, ModelVersion),
        )
