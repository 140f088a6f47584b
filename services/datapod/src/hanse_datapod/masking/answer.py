"""The masked answer: an update of which only the sum with others' can be read, its tally, and the sealed seed.

What leaves the site are ring elements with a mask on each, never the plain update, the number of examples or a metric.
The mask comes from a seed that is drawn here for this answer alone; it leaves only sealed to the compensator whose
key the site's policy pins, and is nowhere on the disk otherwise. A crash before the answer is in the journal loses the
seed, and the next attempt draws another; after it, the very bytes are sent again.

Loads numpy, where there is something to mask.
"""

from __future__ import annotations

import base64
import logging
import math
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hanse_datapod.answers.plain import note_to_owner, reference_to, require_update_alone
from hanse_datapod.home.folders import MASKED_SPARE
from hanse_datapod.home.journal import Finished
from hanse_datapod.masking.pairwise import pairwise_masks
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.noise import AnswerNoise, SiteNoise
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Masking, MaskingMode, MaskShape, ObjectRef, Outcome, SealedSeed, Task
from hanse_site import SiteLink
from hanse_site.link import result_for

if TYPE_CHECKING:
    from hanse_privacy.pairwise.streams import Masks
    from hanse_privacy.ring.files import Adjust, MaskedFile

SEED_BYTES = 32
"""Name, beside the output, of an old masked file that may be written over."""
_log = logging.getLogger(__name__)


def check_plan(task: Task, masking: Masking) -> None:
    """Refuse a ring in which the announced sum could overflow, or that is made for fewer participants than asked.

    Raises:
        HanseError: POLICY naming the number and what was expected.
    """
    from hanse_privacy.ring.plan import check_plan as check_ring

    if masking.ring.participants < task.peers:
        raise _refused(f"the ring is made for {masking.ring.participants} participants, {task.peers} are asked")
    try:
        check_ring(masking.ring)
    except HanseError as error:
        raise _refused(error.message) from None


def masked_answer(
    link: SiteLink, policy: Policy, task: Task, masking: Masking, outcome: WorkOutcome, output: Path, *, home: Path,
    noise: SiteNoise | None = None,
) -> Finished:  # fmt: skip
    """The signed answer to a task with masking. When this returns, the plain update is gone, and a large masked one on
    the disk.

    Args:
        outcome: what the worker made; its `update` is the plain file, which is removed.
        output: where the masked file is written.
        home: where the keys of mode `pairwise` are.
        noise: this datapod's; None: there is none that was exchanged with others.

    Raises:
        HanseError: POLICY; TRAINING_FAILED for a metric that is not finite; INVALID_INPUT for values that the ring
            refuses; NO_SPACE.
    """
    from hanse_privacy.ring.files import mask_shape

    require_update_alone(outcome)
    policy.check_examples(outcome.examples, tell=False)
    weight = _weight(masking, outcome.examples)
    metrics, withheld = policy.metrics(outcome.metrics)
    _check_finite(metrics)

    seed = secrets.token_bytes(SEED_BYTES) if masking.mode is MaskingMode.COMPENSATOR else None
    pairwise = None
    if masking.mode is MaskingMode.PAIRWISE:
        pairwise = pairwise_masks(link, policy, task, home, minimum=smallest_sum(policy, task, masking))
    drawn = (noise or SiteNoise(link, policy)).for_answer(task, masking, outcome.update)
    written, tally = _write(
        task, masking, outcome, output, weight, metrics, seed, None if pairwise is None else pairwise.masks,
        drawn.adjust,
    )  # fmt: skip
    shape, ref, data = None, None, None
    if written is not None:
        shape = mask_shape(written.layout)
        ref, data = reference_to(link, task, output, digested=(written.digest, written.leaves))
    answered = result_for(
        task, Outcome.DONE, update=ref, seconds=outcome.seconds, reason=note_to_owner(withheld, outcome),
        code_digest=outcome.code_digest,
    )  # fmt: skip
    sealed = None
    if seed is not None:
        sealed = seal_seed(link, policy, task, masking, seed, shape, drawn)
    # A copy takes bytes as they are; validation would take them for base64.
    payload = None if pairwise is None else pairwise.payload
    answered = answered.model_copy(update={"tally": _ref(tally), "seed": sealed, "payload": payload})
    return Finished(link.sign(answered), data, tally)


def _write(
    task: Task, masking: Masking, outcome: WorkOutcome, output: Path, weight: int, metrics: Mapping[str, float],
    seed: bytes | None, masks: Masks | None, adjust: Adjust | None,
) -> tuple[MaskedFile | None, bytes]:  # fmt: skip
    """Write the masked file and remove the plain one: (what was written, the tally's bytes)."""
    from hanse_privacy.ring.files import write_masked
    from hanse_privacy.ring.tally import encode_tally

    written = None
    try:
        tally = encode_tally(
            weight, metrics, masking.ring, seed=seed, mask=None if masks is None else masks.apply_tally
        )  # fmt: skip
        if outcome.update is not None:
            written = write_masked(
                outcome.update, output, masking.ring, weight=weight, seed=seed, adjust=adjust,
                mask=None if masks is None else masks.apply, over=output.with_name(MASKED_SPARE),
            )  # fmt: skip
            outcome.update.unlink()
            if written.clipped:
                _log.warning(
                    "values beyond the job's bound were clipped",
                    extra={"run": task.run, "step": task.step, "clipped": written.clipped},
                )
    except HanseError as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        # The ring's own message tells how many values, and the largest: that is for the site alone.
        _log.warning("the answer cannot be masked", extra={"run": task.run, "reason": error.message})
        where = error.message.partition(":")[0]
        raise _refused(
            f"{where} has values that are not finite, or beyond a bound that the job refuses to clip to",
            hint="the site's log says more; a larger bound, out_of_range: clip, or a lower learning rate may help",
        ) from None
    return written, tally


def seal_seed(
    link: SiteLink, policy: Policy, task: Task, masking: Masking, seed: bytes, shape: MaskShape | None,
    noise: AnswerNoise | None = None,
) -> SealedSeed:  # fmt: skip
    """The seed as the compensator, and nobody else, can read it: with this site's conditions, signed with its key.

    Args:
        noise: of which the compensator may have to choose.

    Raises:
        HanseError: POLICY without a pinned key, which `MaskingPolicy.check` says in more words.
    """
    from hanse_privacy.masks.seal import SeedNote, seal, statement

    key = policy.masking.compensator
    if key is None:
        raise _refused("the policy pins no compensator's key")
    roster = policy.masking.roster
    note = SeedNote(
        seed=seed,
        minimum=smallest_sum(policy, task, masking),
        roster=None if roster is None else bytes.fromhex(roster),
    )
    context = {"project": task.project, "run": task.run, "session": masking.session}
    sealed = seal(key, note, **context, participant=task.participant)
    unsigned = SealedSeed(
        participant=task.participant,
        sealed=base64.b64encode(sealed),
        update=shape,
        tally=1 + 2 * len(masking.ring.metrics),
        signature=b"",
    )
    parts = None if noise is None else noise.sealed(seed, context, task.participant)
    unsigned = unsigned.model_copy(update={"parts": parts})
    signature = link.identity.signing_key.sign(statement(task.project, task.run, masking.session, unsigned))
    return unsigned.model_copy(update={"signature": signature})


def smallest_sum(policy: Policy, task: Task, masking: Masking) -> int:
    """The least number of participants that the sum must have.

    Policy and job each name one. With distributed noise, so many must answer that their shares make the noise that this
    site's ledger was charged for, even if others drop out.
    """
    wanted = max(policy.masking.minimum, masking.minimum)
    if task.privacy is None:
        return wanted
    from hanse_privacy.noise.aggregate import least_answers

    return max(wanted, least_answers(task.privacy.privacy, task.privacy.active))


def _weight(masking: Masking, examples: int) -> int:
    largest = masking.ring.largest_weight
    if largest == 1:
        return 1
    if examples > largest:
        # How many there are is not said: it is what the mask is there to hide.
        raise _refused(
            f"this site has more examples than the largest weight, {largest}",
            hint="the owner raises secure_aggregation.largest_weight above every site's number of examples",
        )
    return examples


def _check_finite(metrics: dict[str, float]) -> None:
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise HanseError(ErrorCode.TRAINING_FAILED, f"metric {name}: {value} is not a finite number")


def _ref(tally: bytes) -> ObjectRef:
    from hanse_fabric.tensors.refs import ref_of_bytes

    return ref_of_bytes(tally)


def _refused(reason: str, *, hint: str = "") -> HanseError:
    return HanseError(ErrorCode.POLICY, f"the masked sum is refused: {reason}", hint=hint)
