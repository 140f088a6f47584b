"""The sum of a study's masked arrays: added up, unmasked, and read as numbers, all in memory.

A study's chunks are small (a few MB of each cohort), and whole arrays are what the hub's functions work on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import MaskingMode, MaskShape, ObjectRef, RingPlan, RingSum, StudyJob
from hanse_fabric.tensors.file import decode_tensors
from hanse_fabric.tensors.layout import Layout
from hanse_privacy.masks.total import total_layout
from hanse_privacy.ring.codec import decode
from hanse_privacy.ring.files import mask_shape
from hanse_privacy.ring.plan import check_plan, largest_sum
from hanse_reduction.plan import Refusals
from hanse_reduction.sources import Input, Inputs
from hanse_reduction.tallies import residual_of, sum_of_tallies, update_masks

Arrays = dict[str, NDArray[Any]]
_SIGNED: dict[int, Any] = {32: np.int32, 64: np.int64}
_RETRIED = (ErrorCode.UNAVAILABLE, ErrorCode.TIMEOUT)


@dataclass(slots=True)
class Reader:
    """Reads objects whole and verifies them; `refusals` has whose answers cannot be used."""

    inputs: Inputs
    refusals: Refusals = field(default_factory=Refusals)
    bytes_read: int = 0

    def read(self, name: str, ref: ObjectRef) -> bytes:
        """The verified bytes of an object.

        Raises:
            HanseError: NOT_FOUND, TOO_LARGE or TAMPERED, naming the object.
        """
        return self._counted(self.inputs.named(name, ref))

    def answers(self, job: StudyJob) -> dict[str, bytes]:
        """Each participant's answer; those that cannot be read are refused."""
        found = {}
        for update in job.updates:
            try:
                on_bus = self.inputs.fetched.get(update.participant)
                found[update.participant] = self._counted(self.inputs.named("answer", update.ref, on_bus))
            except HanseError as error:
                if error.code in _RETRIED:
                    raise
                self.refusals.add(update.participant, error)
        return found

    def _counted(self, data: Input) -> bytes:
        found = data.whole()
        self.bytes_read += len(found)
        return found


def plain_arrays(reader: Reader, job: StudyJob) -> dict[str, Arrays] | None:
    """Each participant's arrays, of a step that is not masked; None where an answer is refused."""
    made: dict[str, Arrays] = {}
    for name, data in reader.answers(job).items():
        try:
            made[name] = decode_tensors(data)[1]
        except HanseError as error:
            reader.refusals.add(name, error)
    return None if reader.refusals else made


def summed_arrays(reader: Reader, job: StudyJob, ring: RingSum) -> Arrays | None:
    """The sums of all members' arrays: int64 where the ring's fraction is 0, else float64; None where one is refused.

    Raises:
        HanseError: INVALID_INPUT for arrays that are not of one shape, or not those that were announced; TAMPERED when
            the sum is none that these members can have, or the sum of the masks is not what was announced.
    """
    if not 1 <= len(job.updates) <= ring.plan.participants:
        raise invalid("updates", len(job.updates), f"1 to {ring.plan.participants}, for which the rings were planned")
    check_plan(ring.plan)
    answers = reader.answers(job)
    layouts: dict[str, Layout] = {}
    for name, data in answers.items():
        try:
            layouts[name] = _ring_layout(data, ring.plan)
        except HanseError as error:
            reader.refusals.add(name, error)
    tally = sum_of_tallies(job, ring, reader.inputs, reader.refusals.add)
    if reader.refusals or tally is None:
        return None
    layout = _one_layout(layouts)
    elements = _unmasked(reader, ring, layout, list(answers.values()))
    if round(tally.weight) != len(answers):
        raise HanseError(
            ErrorCode.TAMPERED,
            f"tally: {tally.weight:g} members are in a sum of {len(answers)}: a mask or a share was wrong",
            hint="the step is to be redone with new seeds",
        )
    return {entry.name: _numbers(entry.name, elements[entry.name], ring.plan, len(answers)) for entry in layout}


def _ring_layout(data: bytes, plan: RingPlan) -> Layout:
    layout = decode_tensors(data)[0]
    mask_shape(layout)
    names = {entry.name for entry in layout}
    if names != plan.entries.keys():
        raise invalid("arrays", sorted(names), "those that the step announced: " + ", ".join(sorted(plan.entries)))
    for entry in layout:
        if entry.dtype != f"U{plan.entries[entry.name].bits}":
            raise invalid(f"array {entry.name}", entry.dtype, f"a ring of {plan.entries[entry.name].bits} bits")
    return layout


def _one_layout(layouts: Mapping[str, Layout]) -> Layout:
    (first, layout), *others = sorted(layouts.items())
    for name, other in others:
        if other.entries != layout.entries:
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"the members' arrays do not fit each other: of {name}, {layout.difference(other) or 'their order'}, "
                f"as {first} has it",
                hint="do all sites have the same release of the datapod?",
            )
    return layout


def _unmasked(reader: Reader, ring: RingSum, layout: Layout, answers: list[bytes]) -> Arrays:
    """Ring elements of the sum, by array."""
    shape = mask_shape(layout)
    if shape.u48 or shape.u40 or shape.u16 or shape.u8:
        raise invalid("arrays", shape.in_words, "rings of 32 and 64 bits, as studies have")
    total = (np.zeros(shape.u64, "<u8"), np.zeros(shape.u32, "<u4"))
    for data in answers:
        for part, elements in zip(total, _parts(memoryview(data)[len(data) - shape.nbytes :], shape), strict=True):
            np.add(part, elements, out=part)
    summed = update_masks(ring)
    if ring.mode is MaskingMode.COMPENSATOR and not summed:
        raise invalid("sum.masks", None, "the sum of the masks, without which nothing can be unmasked")
    for name, ref in summed.items():
        masks, arrays = decode_tensors(reader.read(name, ref))
        if difference := total_layout(shape).difference(masks):
            raise HanseError(ErrorCode.INVALID_INPUT, f"{name}: {difference}")
        for part, elements in zip(total, (arrays["u64"], arrays["u32"]), strict=True):
            np.subtract(part, elements, out=part)
    residual = residual_of(ring)
    if residual is not None:
        residual.apply(total[0], 0)
        residual.apply(total[1], total[0].nbytes)
    found: Arrays = {}
    at = [0, 0]
    for entry in layout:
        kind = 0 if entry.dtype == "U64" else 1
        found[entry.name] = total[kind][at[kind] : at[kind] + entry.count].reshape(entry.shape)
        at[kind] += entry.count
    return found


def _parts(data: memoryview, shape: MaskShape) -> tuple[NDArray[Any], NDArray[Any]]:
    return (
        np.frombuffer(data, "<u8", shape.u64),
        np.frombuffer(data[8 * shape.u64 :], "<u4", shape.u32),
    )  # fmt: skip


def _numbers(name: str, elements: NDArray[Any], plan: RingPlan, members: int) -> NDArray[Any]:
    ring = plan.entries[name]
    signed = elements.view(_SIGNED[ring.bits])
    limit = int(largest_sum(ring, members))
    if signed.size and (int(signed.max()) > limit or int(signed.min()) < -limit):
        raise HanseError(
            ErrorCode.TAMPERED,
            f"array {name}: its sum exceeds what {members} members within +-{ring.bound:g} can have: somebody's mask "
            "or share was wrong",
            hint="nothing was made of it; the step is to be repeated under a new session",
        )
    return signed.astype(np.int64) if ring.fraction == 0 else decode(elements, ring)
