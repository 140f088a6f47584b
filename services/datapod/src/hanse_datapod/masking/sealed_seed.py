"""The seed of a mask, sealed to the compensator whose key the site's policy pins."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from hanse_datapod.masking.plan import refused, smallest_sum
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.noise import AnswerNoise
from hanse_fabric.messages import Masking, MaskShape, SealedSeed, Task
from hanse_site import SiteLink

if TYPE_CHECKING:
    from hanse_privacy.masks.bound import Asked


def seal_seed(
    link: SiteLink, policy: Policy, task: Task, masking: Masking, seed: bytes, shape: MaskShape | None,
    noise: AnswerNoise | None = None, asked: Asked | None = None, tag: bytes = b"",
) -> SealedSeed:  # fmt: skip
    """The seed as the compensator, and nobody else, can read it: with this site's conditions, signed with its key.

    Args:
        asked: what the answer answers; None: a hub of release 0.1.0, which binds nothing.
        tag: of answers that it is near to; empty where it has none.
        noise: of which the compensator may have to choose.

    Raises:
        HanseError: POLICY without a pinned key, which `MaskingPolicy.check` says in more words.
    """
    from hanse_privacy.masks.bound import bound_seed
    from hanse_privacy.masks.seal import SeedNote, seal, statement

    key = policy.masking.compensator
    if key is None:
        raise refused("the policy pins no compensator's key")
    roster = policy.masking.roster
    note = SeedNote(
        seed=seed,
        minimum=smallest_sum(policy, task, masking),
        roster=None if roster is None else bytes.fromhex(roster),
        work=None if asked is None else asked.work,
        tag=(tag or None) if asked is not None else None,
    )
    request = None if asked is None else asked.request
    context = {"project": task.project, "run": task.run, "session": masking.session}
    sealed = seal(key, note, **context, participant=task.participant, request=request)
    unsigned = SealedSeed(
        participant=task.participant,
        sealed=base64.b64encode(sealed),
        update=shape,
        tally=1 + 2 * len(masking.ring.metrics),
        request=None if request is None else request.hex(),
        signature=b"",
    )
    parts = None if noise is None else noise.sealed(bound_seed(seed, request), context, task.participant)
    unsigned = unsigned.model_copy(update={"parts": parts})
    signature = link.identity.signing_key.sign(statement(task.project, task.run, masking.session, unsigned))
    return unsigned.model_copy(update={"signature": signature})
