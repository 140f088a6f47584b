"""The tally: a participant's weight and metrics as masked 64-bit integers, of which only the sums are ever seen.

Elements: the weight; then for each of the plan's metrics weight * metric (fixed point, `plan.metric_ring`) and the
weight where that metric was given; then the plan's counts, as they are.

What a site does not give (its policy keeps it back, or its data have none) is random under masks: were it zeros, the
sum of what all others keep back would be the one site's that gives it, and no site knows what the others do. So a
metric is told where all have given it, and nobody can read it of fewer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import RingPlan
from hanse_fabric.messages.reduction_jobs import Tally
from hanse_fabric.tensors.file import decode_tensors, encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_fabric.tensors.words import pack_words, unpack_words
from hanse_privacy.masks.stream import Mask, MaskStream, Purpose
from hanse_privacy.ring.plan import metric_ring


def tally_count(plan: RingPlan) -> int:
    """Elements of a plan's tallies."""
    return 1 + 2 * len(plan.metrics) + (plan.counts or 0)


def encode_tally(
    weight: int, metrics: Mapping[str, float], plan: RingPlan, *, seed: bytes | None, mask: Mask | None = None,
    counted: str = "", spoil: bool = False,
) -> bytes:  # fmt: skip
    """The tensor file of a tally.

    Args:
        weight: the participant's, in 0..largest_weight.
        metrics: finite numbers; those that are not in the plan stay here.
        seed: 32 bytes, of which the mask is made; None: no mask, or
        mask: puts it on, where it is the sum of many (mode `pairwise`).
        counted: the plan's counts as words; empty: the site counts nothing.
        spoil: whether what is not given is random, so that no sum of it can be read; else zeros.

    Raises:
        HanseError: INVALID_INPUT for a weight out of range, a metric that is not finite, or one beyond the bound: a
            metric is never clipped, for nobody would know.
    """
    if not 0 <= weight <= plan.largest_weight:
        raise invalid(
            "weight", weight, f"at most the largest that was announced, {plan.largest_weight}",
            hint="the job's secure_aggregation.largest_weight must cover every site's examples",
        )  # fmt: skip
    ring = metric_ring(plan)
    missing = unreadable if spoil else _nothing
    parts = [_words(weight)]
    for name in plan.metrics:
        value = metrics.get(name)
        if value is None:
            parts.append(missing(2))
            continue
        if not math.isfinite(value) or abs(value) > ring.bound:
            raise invalid(
                f"metrics.{name}", value, f"a number within +-{ring.bound:g}",
                hint="metrics have the more room the smaller secure_aggregation.largest_weight and the number of "
                "participants are",
            )  # fmt: skip
        parts.append(_words(round(weight * value * 2.0**ring.fraction), weight))
    if plan.counts is not None:
        parts.append(unpack_words(counted, plan.counts, field="counted") if counted else missing(plan.counts))
    elements = np.concatenate(parts).astype("<u8")
    if seed is not None:
        mask = MaskStream(seed, Purpose.TALLY).add_to
    if mask is not None:
        mask(elements, 0)
    return encode_tensors(_layout("tally", plan), {"tally": elements})


def unreadable(count: int) -> NDArray[np.uint64]:
    """Random words (count,), which nobody knows: no sum that they are in can be read."""
    return np.frombuffer(os.urandom(8 * count), "<u8").astype(np.uint64)


def _nothing(count: int) -> NDArray[np.uint64]:
    return np.zeros(count, np.uint64)


def _words(*numbers: int) -> NDArray[np.uint64]:
    return np.array(numbers, dtype="<i8").view("<u8")


def read_tally(data: bytes, plan: RingPlan) -> NDArray[Any]:
    """The elements (1 + 2 * metrics,) uint64 of one tally's file.

    Raises:
        HanseError: INVALID_INPUT when it is not a tally of this plan.
    """
    return _read(data, "tally", plan)


def sum_tallies(tallies: Sequence[bytes], plan: RingPlan, masks: Sequence[bytes] = ()) -> Tally:
    """What the tallies say together: of the metrics those that all have given.

    Args:
        tallies: every participant's file.
        masks: files with sums of masks in `u64`, which together are all.

    Raises:
        HanseError: INVALID_INPUT when one is not of this plan, or there are more than it has participants; TAMPERED
            when the sum is none that such participants can have: a mask is wrong.
    """
    if not 1 <= len(tallies) <= plan.participants:
        raise invalid("tallies", len(tallies), f"1 to {plan.participants}, the number that was announced")
    total = np.zeros(tally_count(plan), dtype=np.uint64)
    for data in tallies:
        total += read_tally(data, plan)
    for data in masks:
        total -= _read(data, "u64", plan)
    ring = metric_ring(plan)
    numbers = 1 + 2 * len(plan.metrics)
    weight, *rest = total[:numbers].view(np.int64).tolist()
    _check(0 <= weight <= len(tallies) * plan.largest_weight)
    metrics = {}
    for name, product, given in zip(plan.metrics, rest[::2], rest[1::2], strict=True):
        if not weight or given != weight:
            continue  # somebody has not given it
        # One unit for each summand's rounding.
        _check(abs(product) <= given * ring.bound * 2.0**ring.fraction + len(tallies))
        metrics[name] = product * 2.0**-ring.fraction / given
    counted = None if plan.counts is None else pack_words(total[numbers:])
    return Tally(weight=float(weight), metrics=metrics, counted=counted)


def _check(possible: bool) -> None:
    if not possible:
        raise HanseError(
            ErrorCode.TAMPERED,
            "tally: the sum is not one that these participants can have: a mask or a share was wrong",
            hint="the step is to be redone with new seeds",
        )


def _layout(name: str, plan: RingPlan) -> Layout:
    return Layout.of((Entry(name, "U64", (tally_count(plan),), Rule.RING),))


def _read(data: bytes, name: str, plan: RingPlan) -> NDArray[Any]:
    layout, arrays = decode_tensors(data)
    if difference := _layout(name, plan).difference(layout):
        raise HanseError(ErrorCode.INVALID_INPUT, f"tally: {difference}")
    return arrays[name]
