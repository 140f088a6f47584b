"""Masked update files: from a plain update's file, in one pass and bounded memory.

The data section is all 64-bit elements, then all of 48, 40, 32, 16 and 8 bits, each in the model's order (`Rule.RING`),
so a mask is described by six numbers. Counters keep their integers; a POOL_VARIANCE entry carries the raw second moment
var + mean^2, whose weighted mean less the squared mean of means is the variance of the pooled examples. Where a plan
has `signs`, one entry more has the sign of each parameter, in the model's order: neither weighted nor rotated, so that
their sum is a whole number that no rounding has touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import HanseError, invalid
from hanse_fabric.messages.masking import MaskShape, Ring, RingPlan
from hanse_fabric.store.files import whole_file
from hanse_fabric.tensors.digest import Digester
from hanse_fabric.tensors.file import read_tensors
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.masks.stream import Mask, MaskStream, Purpose
from hanse_privacy.ring.choice import Choice, chosen_pieces, sent_layout
from hanse_privacy.ring.codec import Uniforms, encode, uniforms
from hanse_privacy.ring.plan import check_plan, ring_of, weighted
from hanse_privacy.ring.rotation import RotatedParameters, Rotation
from hanse_privacy.ring.words import DTYPES, SIGNED, WIDTHS, wire_bytes

BLOCK = 1 << 15
"""Elements that are encoded at a time: they stay in a core's cache through every step."""

RESERVED = "*"
"""How names begin that a plan and a masked file have beside those of a model's entries: no such entry has one."""
SIGNS = f"{RESERVED}signs"
"""The entry of the parameters' signs, where a plan has them summed."""

Adjust = Callable[[NDArray[np.float64], int], NDArray[np.integer[Any]]]
"""Noise, in units of the parameters' ring: from a block of clipped values (unweighted) and the index of its first
element among all parameters of the file, integers of the block's shape, which are added modulo 2^bits."""


@dataclass(frozen=True, slots=True)
class MaskedFile:
    """What was written: its layout (`mask_shape` of it is the mask's), how many values were clipped, and the digest."""

    layout: Layout
    clipped: int
    digest: str
    leaves: tuple[str, ...]


def ring_layout(layout: Layout, plan: RingPlan) -> Layout:
    """The layout of masked updates of a model: its names and shapes, as ring elements; of chosen parameters those that
    are sent. With the parameters' signs behind, where they are summed.

    Raises:
        HanseError: as `check_names`.
    """
    check_names(layout)
    sent = layout if plan.chosen is None else sent_layout(layout, Choice(plan.chosen))
    entries = [Entry(entry.name, f"U{ring_of(plan, entry).bits}", entry.shape, Rule.RING) for entry in sent]
    if plan.signs is not None:
        entries.append(Entry(SIGNS, f"U{plan.signs}", (parameter_count(layout),), Rule.RING))
    return Layout.of(entries)


def check_names(layout: Layout) -> None:
    """Whoever chooses a model's names must not have one of its entries taken for what a plan alone asks for.

    Raises:
        HanseError: INVALID_INPUT for a model's entry of a reserved name.
    """
    for entry in layout:
        if entry.name.startswith(RESERVED):
            raise invalid(
                f"entry {entry.name}", entry.name, f"a name that a model's entry may have: none begins with {RESERVED}",
                hint="rename the entry",
            )  # fmt: skip


def parameter_count(layout: Layout) -> int:
    """How many parameters a model has."""
    return sum(entry.count for entry in layout if entry.rule is Rule.PARAMETER)


def mask_shape(layout: Layout) -> MaskShape:
    """The shape of the mask of a file of a ring layout.

    Raises:
        HanseError: INVALID_INPUT when it is no ring layout.
    """
    counts = dict.fromkeys(WIDTHS, 0)
    for entry in layout:
        if entry.rule is not Rule.RING:
            raise invalid(f"entry {entry.name}.rule", str(entry.rule), "a ring element's")
        counts[8 * entry.numpy.itemsize] += entry.count
    return MaskShape.of(counts)


def write_masked(
    source: Path,
    target: Path,
    plan: RingPlan,
    *,
    weight: int,
    seed: bytes | None,
    mask: Mask | None = None,
    adjust: Adjust | None = None,
    over: Path | None = None,
    wrap: bool = False,
    heavy: bool = False,
) -> MaskedFile:
    """Write the masked update of a plain one, whole or not at all, and flush it to the disk.

    Args:
        source: the update's tensor file.
        target: the masked one's path.
        plan: the task's rings.
        weight: of this participant, at most the plan's `largest_weight`; above it where `heavy`.
        seed: 32 bytes, of which the mask is made; None: no mask (mode `ring`), or
        mask: puts it on, where it is the sum of many (mode `pairwise`).
        adjust: makes noise that is added to the parameters' elements.
        over: an old file that is used up and may be overwritten (see `whole_file`).
        wrap: as of `codec.encode`.
        heavy: nobody learns from a `largest_weight` of their choice whose weight is beyond it. The sum is right where
            all weights together are at most so many times the largest.

    Raises:
        HanseError: INVALID_INPUT for a weight that is not in 0..largest_weight, a plan that can overflow, values that
            are not finite, or beyond a bound where the plan refuses them, naming the entry; as `check_names`; with
            noise, or chosen parameters, for one of another ring than the default, and with noise, for signs; NO_SPACE.
    """
    check_plan(plan)
    if adjust is not None:
        check_no_signs(plan)
    if weight < 0 or (weight > plan.largest_weight and not heavy):
        raise invalid(
            "weight", weight, f"at most the largest that was announced, {plan.largest_weight}",
            hint="the job's secure_aggregation.largest_weight must cover every site's examples",
        )  # fmt: skip
    layout, arrays = read_tensors(source)
    if adjust is not None or plan.chosen is not None:
        for entry in layout:
            check_common_ring(entry, plan)
    masked, sent = ring_layout(layout, plan), _Sent.of(layout, arrays, plan)
    writer = _Writer(plan, weight / plan.largest_weight, adjust, uniforms() if plan.stochastic else None, wrap)
    if seed is not None:
        mask = MaskStream(seed, Purpose.UPDATE).add_to
    digester, position = Digester(), 0
    with whole_file(target, over=over) as file:
        file.write(masked.header)
        digester.update(masked.header)
        for entry in masked:
            bits, end = 8 * entry.numpy.itemsize, position + entry.nbytes
            for elements in _elements_of(entry, sent, writer):
                if mask is not None:
                    mask(elements, position, bits)
                data = wire_bytes(elements, bits, writer.wire)
                file.write(data)
                digester.update(data)
                position += data.nbytes
            _check_counted(entry, position, end)
    return MaskedFile(masked, writer.clipped, *digester.result())


def clipped_parameters(source: Path, plan: RingPlan) -> Iterator[NDArray[np.float64]]:
    """The blocks of an update's parameters that `write_masked(adjust=...)` is given, in its order.

    Raises:
        HanseError: as `write_masked`, of what they hold.
    """
    layout, arrays = read_tensors(source)
    sent = _Sent.of(layout, arrays, plan)
    for entry in ring_layout(layout, plan):
        if not _has_signs(entry, plan) and sent.entries[entry.name].rule is Rule.PARAMETER:
            for block in sent.blocks(sent.entries[entry.name]):
                yield _clipped(block, plan.default)


@dataclass(frozen=True, slots=True)
class _Sent:
    """The numbers of an update that are sent, before they become ring elements.

    Attributes:
        layout, arrays: of the update.
        entries: that are sent, by name.
    """

    layout: Layout
    arrays: Mapping[str, NDArray[Any]]
    entries: Mapping[str, Entry]
    rotation: Rotation | None
    rotated: RotatedParameters | None
    choice: Choice | None

    @classmethod
    def of(cls, layout: Layout, arrays: Mapping[str, NDArray[Any]], plan: RingPlan) -> _Sent:
        choice = None if plan.chosen is None else Choice(plan.chosen)
        rotation = None if plan.rotation is None else Rotation(bytes.fromhex(plan.rotation))
        entries = {entry.name: entry for entry in (layout if choice is None else sent_layout(layout, choice))}
        rotated = None if rotation is None else RotatedParameters(layout, arrays, rotation)
        return cls(layout, arrays, entries, rotation, rotated, choice)

    def signs(self, bits: int) -> Iterator[NDArray[Any]]:
        """The signs of all parameters as ring elements, a block at a time: of the numbers as they are in the update."""
        for entry in self.layout:
            if entry.rule is Rule.PARAMETER:
                values = self.arrays[entry.name].reshape(-1)
                for start in range(0, values.size, BLOCK):
                    yield signs_of(values[start : start + BLOCK], bits)

    def blocks(self, entry: Entry) -> Iterator[NDArray[Any]]:
        """A sent entry's values, a block at a time, of parameters rotated and chosen where they are."""
        if self.choice is not None and entry.rule is Rule.PARAMETER:
            for piece in chosen_pieces(self.layout, self.arrays, entry.dtype, self.choice, self.rotation):
                yield from (piece[start : start + BLOCK] for start in range(0, piece.size, BLOCK))
            return
        values = self.arrays[entry.name].reshape(-1)
        means = self.arrays[entry.mean].reshape(-1) if entry.rule is Rule.POOL_VARIANCE and entry.mean else None
        for start in range(0, values.size, BLOCK):
            block = values[start : start + BLOCK]
            if self.rotated is not None and entry.rule is Rule.PARAMETER:
                block = self.rotated.values(entry, start, start + block.size)
            if means is not None:
                block = block.astype(np.float64) + means[start : start + BLOCK].astype(np.float64) ** 2
            yield block


def signs_of(values: NDArray[Any], bits: int) -> NDArray[Any]:
    """The signs of numbers as elements of a ring: -1, 0 or 1 modulo 2^bits."""
    signs = (values > 0).view(np.int8) - (values < 0).view(np.int8)
    return signs.astype(SIGNED[bits], copy=False).view(DTYPES[bits])


def _elements_of(entry: Entry, sent: _Sent, writer: _Writer) -> Iterator[NDArray[Any]]:
    """The ring elements of an entry of a masked file, before they are masked, a block at a time."""
    if _has_signs(entry, writer.plan):
        return sent.signs(8 * entry.numpy.itemsize)
    plain = sent.entries[entry.name]
    return writer.blocks(plain, sent.blocks(plain))


def _has_signs(entry: Entry, plan: RingPlan) -> bool:
    """Whether an entry of a masked file has the signs: the plan says it, not the name, which a model chooses."""
    return plan.signs is not None and entry.name == SIGNS


def _check_counted(entry: Entry, position: int, end: int) -> None:
    """Elements beyond an entry's own would be under no mask, for a mask has the layout's shape.

    Args:
        position, end: bytes of the data section that are written, and that the layout has up to the entry's end.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if position != end:
        raise invalid(f"masked entry {entry.name}", f"written up to byte {position}", f"as the layout says, {end}")


def _clipped(block: NDArray[Any], ring: Ring) -> NDArray[np.float64]:
    within: NDArray[np.float64] = np.clip(block.astype(np.float64), -ring.bound, ring.bound)
    return within


def check_no_signs(plan: RingPlan) -> None:
    """Noise is added to parameters, and their signs would tell what it hides.

    Raises:
        HanseError: INVALID_INPUT for a plan in which signs are summed.
    """
    if plan.signs is not None:
        raise invalid("ring.signs", plan.signs, "none, where noise is added to parameters: signs have none")


def check_common_ring(entry: Entry, plan: RingPlan) -> None:
    """Noise is drawn in steps of the default ring's grid: on a finer one it would be as much smaller than was charged.
    And parameters are chosen together, so they have one ring.

    Raises:
        HanseError: INVALID_INPUT for a parameter of another ring.
    """
    if entry.rule is Rule.PARAMETER and ring_of(plan, entry) != plan.default:
        raise invalid(
            f"ring.entries[{entry.name}]",
            "a ring of its own",
            "none, where noise is added to parameters, or some are chosen",
        )


@dataclass(slots=True)
class _Writer:
    plan: RingPlan
    factor: float
    adjust: Adjust | None
    rounding: Uniforms | None
    wrap: bool = False
    clipped: int = 0
    parameters: int = 0
    room: NDArray[np.float64] = field(default_factory=lambda: np.empty(BLOCK))
    wire: NDArray[np.uint8] = field(default_factory=lambda: np.empty(BLOCK * 8, np.uint8))

    def blocks(self, entry: Entry, values: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        ring = ring_of(self.plan, entry)
        factor = self.factor if weighted(entry) else 1.0
        for block in values:
            yield self._encoded(entry, block, ring, factor)

    def _encoded(self, entry: Entry, block: NDArray[Any], ring: Ring, factor: float) -> NDArray[Any]:
        refuse = self.plan.refuse_out_of_range
        try:
            elements, clipped = encode(
                block, ring, factor=factor, stochastic=self.rounding, refuse=refuse, wrap=self.wrap, room=self.room,
                summed=self.plan.total is not None,
            )  # fmt: skip
        except HanseError as error:
            raise HanseError(error.code, f"entry {entry.name}: {error.message}", hint=error.hint) from None
        self.clipped += clipped
        if entry.rule is Rule.PARAMETER and self.adjust is not None:
            noise = self.adjust(_clipped(block, ring), self.parameters)
            # Lower bits of two's complement: the residue modulo 2^bits, of negative noise, too.
            elements += noise.astype(np.int64).view(np.uint64).astype(elements.dtype)
        if entry.rule is Rule.PARAMETER:
            self.parameters += block.size
        return elements
