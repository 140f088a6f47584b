"""The seeds of a mask, sealed to the compensator whose key the site's policy pins, or shared among several."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hanse_datapod.masking.plan import refused, smallest_sum
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.noise import AnswerNoise
from hanse_fabric.messages import Masking, MaskingMode, MaskShape, SealedSeed, Task
from hanse_site import SiteLink

if TYPE_CHECKING:
    from hanse_privacy.masks.bound import Asked
    from hanse_privacy.masks.seal import SeedNote

SEED_BYTES = 32


def seeds_for(masking: Masking, asked: Asked | None) -> tuple[bytes, ...]:
    """New seeds of one answer's mask: none in modes without compensator, one for one, more for several.

    Args:
        asked: what the answer answers.

    Raises:
        HanseError: POLICY where several compensators are to sum answers that are bound to nothing.
    """
    if masking.mode is not MaskingMode.COMPENSATOR:
        return ()
    if masking.compensators is None:
        return (secrets.token_bytes(SEED_BYTES),)
    from hanse_privacy.compensators.keys import sharing_of
    from hanse_privacy.compensators.shares import draw_seeds

    if asked is None:
        raise refused("several compensators sum no answers that are bound to no request")
    return draw_seeds(sharing_of(masking.compensators))


def seal_seeds(
    link: SiteLink, policy: Policy, task: Task, masking: Masking, seeds: Sequence[bytes], shape: MaskShape | None,
    noise: AnswerNoise | None = None, asked: Asked | None = None, tag: bytes = b"",
) -> SealedSeed:  # fmt: skip
    """The seeds as the compensators, and nobody else, can read them: with this site's conditions, signed with its key.

    Args:
        seeds: of `seeds_for`.
        asked: what the answer answers; None: a hub of release 0.1.0, which binds nothing.
        tag: of answers that it is near to; empty where it has none.
        noise: of which the compensator may have to choose.

    Raises:
        HanseError: POLICY without a pinned key, which `MaskingPolicy.check` says in more words, and for noise of which
            several compensators would have to choose; GONE where the key of one is too old.
    """
    from hanse_privacy.masks.bound import bound_seed
    from hanse_privacy.masks.seal import SeedNote, statement
    from hanse_privacy.ring.tally import tally_count

    roster = policy.masking.roster
    note = SeedNote(
        seed=seeds[0],
        minimum=smallest_sum(policy, task, masking),
        roster=None if roster is None else bytes.fromhex(roster),
        work=None if asked is None else asked.work,
        tag=(tag or None) if asked is not None else None,
    )
    request = None if asked is None else asked.request
    context = {"project": task.project, "run": task.run, "session": masking.session}
    sealed, seals = _seals(link, policy, masking, seeds, note, context | {"participant": task.participant}, request)
    unsigned = SealedSeed(
        participant=task.participant,
        sealed=base64.b64encode(sealed),
        seals=None if seals is None else tuple(map(base64.b64encode, seals)),
        update=shape,
        tally=tally_count(masking.ring),
        request=None if request is None else request.hex(),
        signature=b"",
    )
    parts = None if noise is None else noise.sealed(bound_seed(seeds[0], request), context, task.participant)
    if parts is not None and seals is not None:
        raise refused("several compensators choose of no noise")
    unsigned = unsigned.model_copy(update={"parts": parts})
    signature = link.identity.signing_key.sign(statement(task.project, task.run, masking.session, unsigned))
    return unsigned.model_copy(update={"signature": signature})


def _seals(
    link: SiteLink, policy: Policy, masking: Masking, seeds: Sequence[bytes], note: SeedNote,
    context: dict[str, str], request: bytes | None,
) -> tuple[bytes, tuple[bytes, ...] | None]:  # fmt: skip
    """(the seal for one compensator, those for several): of one kind there is none."""
    from hanse_privacy.compensators.sealing import seal_shares
    from hanse_privacy.masks.seal import seal

    if masking.compensators is not None and request is not None:
        policy.masking.check_group(masking.compensators, link.bus.clock.now())
        return b"", seal_shares(masking.compensators, seeds, note, **context, request=request)
    key = policy.masking.compensator
    if key is None:
        raise refused("the policy pins no compensator's key")
    return seal(key, note, **context, request=request, group=b""), None
