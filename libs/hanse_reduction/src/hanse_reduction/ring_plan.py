"""What a masked sum knows before the first leaf: where each run of the model's elements lies in the masked updates, how
sums of ring elements become numbers, and what is subtracted from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages import RingPlan
from hanse_fabric.messages.masking import Ring
from hanse_fabric.messages.reduction_jobs import Tally
from hanse_fabric.tensors.layout import Entry, Layout, Rule
from hanse_privacy.masks.total import total_layout
from hanse_privacy.pairwise.streams import Masks
from hanse_privacy.ring.choice import Choice
from hanse_privacy.ring.files import SIGNS, check_common_ring, mask_shape, ring_layout
from hanse_privacy.ring.plan import largest_sum, ring_of, weighted
from hanse_privacy.ring.rotation import Rotation
from hanse_privacy.ring.words import WIDTHS
from hanse_reduction.sources import Input

_SLACK = 1 + Fraction(1, 1 << 40)
"""Sites multiply by their weight in float64."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Elements of one dtype, rule and ring that are adjacent in the model and in the masked updates.

    Attributes:
        start, stop: bytes of the model's file.
        first: where they begin in the data section of an update (bytes).
        dtype, rule: of the model's entries.
        ring: what the elements mean.
        limit: the largest magnitude of a sum (ring units); a larger one comes of a wrong mask.
        factor: what a sum (ring units) is multiplied by: the mean over the participants.
        means: what `first` is for the means that belong to variances; `means_factor` is their factor.
        choice: of parameters, which of them are sent; None: all.
        signs: of parameters whose signs are summed, what `first` is for these; `sign_bits`: of the signs' ring.
    """

    start: int
    stop: int
    first: int
    dtype: str
    rule: Rule
    ring: Ring
    limit: int
    factor: float
    means: int | None = None
    means_factor: float = 0.0
    choice: Choice | None = None
    signs: int | None = None
    sign_bits: int = 8

    @property
    def width(self) -> int:
        """Bytes of a ring element."""
        return WIDTHS[self.ring.bits]

    def at(self, byte: int, itemsize: int) -> int:
        """The byte of an update's data section that belongs to byte `byte` of the model's file, which of chosen
        parameters is where a piece begins or ends."""
        if self.choice is not None:
            return self.first + self.choice.before(self.start, byte, itemsize) * self.width
        return self.first + (byte - self.start) // itemsize * self.width

    def signs_at(self, byte: int, itemsize: int) -> int | None:
        """The byte of an update's data section that has the sign of the parameter at byte `byte` of the model's file;
        None where signs are not summed."""
        return None if self.signs is None else self.signs + (byte - self.start) // itemsize * WIDTHS[self.sign_bits]

    def continued_by(self, other: Stretch, itemsize: int) -> bool:
        """Whether `other` follows at once, in both files, and is of one kind with this."""
        shift = self.at(self.stop, itemsize) - self.first
        return (
            self.stop == other.start
            and self.first + shift == other.first
            and (None if self.means is None else self.means + shift) == other.means
            and self.signs_at(self.stop, itemsize) == other.signs
            and replace(
                other, start=self.start, stop=self.stop, first=self.first, means=self.means, signs=self.signs
            ) == self
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subtrahend:
    """A sum of masks or of noise in a tensor file whose data section is laid out as the updates' are."""

    name: str
    data: Input
    data_start: int


@dataclass(frozen=True, slots=True)
class MaskedSum:
    """How masked updates become a change of the model.

    Attributes:
        layout: of the masked updates.
        stretches: of the whole model, in its order.
        subtracted: sums of masks and of noise.
        residual: of a pairwise sum, the masks that the recovered secrets take off.
        rotation: of the parameters, which the sum is turned back by; None: they are as they are.
        tally: of all participants.
    """

    layout: Layout
    stretches: tuple[Stretch, ...]
    subtracted: tuple[Subtrahend, ...]
    participants: int
    tally: Tally | None
    residual: Masks | None = None
    rotation: Rotation | None = None

    def between(self, start: int, stop: int) -> Iterator[tuple[Stretch, int, int]]:
        """The stretches within bytes [start, stop) of the model's file, with what of them lies there."""
        for stretch in self.stretches:
            if stretch.start < stop and start < stretch.stop:
                yield stretch, max(start, stretch.start), min(stop, stretch.stop)


def stretches_of(model: Layout, plan: RingPlan, *, participants: int, weight: float) -> tuple[Stretch, ...]:
    """The stretches of a model's layout.

    Args:
        participants: the summands.
        weight: the sum of their weights.
    """
    ring = ring_layout(model, plan)
    starts = {name: offset - ring.data_start for name, offset in ring.offsets.items()}
    choice = None if plan.chosen is None else Choice(plan.chosen)
    signs = starts.get(SIGNS)
    entries = {entry.name: entry for entry in model}
    found: list[Stretch] = []
    for entry in model:
        if not entry.nbytes:
            continue
        if choice is not None and entry.rule is Rule.PARAMETER:
            check_common_ring(entry, plan)
            if entry.name not in starts:  # it is sent with the first of its dtype
                found[-1] = replace(found[-1], stop=found[-1].stop + entry.nbytes)
                continue
        made = _stretch(entry, model.offsets[entry.name], starts, plan, participants, weight)
        if choice is not None and entry.rule is Rule.PARAMETER:
            found.append(replace(made, choice=choice))
            continue
        if signs is not None and plan.signs is not None and entry.rule is Rule.PARAMETER:
            made = replace(made, signs=signs, sign_bits=plan.signs)
            signs += entry.count * WIDTHS[plan.signs]
        if plan.rotation is not None and entry.rule is Rule.PARAMETER and made.ring != plan.default:
            raise invalid(f"ring.entries[{entry.name}]", "a ring of its own", "none: parameters are rotated together")
        if entry.rule is Rule.POOL_VARIANCE and entry.mean is not None:
            means = ring_of(plan, entries[entry.mean])
            if means.bits != made.ring.bits:
                raise invalid(f"ring of {entry.mean}", means.bits, f"{made.ring.bits} bits, as its variance has")
            made = replace(made, means=starts[entry.mean], means_factor=_factor(plan, means, weight))
        if found and found[-1].continued_by(made, entry.numpy.itemsize):
            found[-1] = replace(found[-1], stop=made.stop)
        else:
            found.append(made)
    return tuple(found)


def _stretch(
    entry: Entry, start: int, starts: dict[str, int], plan: RingPlan, participants: int, weight: float
) -> Stretch:
    ring = ring_of(plan, entry)
    if weighted(entry):
        factor = _factor(plan, ring, weight)
        # Each is clipped before it is weighted, and rounded by less than a unit after it.
        within = Fraction(weight) / plan.largest_weight * Fraction(ring.bound) + Fraction(ring.tail)
        limit = within * (1 << ring.fraction) * _SLACK + participants
    else:
        factor = math.ldexp(1 / participants, -ring.fraction)
        limit = largest_sum(ring, participants, tail=ring.tail)
    return Stretch(
        start=start, stop=start + entry.nbytes, first=starts[entry.name], dtype=entry.dtype, rule=entry.rule,
        ring=ring, limit=math.floor(limit), factor=factor,
    )  # fmt: skip


def _factor(plan: RingPlan, ring: Ring, weight: float) -> float:
    """Sites send weight/largest_weight * x * 2^fraction; what is wanted is the weighted mean of x."""
    return math.ldexp(plan.largest_weight / weight, -ring.fraction)


def open_subtrahend(name: str, data: Input, updates: Layout) -> Subtrahend:
    """Check that a sum of masks is as large as the updates are.

    Raises:
        HanseError: INVALID_INPUT when it is of another shape, TAMPERED when its bytes are not what was announced.
    """
    expected = total_layout(mask_shape(updates))
    data.check_size()
    if data.ref.size != expected.size or data.read(0, expected.data_start) != expected.header:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{name}: {data.ref.size} bytes that are not laid out for these updates, {expected.size} were expected",
            hint="the compensator must have summed masks of the shape that the sites announced",
        )
    return Subtrahend(name, data, expected.data_start)
