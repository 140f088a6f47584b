"""The tallies of a masked sum: fetched and verified one by one, and added up to what all participants say together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import INLINE_LIMIT, ObjectRef, RingPlan, UpdateInput
from hanse_fabric.messages.masking import MaskingMode
from hanse_fabric.messages.reduction_jobs import JobKind, ReduceJob, RingSum, StudyJob, Tally
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.pairwise.streams import Masks, residual_masks
from hanse_privacy.ring.tally import read_tally, sum_tallies, tally_count
from hanse_reduction.sources import Inputs

MAX_TALLY_BYTES = INLINE_LIMIT
"""More than any tally has: MOST_COUNTS words, some metrics and a header."""

Refuse = Callable[[str, HanseError], None]
"""Told of a participant that must be left out, and why."""


def tally_ref(job: ReduceJob | StudyJob, update: UpdateInput) -> ObjectRef | None:
    """Where a participant's tally is: beside its update, or in its place where there are tallies alone."""
    return update.ref if isinstance(job, ReduceJob) and job.kind is JobKind.TALLY else update.tally


def mask_refs(ring: RingSum) -> dict[str, ObjectRef]:
    """What is subtracted from a masked sum, by what it is."""
    return {**update_masks(ring), **noise_sums(ring), **_tally_masks(ring)}


def update_masks(ring: RingSum) -> dict[str, ObjectRef]:
    """The sums of the updates' masks, of each compensator."""
    return {} if ring.masks is None else _numbered("sum of masks", ring.masks.updates)


def noise_sums(ring: RingSum) -> dict[str, ObjectRef]:
    """Fixed sums that are subtracted from the updates, too."""
    return {} if ring.noise is None else {"sum of noise": ring.noise}


def _tally_masks(ring: RingSum) -> dict[str, ObjectRef]:
    refs = () if ring.masks is None else tuple(part.tally for part in ring.masks.parts)
    return _numbered("sum of the tallies' masks", refs)


def _numbered(what: str, refs: Sequence[ObjectRef]) -> dict[str, ObjectRef]:
    return {what if number == 1 else f"{what}, part {number}": ref for number, ref in enumerate(refs, 1)}


def sum_of_tallies(job: ReduceJob | StudyJob, ring: RingSum, inputs: Inputs, refuse: Refuse) -> Tally | None:
    """Add up the tallies of a job.

    Args:
        refuse: hears of each participant whose tally is missing, tampered with or of another shape.

    Returns:
        The tally of all, or None when somebody was refused.

    Raises:
        HanseError: when the sum of masks is missing or tampered with; TAMPERED when the total is impossible.
    """
    found: list[bytes] = []
    for update in job.updates:
        try:
            found.append(_tally(tally_ref(job, update), ring, inputs))
        except HanseError as error:
            if error.code in (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT):
                raise
            refuse(update.participant, error)
    residual = residual_of(ring)
    masks = [] if residual is None else [_residual_tally(residual, ring.plan)]
    masks += [_small(name, ref, inputs) for name, ref in _tally_masks(ring).items()]
    if len(found) < len(job.updates):
        return None
    tally = sum_tallies(found, ring.plan, masks)
    if tally.weight <= 0:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"tally: the weights of all {len(found)} participants sum to {tally.weight:g}, a mean needs more than 0",
            hint="no site has an example to train on",
        )
    return tally


def residual_of(ring: RingSum) -> Masks | None:
    """What a pairwise sum's recovered secrets take off; None in the other modes.

    Raises:
        HanseError: INVALID_INPUT when the mode is pairwise and there are none, or they cannot be read.
    """
    if ring.mode is not MaskingMode.PAIRWISE:
        return None
    if ring.recovery is None:
        raise invalid("sum.recovery", None, "the recovered secrets, without which a pairwise sum cannot be unmasked")
    return residual_masks(ring.recovery)


def _residual_tally(residual: Masks, plan: RingPlan) -> bytes:
    """The file that the tallies' masks would be, had a compensator summed them."""
    left = np.zeros(tally_count(plan), "<u8")
    residual.apply_tally(left)
    layout = Layout.of([Entry("u64", "U64", left.shape, Rule.RING)])
    return encode_tensors(layout, {"u64": np.negative(left)})


def _tally(ref: ObjectRef | None, ring: RingSum, inputs: Inputs) -> bytes:
    if ref is None:
        raise HanseError(ErrorCode.INVALID_INPUT, "tally: there is none beside the masked update")
    data = _small("tally", ref, inputs)
    read_tally(data, ring.plan)
    return data


def _small(name: str, ref: ObjectRef, inputs: Inputs) -> bytes:
    if ref.size > MAX_TALLY_BYTES:
        raise HanseError(ErrorCode.TOO_LARGE, f"{name}: {ref.size} bytes, at most {MAX_TALLY_BYTES} were expected")
    return inputs.named(name, ref).whole()
