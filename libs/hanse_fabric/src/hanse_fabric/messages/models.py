"""Model versions: what is asked of the registry, and what it records."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import Base64Bytes, Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.messages.objects import ObjectRef
from hanse_fabric.messages.outputs import StudyOutput
from hanse_fabric.names import Digest, RunId, Slug
from hanse_fabric.strict_json import LARGE


class Stage(StrEnum):
    """A new version is a CANDIDATE. At most one version of a project is in STAGING, and one in PRODUCTION."""

    CANDIDATE = "candidate"
    STAGING = "staging"
    PRODUCTION = "production"
    ARCHIVED = "archived"


class Lineage(Frozen):
    """Where a model came from. `privacy` is filled by the privacy plane; `reduced_on` names the devices that combined
    the round's updates, where it was not the aggregators' processors alone; `plugins` has the digests of the packages
    that the run's strategy and algorithm are of, by their names, where they are not Hanse's own."""

    run: RunId
    round: int = Field(ge=0)
    workflow: str
    participants: tuple[Slug, ...]
    examples: int = Field(ge=0)
    strategy: dict[str, Any]
    seed: int
    parent: Digest | None = None
    code_digests: tuple[Digest, ...] = ()
    privacy: dict[str, Any] = {}
    reduced_on: tuple[str, ...] | None = None
    plugins: dict[str, Digest] | None = None


class PublishModel(Message):
    """Record a model version. Idempotent: the same (project, run, round) with the same digest is one version.

    Attributes: as of `ModelVersion`.
    """

    schema_id: ClassVar[str] = "hanse.publish_model/1"
    limits = LARGE

    project: Slug
    model: ObjectRef
    architecture: dict[str, Any]
    lineage: Lineage
    metrics: dict[str, float] = {}
    final: bool = False
    best: bool = Field(default=False, exclude_if=lambda given: not given)  # since 0.2.0
    problem: dict[str, Any] | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0


class ModelVersion(Message):
    """A recorded version, signed by the registry.

    Attributes:
        version: 1, 2, ... within the project.
        architecture: the job's `model` section, as its owner wrote it.
        problem: of a built-in model: `schema`, of the project's data when the run was submitted, and `model`, that
            section with every default; and `preparation`, where raw columns were prepared. With the file they are all
            that is needed to use the model.
        best: no version of its run before it was as good, by the metric that the job names; it outlives retention until
            there is a better one.
        promoted_at: when it last entered PRODUCTION from another stage; rollback goes back along these times.
        signature: Ed25519 by the registry's key over `statement()`; promotion does not change it.
    """

    schema_id: ClassVar[str] = "hanse.model_version/1"
    limits = LARGE

    project: Slug
    version: int = Field(ge=1)
    digest: Digest
    size: int = Field(ge=0)
    leaves: tuple[Digest, ...] = ()
    key: str
    architecture: dict[str, Any]
    lineage: Lineage
    metrics: dict[str, float] = {}
    created_at: Time
    stage: Stage = Stage.CANDIDATE
    final: bool = False
    best: bool = Field(default=False, exclude_if=lambda given: not given)  # since 0.2.0
    problem: dict[str, Any] | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    deleted: bool = False
    promoted_at: Time | None = None
    public_key: Base64Bytes
    signature: Base64Bytes = b""

    def statement(self) -> bytes:
        """The bytes that the registry signs: everything but what may change later."""
        return self.canonical(without=frozenset({"signature", "stage", "deleted", "promoted_at"}))


class RegistryRequest(Message):
    """Any other request to the registry: `promote`, `rollback`, `delete`, `link` (a presigned download), `sign` (an
    output of a study).

    `actor` is who asked, as the coordinator authenticated them; it goes into the audit.
    """

    schema_id: ClassVar[str] = "hanse.registry_request/1"

    action: str = Field(pattern=r"^(promote|rollback|delete|link|sign)$")
    project: Slug
    version: int | None = Field(default=None, ge=1)
    stage: Stage | None = None
    actor: str
    reason: str = ""
    output: StudyOutput | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0


class RegistryReply(Message):
    """The registry's answer: a version (and a link where one was asked for), a signed output, or the refusal's code and
    message."""

    schema_id: ClassVar[str] = "hanse.registry_reply/1"
    limits = LARGE

    version: ModelVersion | None = None
    output: StudyOutput | None = Field(default=None, exclude_if=lambda given: given is None)  # since 0.2.0
    url: str = ""
    code: str = ""
    message: str = ""
