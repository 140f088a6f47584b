"""A site's seeds, sealed to each of several compensators: to each those that it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hanse_fabric.errors import invalid
from hanse_fabric.messages.masking import Compensators
from hanse_privacy.compensators.keys import digest_of, sharing_of
from hanse_privacy.masks.seal import SeedNote, seal


def seal_shares(
    group: Compensators, seeds: Sequence[bytes], note: SeedNote, *, project: str, run: str, session: str,
    participant: str, request: bytes,
) -> tuple[bytes, ...]:  # fmt: skip
    """One seal for each compensator that is there, in the order of the group's keys.

    Args:
        group: as `keys.check_group` has found it right.
        seeds: 32 bytes for each of `Sharing.holders`.
        note: what is sealed beside them; its own seeds are not used.
        request: digest of what was asked, 32 bytes.

    Raises:
        HanseError: INVALID_INPUT for another number of seeds.
    """
    sharing, owners = sharing_of(group), group.owners
    if len(seeds) != len(sharing.holders):
        raise invalid("seeds", len(seeds), f"{len(sharing.holders)}, one for each choice of compensators")
    digest = digest_of(group)
    seals = []
    for key in group.keys:
        first, *more = (seeds[index] for index in sharing.held_by(owners.index(key.owner)))
        told = replace(note, seed=first, more=tuple(more))
        seals.append(
            seal(
                key.key, told, project=project, run=run, session=session, participant=participant, request=request,
                group=digest,
            )
        )  # fmt: skip
    return tuple(seals)
