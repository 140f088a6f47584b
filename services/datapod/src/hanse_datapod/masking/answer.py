"""The masked answer: an update of which only the sum with others' can be read, its tally, and the sealed seed.

What leaves the site are ring elements with a mask on each, never the plain update, the number of examples or a metric.
The mask comes from a seed that is drawn here for this answer alone (several, where compensators share it); it leaves
only sealed to the compensators whose keys the site's policy pins, and is nowhere on the disk otherwise. A crash before
the answer is in the journal loses it, and the next attempt draws another; after it, the very bytes are sent again.

Loads numpy, where there is something to mask.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse_datapod.answers.plain import note_to_owner, reference_to, require_update_alone
from hanse_datapod.answers.withheld import of_the_data, seconds_told
from hanse_datapod.home.folders import MASKED_SPARE
from hanse_datapod.home.journal import FinishedTask
from hanse_datapod.masking.binding import asked_of
from hanse_datapod.masking.pairwise import pairwise_masks
from hanse_datapod.masking.plan import refused, smallest_sum
from hanse_datapod.masking.remembered import Remembered, Tag, hides
from hanse_datapod.masking.sealed_seed import seal_seeds, seeds_for
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.noise import SiteNoise
from hanse_datapod.privacy.shared_turns import rests
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Masking, MaskingMode, ObjectRef, Outcome, RingPlan, Task, TaskKind
from hanse_privacy.works.pairwise import UnmaskingSession
from hanse_site import SiteLink
from hanse_site.answering import result_for

if TYPE_CHECKING:
    from hanse_privacy.masks.bound import Asked
    from hanse_privacy.pairwise.streams import Masks
    from hanse_privacy.ring.files import Adjust, MaskedFile

_WHOLE = frozenset({TaskKind.STUDY, TaskKind.PREPARE})
"""Kinds of tasks whose numbers are counts and limbs, which no announced bound cuts."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MaskedAnswer:
    """An answer, and what the site remembers of it (`Remembered.claim`).

    Attributes:
        tag: of answers that it is near to.
        among: with whom its masks are pairwise.
    """

    finished: FinishedTask
    tag: Tag
    among: UnmaskingSession | None = None


def masked_answer(
    link: SiteLink, policy: Policy, task: Task, masking: Masking, outcome: WorkOutcome, output: Path, *, home: Path,
    remembered: Remembered, noise: SiteNoise | None = None,
) -> MaskedAnswer:  # fmt: skip
    """The signed answer to a task with masking. When this returns, the plain update is gone, and a large masked one on
    the disk.

    Args:
        outcome: what the worker made; its `update` is the plain file, which is removed.
        output: where the masked file is written.
        home: where the keys of mode `pairwise` are.
        remembered: the site's memory, which gives the answer's tag.
        noise: this datapod's; None: there is none that was exchanged with others.

    Raises:
        HanseError: POLICY; TRAINING_FAILED for a metric that is not finite; INVALID_INPUT for values that the ring
            refuses; NO_SPACE.
    """
    from hanse_privacy.ring.files import mask_shape

    require_update_alone(outcome)
    metrics, withheld = _kept_back(policy, masking, outcome)
    counted, kept = policy.counted(task, outcome)
    with of_the_data(task):
        if not rests(task):
            policy.check_examples(outcome.examples)
        weight = 0 if rests(task) else _weight(task, masking, outcome.examples)
        if _hidden(task):
            _say_what_is_beyond(task, masking, metrics)
        else:
            _check_finite(metrics)
        tag = remembered.tag(task, None if rests(task) else outcome.update)
    noise = noise or SiteNoise(link, policy)
    asked = asked_of(task, noise=noise.agreed(task, masking))
    drawn_seeds = seeds_for(masking, asked)
    pairwise = None
    if masking.mode is MaskingMode.PAIRWISE:
        pairwise = pairwise_masks(link, policy, task, home, asked, minimum=smallest_sum(policy, task, masking))
    drawn = noise.for_answer(task, masking, outcome.update)
    with of_the_data(task):
        written, tally = _write(
            task, masking, replace(outcome, counted=counted, metrics=metrics), output, weight,
            _masks(drawn_seeds, asked) if pairwise is None else pairwise.masks, drawn.adjust,
            withheld=remembered.blinding(task) if _hidden(task) else None,
        )  # fmt: skip
    shape, ref, data = None, None, None
    if written is not None:
        shape = mask_shape(written.layout)
        ref, data = reference_to(link, task, output, digested=(written.digest, written.leaves))
    answered = result_for(
        task, Outcome.DONE, update=ref, reason=note_to_owner((*withheld, *kept), outcome),
        code_digest=outcome.code_digest, seconds=seconds_told(policy.privacy, task, outcome.seconds),
    )  # fmt: skip
    sealed = None
    if drawn_seeds:
        sealed = seal_seeds(link, policy, task, masking, drawn_seeds, shape, drawn, asked, tag.told)
    # A copy takes bytes as they are; validation would take them for base64.
    payload = None if pairwise is None else pairwise.payload
    answered = answered.model_copy(update={"tally": _ref(tally), "seed": sealed, "payload": payload})
    among = None if pairwise is None else pairwise.among
    return MaskedAnswer(FinishedTask(link.sign(answered), data, tally), tag, among)


def _write(
    task: Task, masking: Masking, outcome: WorkOutcome, output: Path, weight: int, masks: Masks | None,
    adjust: Adjust | None, *, withheld: bytes | None,
) -> tuple[MaskedFile | None, bytes]:  # fmt: skip
    """Write the masked file and remove the plain one: (what was written, the tally's bytes)."""
    from hanse_privacy.ring.files import write_masked
    from hanse_privacy.ring.tally import encode_tally

    # Under masks no bound is refused: whoever chooses it would bisect one site's largest value by who refuses.
    plan = masking.ring if task.privacy is None and withheld is None else _never_refusing(masking.ring)
    written = None
    try:
        tally = encode_tally(
            weight, outcome.metrics, plan, seed=None, mask=None if masks is None else masks.apply_tally,
            counted=outcome.counted, withheld=withheld,
        )  # fmt: skip
        if outcome.update is not None:
            written = write_masked(
                outcome.update, output, plan, weight=weight, seed=None, adjust=adjust,
                mask=None if masks is None else masks.apply, over=output.with_name(MASKED_SPARE),
                wrap=task.kind in _WHOLE, heavy=withheld is not None,
            )  # fmt: skip
            outcome.update.unlink()
            if written.clipped:
                _log.warning(
                    "values beyond the job's bound were clipped", extra=_of(task) | {"clipped": written.clipped}
                )
    except HanseError as error:
        if error.code is not ErrorCode.INVALID_INPUT:
            raise
        raise HanseError(ErrorCode.TRAINING_FAILED, error.message, hint=error.hint) from None
    return written, tally


def _masks(seeds: Sequence[bytes], asked: Asked | None) -> Masks | None:
    from hanse_privacy.masks.bound import bound_seed
    from hanse_privacy.pairwise.streams import Masks

    request = None if asked is None else asked.request
    return Masks(add=[bound_seed(seed, request) for seed in seeds], subtract=()) if seeds else None


def _never_refusing(plan: RingPlan) -> RingPlan:
    """The plan of an answer that must not fail on the data. Clipping each number is a projection, so it makes no two
    clipped updates more different."""
    return plan.model_copy(update={"refuse_out_of_range": False})


def _weight(task: Task, masking: Masking, examples: int) -> int:
    """Of a masked answer the examples, whatever the largest weight is, for a refusal would tell; of one with noise no
    more than that, for the noise is made for no larger."""
    largest = masking.ring.largest_weight
    if largest == 1:
        return 1
    if task.privacy is not None:
        if examples > largest:
            _log.warning("examples beyond the job's largest_weight weigh nothing", extra=_of(task))
        return min(examples, largest)
    if examples > largest and not _hidden(task):
        raise refused(
            f"this site has more examples than the largest weight, {largest}",
            hint="the owner raises secure_aggregation.largest_weight above every site's number of examples",
        )
    return examples


def _say_what_is_beyond(task: Task, masking: Masking, metrics: Mapping[str, float]) -> None:
    """In the site's log alone."""
    from hanse_privacy.ring.plan import metric_ring

    bound = metric_ring(masking.ring).bound
    beyond = [name for name in masking.ring.metrics if name in metrics and not abs(metrics[name]) <= bound]
    if beyond:
        _log.warning("metrics that no masked sum carries are kept back", extra=_of(task) | {"metrics": beyond})


def _kept_back(
    policy: Policy, masking: Masking, outcome: WorkOutcome
) -> tuple[dict[str, float], tuple[str, ...]]:  # fmt: skip
    """(the metrics that may leave, names of those withheld that the task asks for). The latter says nothing of which
    the site has made: code may name them by what it finds in the data."""
    return policy.metrics(outcome.metrics)[0], policy.metrics(dict.fromkeys(masking.ring.metrics, 0.0))[1]


def _hidden(task: Task) -> bool:
    """Whether a sum tells nothing of what few give, and no bound is refused: a hub of release 0.1.0 expects zeros."""
    return hides(task) and task.bound is not None


def _of(task: Task) -> dict[str, Any]:
    return {"run": task.run, "step": task.step}


def _check_finite(metrics: dict[str, float]) -> None:
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise HanseError(ErrorCode.TRAINING_FAILED, f"metric {name}: {value} is not a finite number")


def _ref(tally: bytes) -> ObjectRef:
    from hanse_fabric.tensors.refs import ref_of_bytes

    return ref_of_bytes(tally)
