"""Model versions as the registry signed them, their stages, and the upload of a model to start from."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from hanse_fabric.messages import ModelVersion, Stage
from hanse_fabric.messages.base import Frozen
from hanse_fabric.messages.uploads import UploadStep
from hanse_fabric.names import Digest
from hanse_schemas.http.paging import Page


class ModelView(ModelVersion):
    """A version as the registry signed it; `schema` makes it a message that can be verified offline."""

    schema_name: str = Field(alias="schema")

    @classmethod
    def of(cls, version: ModelVersion) -> Self:
        """A record as the API shows it."""
        return cls.model_validate({**version.model_dump(mode="json"), "schema": version.schema_id})

    @property
    def record(self) -> ModelVersion:
        """What the registry signed.

        Raises:
            HanseError: UNKNOWN_SCHEMA for a record of a version that this release does not know.
        """
        return ModelVersion.decode(self.model_dump_json(by_alias=True).encode())


class ModelsQuery(Page):
    """A part of the versions; `newest`: newest first."""

    newest: bool = False


class ModelList(Frozen):
    """A project's versions that are not deleted, oldest first; with `newest`, newest first."""

    models: tuple[ModelView, ...]


class Promote(Frozen):
    """Where to move a version, and why."""

    stage: Stage
    reason: str = Field(default="", max_length=2000)


class Rollback(Frozen):
    """Why the production version before the present one returns."""

    reason: str = Field(default="", max_length=2000)


class Download(Frozen):
    """A presigned link to the file, and the signed record to verify it with."""

    url: str
    version: ModelView


class Announced(Frozen):
    """The object to upload, and how far that is.

    Attributes:
        digest: as `hanse_fabric.tensors.digest` makes it.
        size: bytes.
        step: links for which parts are wanted; with none of `digests`, the upload is ended.
    """

    digest: Digest
    size: int = Field(ge=0)
    step: UploadStep
