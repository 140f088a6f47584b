"""What a masked sum needs beside the updates: sums of masks, tallies, and a strategy that works from a sum alone."""

from __future__ import annotations

from hanse_fabric.errors import invalid
from hanse_fabric.messages.masking import MaskingMode
from hanse_fabric.messages.reduction_jobs import JobKind, ReduceJob, RingSum
from hanse_fabric.tensors.layout import Layout
from hanse_learning.server.strategy import Strategy
from hanse_learning.server.weighted_mean import WeightedMean
from hanse_privacy.ring.files import ring_layout
from hanse_privacy.ring.plan import check_plan
from hanse_privacy.ring.rotation import Rotation
from hanse_reduction.ring_plan import MaskedSum, open_subtrahend, stretches_of
from hanse_reduction.sources import Inputs
from hanse_reduction.tallies import Refuse, noise_sums, residual_of, sum_of_tallies, update_masks


def check_sum(job: ReduceJob, ring: RingSum, strategy: Strategy) -> None:
    """Check that a masked sum can be made at all.

    Raises:
        HanseError: INVALID_INPUT for more participants than its rings were planned for, a strategy that needs to see
            single updates, or no model to add the sum to.
    """
    if len(job.updates) > ring.plan.participants:
        raise invalid(
            "updates", len(job.updates), f"at most {ring.plan.participants}, for which the rings were planned",
            hint="the sum of more could wrap around",
        )  # fmt: skip
    if type(strategy.reduction) is not WeightedMean:  # one made of it may choose its weights by single updates
        raise invalid(
            "strategy.reduction", job.strategy.get("reduction"), "weighted_mean, which works from a sum alone",
            hint="robust reductions look at single updates; turn secure_aggregation off, or use weighted_mean",
        )  # fmt: skip
    if ring.plan.signs is not None:
        check_plan(ring.plan)
    elif strategy.mask is not None and job.kind is not JobKind.TALLY:
        raise invalid(
            "strategy.sign_mask", job.strategy.get("sign_mask"),
            "none: a sum tells no update's signs, and in this one the sites were not asked to sum them beside",
        )  # fmt: skip
    if job.model is None and job.kind is not JobKind.TALLY:
        raise invalid("model", None, "the model that the masked updates are differences to")


def open_masked_sum(job: ReduceJob, ring: RingSum, layout: Layout, inputs: Inputs, refuse: Refuse) -> MaskedSum:
    """Open what a masked sum needs beside the updates themselves.

    Args:
        layout: of the model.
        refuse: hears of each participant whose tally cannot be used.

    Raises:
        HanseError: when a sum of masks is missing, tampered with or of another shape.
    """
    updates = ring_layout(layout, ring.plan)
    if ring.mode is MaskingMode.COMPENSATOR and not update_masks(ring):
        raise invalid("sum.masks", None, "the sum of the masks, without which nothing can be unmasked")
    residual = residual_of(ring)
    named = {**update_masks(ring), **noise_sums(ring)}
    subtracted = [open_subtrahend(name, inputs.named(name, ref), updates) for name, ref in named.items()]
    tally = sum_of_tallies(job, ring, inputs, refuse)
    # With a refused update there is no sum and no mean. The weight does not matter then, but all updates are still
    # checked.
    weight = 1.0 if tally is None else tally.weight
    return MaskedSum(
        layout=updates,
        stretches=stretches_of(layout, ring.plan, participants=len(job.updates), weight=weight),
        subtracted=tuple(subtracted),
        participants=len(job.updates),
        tally=tally,
        residual=residual,
        rotation=None if ring.plan.rotation is None else Rotation(bytes.fromhex(ring.plan.rotation)),
    )
