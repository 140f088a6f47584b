"""References to objects (models, updates, states): what they are, and where their bytes rest."""

from __future__ import annotations

from typing import Annotated

from pydantic import Base64Bytes, Field, model_validator

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Digest

INLINE_LIMIT = 96 << 10
MOST_TEXT = 136 << 10
"""Characters of so many bytes, deflated, in base64 (`hanse_fabric.tensors.words`), were none of them alike."""
"""Objects up to this size (bytes) travel on the bus, larger ones through the object store."""

ObjectKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,511}$")]


class ObjectRef(Frozen):
    """A content-addressed object.

    The bytes are in one of three places: in `inline`; in the object store under `key`; or, with neither, in the last
    message of the update subject that the context implies (`subjects.update`).

    Attributes:
        digest: the object's digest (`tensors.digest`).
        size: bytes.
        leaves: digest of each leaf of LEAF_BYTES, in order; empty when the object is one leaf.
        key: key in the object store.
        inline: the bytes, base64 on the wire.
    """

    digest: Digest
    size: int = Field(ge=0)
    leaves: tuple[Digest, ...] = ()
    key: ObjectKey | None = None
    inline: Base64Bytes | None = None

    @model_validator(mode="after")
    def _one_place(self) -> ObjectRef:
        if self.key is not None and self.inline is not None:
            raise ValueError("an object rests inline or in the store, not both")
        return self


MOST_DELTAS = 4


class Delta(Frozen):
    """A way from one version of an object to the next: an object of its own.

    Attributes:
        base: digest of the version that it begins with.
        makes: digest of what comes out.
        ref: the delta.
    """

    base: Digest
    makes: Digest
    ref: ObjectRef


def update_key(project: str, run: str, participant: str, task: str, digest: str) -> str:
    """Where a participant's large answer to one task rests: nobody else is given a link there."""
    return f"updates/{project}/{run}/{participant}/{task}/{digest}"
