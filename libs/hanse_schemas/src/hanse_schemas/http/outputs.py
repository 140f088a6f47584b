"""What a study has made: listed, and downloaded by presigned links."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import Field

from hanse_fabric.messages import StudyOutput
from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Digest


class OutputView(Frozen):
    """An output: a tensor file of named arrays. `digest` and `leaves`: as `hanse_fabric.tensors.digest` makes them."""

    name: str
    digest: Digest
    leaves: tuple[Digest, ...]
    size: int


class OutputList(Frozen):
    """A run's outputs, by name; none before it has completed."""

    outputs: tuple[OutputView, ...]


class SignedOutput(StudyOutput):
    """An output as the registry signed it; `schema` makes it a message that can be verified offline."""

    schema_name: str = Field(alias="schema")

    @classmethod
    def of(cls, signed: StudyOutput) -> Self:
        """A record as the API shows it."""
        return cls.model_validate({**signed.model_dump(mode="json"), "schema": signed.schema_id})

    @property
    def record(self) -> StudyOutput:
        """What the registry signed.

        Raises:
            HanseError: UNKNOWN_SCHEMA for a record of a version that this release does not know.
        """
        return StudyOutput.decode(self.model_dump_json(by_alias=True, exclude_none=True).encode())


class OutputLink(Frozen):
    """Where to GET an output, until when, and what to verify it with. `signed`: None from a hub of before 0.2.0."""

    url: str
    expires_at: datetime
    output: OutputView
    signed: SignedOutput | None = None
