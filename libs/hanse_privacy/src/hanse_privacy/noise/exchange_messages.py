"""What sites say to each other in mode `oblivious`, in the payloads of tasks and results. No numpy: the hub relays it.

ADVERTISE -> NoiseKey. SHARE: NoiseRequest -> NoiseShares. TRAIN: NoiseShares.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import ClassVar

from pydantic import Field, model_validator

from hanse_fabric.errors import HanseError
from hanse_fabric.identity.keys import VerifyKey
from hanse_fabric.messages.base import Frozen, Message
from hanse_fabric.names import Slug
from hanse_privacy.pairwise.messages import Key, Raw, Signature


class NoiseKey(Message):
    """A site's X25519 key for one session, signed with its enrolled key over `key_statement`."""

    schema_id: ClassVar[str] = "hanse.noise_key/1"

    key: Key
    signature: Signature


class NoiseMember(Frozen):
    """A site of a session: its enrolled key, and its key for this session."""

    participant: Slug
    identity: Key
    key: Key
    signature: Signature


class NoiseRequest(Message):
    """Asks for noise for each other of `members`, sorted by participant; the same for all.

    Attributes:
        roster: the enrolled keys of all participants of the project: for sites that pin them.
        work: digest of the work that the noise is for; None: of a hub of release 0.1.0.
    """

    schema_id: ClassVar[str] = "hanse.noise_request/2"
    grown: ClassVar = ("hanse.noise_request/1", frozenset({"work"}))

    members: tuple[NoiseMember, ...] = Field(min_length=3)
    roster: tuple[Key, ...] = ()
    work: Key | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> NoiseRequest:
        names = [member.participant for member in self.members]
        if names != sorted(set(names)):
            raise ValueError("members: they are not sorted by participant, or one is there twice")
        if len({member.identity for member in self.members}) < len(names):
            raise ValueError("members: two have the same identity")
        return self


class NoiseShares(Message):
    """Sealed noise: from one site for every other member, or from every other for one; in the members' order."""

    schema_id: ClassVar[str] = "hanse.noise_shares/1"

    sealed: tuple[Raw, ...]


def key_statement(project: str, run: str, session: str, participant: str, key: bytes) -> bytes:
    """What a site signs about its key for a session."""
    names = [name.encode() for name in (project, run, session, participant)]
    return b"hanse noise key 1" + b"".join(struct.pack(">I", len(name)) + name for name in names) + key


def noise_request(
    project: str,
    run: str,
    session: str,
    keys: Mapping[str, bytes],
    identities: Mapping[str, bytes],
    *,
    work: bytes | None = None,
) -> tuple[NoiseRequest | None, tuple[str, ...]]:
    """The request to the sites that signed their keys, and the names of the sites that did not.

    Args:
        keys: what they answered to ADVERTISE, encoded.
        identities: the enrolled keys by participant, of the whole project.
        work: digest of the work that the noise is for; None: requests are bound to nothing.
    """
    members, refused = [], []
    for name in sorted(keys):
        try:
            found = NoiseKey.decode(keys[name])
            said = key_statement(project, run, session, name, found.key)
            VerifyKey(identities[name]).verify(found.signature, said, what=f"noise key of {name}")
            members.append(
                NoiseMember(participant=name, identity=identities[name], key=found.key, signature=found.signature)
            )
        except (HanseError, KeyError):
            refused.append(name)
    if len(members) < 3:
        return None, tuple(refused)
    return NoiseRequest(members=tuple(members), roster=roster_of(identities.values()), work=work), tuple(refused)


def relay(request: NoiseRequest, shares: Mapping[str, bytes]) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The noise that each member gets from the others, encoded; and the names of those whose message is malformed. A
    member gets noise only if it has sent noise for all others. Nothing replaces the noise of those who sent none.
    """
    names = [member.participant for member in request.members]
    sealed: dict[str, tuple[bytes, ...]] = {}
    for name, data in shares.items():
        try:
            each = NoiseShares.decode(data).sealed
        except HanseError:
            continue
        if name in names and len(each) == len(names) - 1:
            sealed[name] = each

    given = {}
    for place, receiver in enumerate(names):
        if receiver not in sealed:
            continue
        others = [(sender, place - (at < place)) for at, sender in enumerate(names) if at != place]
        to_one = tuple(sealed[sender][row] if sender in sealed else b"" for sender, row in others)
        given[receiver] = NoiseShares(sealed=to_one).encode()
    return given, tuple(sorted(set(shares) - set(sealed)))


def roster_of(identities: Iterable[bytes]) -> tuple[bytes, ...]:
    """All enrolled keys, sorted."""
    return tuple(sorted(identities))
