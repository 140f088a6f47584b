"""Ballots: how several compensators come to sum the same sets, and none by a hub's word alone.

A voter's memory admits a set before it signs, so its ballot for the later of two sets tells of the earlier one. Any two
sets with k ballots each have a voter in common (2k > n), so two that must not both be summed have no k ballots each.
Three may be wrong of which every two are right: a chain with too small a step, or two disjoint sets within a third. Of
two sets of which one lies in the other, the common voter has admitted the larger first, or has refused. So the ballots
of the smallest of a chain, or of one of the two that are disjoint, tell of both others, and whoever sums it refuses.
More than three are never needed to break the rule of `works.chain`.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Mapping, Sequence

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.keys import SigningKey, VerifyKey
from hanse_fabric.messages.masking import Ballot, Compensators, KnownSets
from hanse_privacy.compensators.keys import digest_of
from hanse_privacy.works.chain import Members, SummedSets
from hanse_privacy.works.codec import decode_whole, encode_whole

Works = Mapping[bytes, SummedSets]
"""Sets by a work's digest (32 bytes) or by a tag (16 bytes)."""


def statement(asked: bytes, group: Compensators, known: Sequence[KnownSets]) -> bytes:
    """What a voter signs.

    Args:
        asked: digest of the set: project, run, session, members and what they sealed.
    """
    parts = [part for each in known for part in (each.work, each.keys, each.sets)]
    told = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return b"hanse ballot 1" + digest_of(group) + asked + hashlib.sha256(told).digest()


def cast(voter: SigningKey, asked: bytes, group: Compensators, works: Works) -> Ballot:
    """A ballot for a set that the voter's memory has admitted.

    Args:
        works: what it remembers of the work and of those near to it, the set included.
    """
    known = tuple(_told(key, work) for key, work in sorted(works.items()))
    return Ballot(
        owner=base64.b64encode(voter.public_bytes), known=known,
        signature=base64.b64encode(voter.sign(statement(asked, group, known))),
    )  # fmt: skip


def check_ballots(
    ballots: Sequence[Ballot], asked: bytes, group: Compensators, members: Members, gap: int
) -> tuple[int, ...]:
    """Whether a set may be summed, by what its voters remember together.

    Args:
        asked: digest of the set, as whoever checks has worked it out.
        members, gap: of the set (`SummedSets.admit`).

    Returns:
        tuple[int, ...]: the voters' places among the group's owners, sorted.

    Raises:
        HanseError: QUORUM for another number of ballots than are needed; TAMPERED for one of a stranger, one that comes
            twice, or one that its owner has not signed for this set; CONFLICT by the chain rule.
    """
    if len(ballots) != group.needed:
        raise HanseError(ErrorCode.QUORUM, f"ballots: {len(ballots)}, exactly {group.needed} are expected")
    places = {owner: place for place, owner in enumerate(group.owners)}
    voters = [ballot.owner for ballot in ballots]
    for ballot in ballots:
        if ballot.owner not in places or voters.count(ballot.owner) > 1:
            raise HanseError(
                ErrorCode.TAMPERED, "ballots: one each of different compensators of the sites' is expected"
            )
        signed = statement(asked, group, ballot.known)
        VerifyKey(ballot.owner).verify(ballot.signature, signed, what="a compensator's ballot for this set")
    for work in _remembered(ballots).values():
        if work.admit(members, gap) != work:
            raise invalid("ballots", "one that tells nothing of its own set", "all sets that the voter remembers")
    return tuple(sorted(places[voter] for voter in voters))


def _remembered(ballots: Sequence[Ballot]) -> dict[bytes, SummedSets]:
    """What the voters know together, by work and tag.

    Raises:
        HanseError: CONFLICT where the sets are of no common chain.
    """
    works: dict[bytes, SummedSets] = {}
    for ballot in ballots:
        for known in ballot.known:
            works[known.work] = works.get(known.work, SummedSets()).joined(decode_whole(known.keys, known.sets))
    return works


def _told(key: bytes, work: SummedSets) -> KnownSets:
    keys, sets = encode_whole(work)
    return KnownSets(work=base64.b64encode(key), keys=base64.b64encode(keys), sets=base64.b64encode(sets))
