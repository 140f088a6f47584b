"""What sites and coordinator say to each other in `Task.payload` and `Result.payload`, by step of the protocol.

ADVERTISE: AdvertRequest -> Advert. SHARE: ShareRequest -> ShareAnswer. TRAIN or EVALUATE: MaskOrder -> Agreement.
UNMASK: UnmaskRequest -> UnmaskAnswer. Where the order names the session that comes after it, the agreement brings the
secrets of that one, and nobody needs to be asked for them (SHARE). Records of fixed size stand in one byte string, in
the order of the sorted members: 100 sites' largest message is below 64 KiB.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from hanse_fabric.errors import invalid
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.names import RunId, Slug, StepKey

SIGNATURE_BYTES = 64


def _from_text(value: object) -> object:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


def _to_text(value: bytes) -> str:
    return base64.b64encode(value).decode()


Raw = Annotated[bytes, BeforeValidator(_from_text), PlainSerializer(_to_text, return_type=str, when_used="json")]
"""Bytes, which are base64 in JSON only: messages are made of plain bytes."""

Key = Annotated[Raw, Field(min_length=32, max_length=32)]
Signature = Annotated[Raw, Field(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class AdvertRequest(Message):
    """What the hub can do, told with ADVERTISE. Sites of release 0.1.0 do not read it.

    Attributes:
        ahead: whether it takes secrets of the next session beside an answer.
    """

    schema_id: ClassVar[str] = "hanse.pairwise_advert_request/1"

    ahead: bool = False


class Advert(Message):
    """A site's key of a run, signed with its enrolled key over `keys.advert_statement`.

    Attributes:
        ahead: whether the site shares secrets of the next session beside an answer; None: it was not asked.
    """

    schema_id: ClassVar[str] = "hanse.pairwise_advert/2"
    grown: ClassVar = ("hanse.pairwise_advert/1", frozenset({"ahead"}))

    key: Key
    signature: Signature
    ahead: bool | None = None


class Member(Frozen):
    """A site of a session: its enrolled key, and its advert."""

    participant: Slug
    identity: Key
    key: Key
    signature: Signature


class ShareRequest(Message):
    """Opens a session among `members`; the same for all of them.

    Attributes:
        threshold: how many must help to recover what is left in the sum.
        members: sorted by participant.
        roster: the enrolled keys of all participants of the project, one after the other, sorted: for sites that pin
            them. May be empty where none does.
        work: digest of the work that the sum will be of (`hanse_learning.binding`); None: of a session that is shared
            ahead, whose work nobody knows yet, or of a hub of release 0.1.0, whose requests are bound to nothing.
    """

    schema_id: ClassVar[str] = "hanse.pairwise_share_request/2"
    grown: ClassVar = ("hanse.pairwise_share_request/1", frozenset({"work"}))

    project: Slug
    run: RunId
    session: StepKey
    threshold: int = Field(ge=2)
    members: tuple[Member, ...] = Field(min_length=2)
    roster: Raw = b""
    work: Key | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> ShareRequest:
        names = self.names
        if list(names) != sorted(set(names)):
            raise ValueError("members: they are not sorted by participant, or one is there twice")
        for field in ("identity", "key"):
            if len({getattr(member, field) for member in self.members}) < len(self.members):
                raise ValueError(f"members: two have the same {field}")
        if len(self.roster) % 32:
            raise ValueError(f"roster: {len(self.roster)} bytes are not a sequence of keys of 32 bytes")
        return self

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(member.participant for member in self.members)

    def abscissa(self, participant: str) -> int:
        """Where the participant's shares stand on every polynomial of this session."""
        return self.names.index(participant) + 1

    def next(self, session: str) -> ShareRequest:
        """Of a session of the same members that is shared ahead, before its work is known."""
        # Not a copy, which would keep the digest of this one.
        return ShareRequest(
            project=self.project, run=self.run, session=session, threshold=self.threshold, members=self.members,
            roster=self.roster,
        )  # fmt: skip

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of what must be the same for all: who, with which keys, which threshold, for which work."""
        return hashlib.sha256(self.canonical(without=frozenset({"roster"}))).digest()


class ShareAnswer(Message):
    """A site's secrets of a session, for others to keep.

    Attributes:
        wrapped: its mask keys with all other members, which the secret that the others share opens.
        own: SHA-256 that the seed of its own mask must match.
        sealed: for every other member, a sealed pair of shares (`shares.SEALED_BYTES` each).
        checks: for every member, itself included, SHA-256 of either share (64 bytes each).
    """

    schema_id: ClassVar[str] = "hanse.pairwise_share_answer/1"

    wrapped: Raw
    own: Key
    sealed: Raw
    checks: Raw


class MaskOrder(Message):
    """Whom to mask with: those whose shares are there; and the shares that they made for the receiver.

    Attributes:
        members: U1, sorted; the receiver is one of them.
        sealed: from every other of them, in order.
        checks: of these shares, in order (64 bytes each).
        ahead: the session after this one, if all members of this one's request are to share secrets for it beside their
            answers; None: nothing is shared ahead.
    """

    schema_id: ClassVar[str] = "hanse.pairwise_mask_order/2"
    grown: ClassVar = ("hanse.pairwise_mask_order/1", frozenset({"ahead"}))

    session: StepKey
    members: tuple[Slug, ...] = Field(min_length=2)
    sealed: Raw
    checks: Raw
    ahead: StepKey | None = None


class Agreement(Message):
    """A site's signature over what it masked (`shares.agreement_statement`), once a session.

    Attributes:
        request: digest of what it was asked; None: of a hub of release 0.1.0.
        ahead: its secrets of the session that the order names as the next.
    """

    schema_id: ClassVar[str] = "hanse.pairwise_agreement/2"
    grown: ClassVar = ("hanse.pairwise_agreement/1", frozenset({"request", "ahead"}))

    signature: Signature
    request: Key | None = None
    ahead: ShareAnswer | None = None


class UnmaskRequest(Message):
    """Asks for shares: of the own seed of each of `survivors`, of the wrapping secret of every other member.

    Attributes:
        survivors: U2, sorted: those whose masked answers are in the sum.
        agreements: their signatures, in order.
    """

    schema_id: ClassVar[str] = "hanse.pairwise_unmask_request/1"

    session: StepKey
    survivors: tuple[Slug, ...] = Field(min_length=2)
    agreements: Raw


class UnmaskAnswer(Message):
    """One share for every member of the session, in order, 33 bytes each."""

    schema_id: ClassVar[str] = "hanse.pairwise_unmask_answer/1"

    shares: Raw


def records(data: bytes, size: int, names: Sequence[str], *, what: str) -> dict[str, bytes]:
    """Cut a byte string into records of `size` bytes, one for each name.

    Raises:
        HanseError: INVALID_INPUT when it is longer or shorter.
    """
    if len(data) != size * len(names):
        raise invalid(what, f"{len(data)} bytes", f"{size} bytes for each of {len(names)} participants")
    return {name: data[at * size : (at + 1) * size] for at, name in enumerate(names)}
