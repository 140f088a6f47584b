"""What a study has made, as the registry signs it for those who fetch it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Base64Bytes, Field

from hanse_fabric.frozen import Time
from hanse_fabric.messages.base import Message
from hanse_fabric.names import Digest, RunId, Slug


class StudyOutput(Message):
    """An output of a study. The coordinator tells of it; the registry reads it in the store, and signs what it read.

    Attributes:
        name: of the output, such as `results`.
        digest, leaves: as `hanse_fabric.tensors.digest` makes them.
        key: where it rests in the object store.
        cohorts: whose data it is made of, sorted; None: of a study of before 0.2.0.
        recorded_at: when the registry read it; None before.
        signature: Ed25519 by the registry's key over `statement()`.
    """

    schema_id: ClassVar[str] = "hanse.study_output/1"

    project: Slug
    run: RunId
    name: str = Field(pattern=r"^[a-z0-9_-]{1,64}$")
    digest: Digest
    size: int = Field(ge=0)
    leaves: tuple[Digest, ...] = ()
    key: str
    cohorts: tuple[Slug, ...] | None = None
    recorded_at: Time | None = None
    public_key: Base64Bytes = b""
    signature: Base64Bytes = b""

    def statement(self) -> bytes:
        """The bytes that the registry signs."""
        return self.canonical(without=frozenset({"signature"}))
