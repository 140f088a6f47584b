"""Over which sets one work may be summed, so that no combination of its sums speaks of a few members alone.

The sums of one work over several sets are added and subtracted by whoever holds them. That sets differ pairwise by many
members is not enough: {1..7}, {1,2,3} and {4,5,6} do, and leave {7}. So a work's sets form chains: a set lies within
the last of its chain and lacks at least `gap` of it, and members of two chains are different. Then every combination of
the sums is constant on the differences S1 - S2, S2 - S3, ... and on the last set, and each of these has `gap` members.
With k members who collude and tell their own part, a gap of minimum + k leaves `minimum` honest ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from hanse_fabric.errors import ErrorCode, HanseError

KEY_BYTES = 16
Members = frozenset[bytes]
"""Who is in a set: of each the first 16 bytes of the SHA-256 of its enrolled key, for names can be given again."""


@dataclass(frozen=True, slots=True)
class SetChain:
    """Sets of which each lies within the one before.

    Attributes:
        gap: the largest number of members that anybody in it wants to be hidden among.
    """

    gap: int
    sets: tuple[Members, ...]


@dataclass(frozen=True, slots=True)
class SummedSets:
    """The sets that one work was summed over."""

    chains: tuple[SetChain, ...] = ()

    def admit(self, members: Members, gap: int) -> SummedSets:
        """The work after one more sum; itself where it was summed over this set already.

        Args:
            gap: the largest minimum of the members, those who may collude included.

        Raises:
            HanseError: QUORUM for fewer than `gap` members; CONFLICT where the set would tell of fewer.
        """
        if len(members) < gap:
            raise HanseError(ErrorCode.QUORUM, f"members: {len(members)}, a sum of at least {gap} is wanted by some")
        touched = [chain for chain in self.chains if chain.sets[0] & members]
        if not touched:
            return SummedSets((*self.chains, SetChain(gap, (members,))))
        if len(touched) > 1:
            raise _refused("have members of several sets", touched[0])
        chain, last = touched[0], touched[0].sets[-1]
        if members in chain.sets:
            return self._with(chain, SetChain(max(gap, chain.gap), chain.sets))
        wanted = max(gap, chain.gap)
        if not members < last:
            raise _refused("are not all of the last set's", chain)
        if len(last) - len(members) < wanted:
            raise _refused(
                f"are {len(last) - len(members)} fewer than the last set's, at least {wanted} are wanted", chain
            )
        return self._with(chain, SetChain(wanted, (*chain.sets, members)))

    def _with(self, old: SetChain, new: SetChain) -> SummedSets:
        return self if old == new else SummedSets(tuple(new if chain is old else chain for chain in self.chains))

    def joined(self, other: SummedSets) -> SummedSets:
        """What two memories of the same work know together.

        Raises:
            HanseError: CONFLICT where their sets are of no common chain.
        """
        known = [(members, chain.gap) for chain in (*self.chains, *other.chains) for members in chain.sets]
        work = SummedSets()
        for members, gap in sorted(known, key=lambda each: -len(each[0])):
            work = work.admit(members, gap)
        return work

    @property
    def members(self) -> Members:
        """Everybody who was in a sum."""
        return frozenset().union(*(chain.sets[0] for chain in self.chains))


def keys_of(keys: Iterable[bytes]) -> Members:
    """Members by their enrolled Ed25519 keys."""
    return frozenset(hashlib.sha256(key).digest()[:KEY_BYTES] for key in keys)


def _refused(why: str, chain: SetChain) -> HanseError:
    sizes = ", ".join(str(len(members)) for members in chain.sets)
    return HanseError(
        ErrorCode.CONFLICT,
        f"members: they {why}; this work was summed over {sizes} members, and the difference could tell of few",
        hint="the same set again, or one that lacks many of the last, is summed",
    )
