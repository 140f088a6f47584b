"""How a member's seeds are opened: with the one compensator's key, or as one of several who share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.identity.sealing import SealingKey
from hanse_fabric.messages.masking import SealedSeed
from hanse_privacy.masks.bound import bound_seed
from hanse_privacy.masks.seal import SeedNote, open_sealed
from hanse_privacy.noise.parts import coin_key


class Opener(Protocol):
    """Opens the seals of one sum's members."""

    def open(self, member: SealedSeed, sum_of: Mapping[str, str]) -> SeedNote:
        """What a member has sealed; its seeds are those of which the masks are made.

        Args:
            sum_of: project, run and session.

        Raises:
            HanseError: TAMPERED or INVALID_INPUT where it does not open, or was not sealed as it should be.
        """
        ...

    def coins(self, seeds: Sequence[bytes], sum_of: Mapping[str, str]) -> bytes:
        """The key of the coins that choose of the members' noise."""
        ...


class WithOneKey:
    """As the only compensator."""

    def __init__(self, key: SealingKey) -> None:
        self._key = key

    def open(self, member: SealedSeed, sum_of: Mapping[str, str]) -> SeedNote:
        if member.seals is not None:
            raise invalid("seals", len(member.seals), "none, for one compensator was asked")
        asked = _asked(member)
        note = open_sealed(
            self._key.private_bytes, member.sealed, **sum_of, participant=member.participant, request=asked, group=b""
        )
        return replace(note, seed=bound_seed(note.seed, asked))

    def coins(self, seeds: Sequence[bytes], sum_of: Mapping[str, str]) -> bytes:
        return coin_key(self._key.private_bytes, tuple(seeds), **sum_of)


@dataclass(frozen=True)
class AsOneOfSeveral:
    """As one of those who share the masks.

    Attributes:
        key: 32 bytes, the private half of the one that the seals are for.
        seal: which of a member's seals is for this one.
        place: among the group's owners.
        group: its digest.
        count: to how many compensators there are seals.
        held: how many seeds of each member this one holds.
    """

    key: bytes = field(repr=False)
    seal: int
    place: int
    group: bytes
    count: int
    held: int

    def open(self, member: SealedSeed, sum_of: Mapping[str, str]) -> SeedNote:
        if member.seals is None or len(member.seals) != self.count or member.sealed:
            raise invalid("seals", len(member.seals or ()), f"{self.count}, one for each compensator, and no other")
        if member.parts is not None:
            raise invalid("parts", f"{len(member.parts)} bytes", "none: several compensators choose of no noise")
        asked = _asked(member)
        if asked is None:
            raise invalid(
                "request", None, "the digest of what was asked, without which several compensators sum nothing"
            )
        note = open_sealed(
            self.key, member.seals[self.seal], **sum_of, participant=member.participant, request=asked,
            group=self.group,
        )  # fmt: skip
        if len(note.seeds) != self.held:
            raise invalid("seeds", len(note.seeds), f"{self.held} for each compensator")
        first, *more = (bound_seed(seed, asked) for seed in note.seeds)
        return replace(note, seed=first, more=tuple(more))

    def coins(self, seeds: Sequence[bytes], sum_of: Mapping[str, str]) -> bytes:  # noqa: ARG002
        raise HanseError(ErrorCode.INTERNAL, "several compensators choose of no noise")


def _asked(member: SealedSeed) -> bytes | None:
    return None if member.request is None else bytes.fromhex(member.request)
