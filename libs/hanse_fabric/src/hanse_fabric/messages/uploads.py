"""Uploads by link, in parts of LEAF_BYTES: what a participant or an owner asks, and what the hub answers.

The hub begins an upload and ends it; who uploads gets a link for each part, which the store takes with that part's
length and checksum alone. So nothing is written that was not announced, nothing is replaced, and nothing is left to do
with a link once the hub has ended the upload, or given it up.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Digest

PARTS_AT_ONCE = 16
"""Links that are given in one answer at most."""

ETag = Annotated[str, Field(pattern=r"^[!-~]{1,100}$")]


class UploadStep(Frozen):
    """How far an upload is.

    Attributes:
        upload: the id that the hub gave; empty: it is to begin.
        etags: the store's answers for the parts that it has, from the first on.
        digests: SHA-256 of the parts that come next, for which links are wanted; none: the store has all of them.
    """

    upload: str = Field(default="", pattern=r"^[!-~]{0,1024}$")
    etags: tuple[ETag, ...] = Field(default=(), max_length=10_000)
    digests: tuple[Digest, ...] = Field(default=(), max_length=PARTS_AT_ONCE)


class PartLink(Frozen):
    """Where to PUT a part (numbered from 1), and the headers to send with it, which are signed."""

    number: int = Field(ge=1, le=10_000)
    url: str
    headers: dict[str, str]


class UploadState(Frozen):
    """The hub's answer: links for parts; or, `stored`, that the object is at `key`."""

    key: str
    upload: str = ""
    parts: tuple[PartLink, ...] = ()
    stored: bool = False
