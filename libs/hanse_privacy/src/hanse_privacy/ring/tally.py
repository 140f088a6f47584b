"""The tally: a participant's weight and metrics as masked 64-bit integers, of which only the sums are ever seen.

Elements: the weight; then for each of the plan's metrics weight * metric (fixed point, `plan.metric_ring`) and the
weight where that metric was given, 0 where it was not; then the plan's counts, as they are, of which the first is the
number of sites that count. A sum tells a metric, or counts, where all sites give it. Under masks what a site does not
give is uniform words, so that the sum is noise to everybody, and is never of the few who give it.
"""

from __future__ import annotations

import math
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

_MOST_EXAMPLES = 1 << 32
"""More than a site has: a sum of weights beyond it is a wrong mask, one below it too small a `largest_weight`."""


def tally_count(plan: RingPlan) -> int:
    """Elements of a plan's tallies."""
    return 1 + 2 * len(plan.metrics) + (plan.counts or 0)


def encode_tally(
    weight: int, metrics: Mapping[str, float], plan: RingPlan, *, seed: bytes | None, mask: Mask | None = None,
    counted: str = "", withheld: bytes | None = None,
) -> bytes:  # fmt: skip
    """The tensor file of a tally.

    Args:
        weight: the participant's, in 0..largest_weight; above it where `withheld` is given, for who refuses a bound
            tells what is beyond it (and the sum is right where all weights together are so many times the largest).
        metrics: finite numbers; those that are not in the plan stay here.
        seed: 32 bytes, of which the mask is made; None: no mask, or
        mask: puts it on, where it is the sum of many (mode `pairwise`).
        counted: the plan's counts as words; empty: the site adds nothing to them.
        withheld: secret, 32 bytes, one for each answer: of which the words are made that hide what is not given; a
            metric beyond its bound is not given, either. None: these are 0.

    Raises:
        HanseError: INVALID_INPUT for a weight out of range, and without `withheld` for a metric that is not finite, or
            beyond the bound: a metric is never clipped, for nobody would know.
    """
    if weight < 0 or (withheld is None and weight > plan.largest_weight):
        raise invalid(
            "weight", weight, f"at most the largest that was announced, {plan.largest_weight}",
            hint="the job's secure_aggregation.largest_weight must cover every site's examples",
        )  # fmt: skip
    ring = metric_ring(plan)
    numbers, given = [weight], [True]
    for name in plan.metrics:
        value = metrics.get(name)
        within = value is not None and math.isfinite(value) and abs(value) <= ring.bound
        given += [within, within]
        if value is None or (withheld is not None and not within):
            numbers += [0, 0]
            continue
        if not within:
            raise invalid(
                f"metrics.{name}", value, f"a number within +-{ring.bound:g}",
                hint="metrics have the more room the smaller secure_aggregation.largest_weight and the number of "
                "participants are",
            )  # fmt: skip
        numbers += [round(weight * value * 2.0**ring.fraction), weight]
    elements = np.array([number % 2**64 for number in numbers], dtype="<u8")
    if plan.counts is not None:
        counts = unpack_words(counted, plan.counts, field="counted") if counted else np.zeros(plan.counts, np.uint64)
        elements = np.concatenate([elements, counts.astype("<u8")])
        given += [True, *[bool(counted)] * (plan.counts - 1)]
    if withheld is not None:
        words = np.zeros_like(elements)
        MaskStream(withheld, Purpose.WITHHELD).add_to(words, 0)
        elements = np.where(given, elements, words)
    if seed is not None:
        mask = MaskStream(seed, Purpose.TALLY).add_to
    if mask is not None:
        mask(elements, 0, 64)
    return encode_tensors(_layout("tally", plan), {"tally": elements})


def read_tally(data: bytes, plan: RingPlan) -> NDArray[Any]:
    """The elements (1 + 2 * metrics,) uint64 of one tally's file.

    Raises:
        HanseError: INVALID_INPUT when it is not a tally of this plan.
    """
    return _read(data, "tally", plan)


def sum_tallies(tallies: Sequence[bytes], plan: RingPlan, masks: Sequence[bytes] = ()) -> Tally:
    """What the tallies say together.

    Args:
        tallies: every participant's file.
        masks: files with sums of masks in `u64`, which together are all.

    Raises:
        HanseError: INVALID_INPUT when one is not of this plan, there are more than it has participants, or their
            weights together are more than so many times the largest; TAMPERED when the sum is none that such
            participants can have: a mask is wrong.
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
    _check(0 <= weight <= len(tallies) * max(plan.largest_weight, _MOST_EXAMPLES))
    if weight > len(tallies) * plan.largest_weight:
        raise invalid(
            "secure_aggregation.largest_weight", plan.largest_weight,
            "at least the sites' mean number of examples, for the sum to fit",
        )  # fmt: skip
    if plan.total is not None and weight > plan.total:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"tally: the sites have together more examples than {plan.total}, for which the ring of this round is made "
            "after what the rounds before have told",
            hint="their data have grown since: run again, or say in secure_aggregation.largest_weight how many a site "
            "can have",
        )
    metrics = {}
    for name, product, given in zip(plan.metrics, rest[::2], rest[1::2], strict=True):
        if not given or given != weight:  # some give it not, and the words are theirs
            continue
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
