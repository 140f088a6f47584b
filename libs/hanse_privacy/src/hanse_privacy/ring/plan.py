"""Which ring each entry of a model is summed in, such that no sum can overflow. No numpy here: the hub plans, too.

A number x with |x| <= bound becomes the integer nearest to s * x * 2^fraction (or, at random, one of its two
neighbours), where s = weight / largest_weight <= 1: an element of Z_2^bits in two's complement. Its magnitude is at
most bound * 2^fraction + 1: clipping, and scaling by s <= 1 and by a power of two, stay monotone when they are rounded
to float64, and rounding to a neighbour adds less than 1. So with
    participants * (bound * 2^fraction + 1) + tail * 2^fraction <= 2^(bits-1) - 1                                  (1)
the sum over all participants, and noise of magnitude at most the ring's `tail`, lies within the signed range: it
cannot overflow, and is read back right whatever wraps on the way. Where all weights together are known not to exceed
`total`, total / largest_weight stands in (1) for the participants that are multiplied by the bound: what one number
alone would need is of no account then, for it is read modulo 2^bits with all others (`packed_ring`). `make_plan` takes
the largest fraction that meets (1), and `check_plan` checks (1) in exact arithmetic, also at the site, before anything
is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.messages.masking import Ring, RingPlan
from hanse_schemas.secure_aggregation import LARGEST_WEIGHT, SecureAggregation

if TYPE_CHECKING:  # the layout loads numpy
    from hanse_fabric.tensors.layout import Entry, Rule

AVERAGE, POOL_VARIANCE, INTEGER = "*average", "*pool_variance", "*integer"
"""Keys in `RingPlan.entries` for buffers by their rule, which the hub does not know by name."""

MOST_FRACTION = {8: 24, 16: 24, 32: 24, 40: 40, 48: 40, 64: 40}
"""Fraction bits beyond which a float32 has nothing to say."""
LEAST_FRACTION = 4
LEAST_LEVELS = 4
"""Of rings of 8 and 16 bits, in place of LEAST_FRACTION: steps from zero to the bound."""
_WIDER = {8: 16, 16: 32, 32: 64, 48: 64}
FINEST_ERROR = Fraction(1, 1 << 31)
"""By which rounding in a packed ring may move a mean: a float32 of 1 is rounded by a hundred times as much."""
METRIC_BITS = 20
"""Metrics within +-2^20 are summed unclipped, unless weights are so large that this does not fit."""

_KEYS = {"average": AVERAGE, "pool_variance": POOL_VARIANCE, "keep_newest": INTEGER}


def make_plan(
    settings: SecureAggregation,
    *,
    participants: int,
    weighting: str,
    rules: Mapping[str, Rule] | None = None,
    tail: float = 0.0,
    packed: bool = True,
    total: int | None = None,
) -> RingPlan:
    """The rings of a round, chosen as exact as (1) lets them be.

    Args:
        settings: the job's `secure_aggregation`.
        participants: the largest number of summands.
        weighting: the job's: "examples" or "uniform".
        rules: of entries by name, where they are known; the plan serves every rule without them.
        tail: magnitude that noise in the sum of a parameter does not exceed (`noise.aggregate.noise_tail`).
        packed: as in `ring_bits`.
        total: what all weights together are known not to exceed.

    Raises:
        HanseError: INVALID_INPUT when the ring is too small for so many participants and such a bound, or when examples
            are weights and the largest weight is 1.
    """
    by_examples = weighting == "examples"
    if by_examples and settings.largest_weight == 1:
        raise invalid(
            "secure_aggregation.largest_weight", 1, "at least 2 where examples are weights",
            hint="weighting: uniform gives every site the weight 1",
        )  # fmt: skip
    bits = ring_bits(settings, weighting, participants, packed=packed)
    buffers = _ring(64, settings.buffer_bound, participants, 0.0, "buffer_bound")
    entries = {
        AVERAGE: buffers,
        POOL_VARIANCE: buffers,
        INTEGER: whole_numbers(participants),
    }
    for name, rule in (rules or {}).items():
        if str(rule) in _KEYS:
            entries[name] = entries[_KEYS[str(rule)]]
    largest = (settings.largest_weight or LARGEST_WEIGHT) if by_examples else 1
    narrow = None
    if settings.bits is None and packed and total and not tail:
        narrow = packed_ring(settings.bound, participants, largest, total, below=bits)
    plan = RingPlan(
        participants=participants,
        largest_weight=largest,
        default=narrow or _ring(bits, settings.bound, participants, tail, "bound"),
        total=narrow and largest_total(narrow, participants, largest),
        entries=entries,
        metrics=settings.metrics,
        stochastic=settings.rounding == "stochastic",
        refuse_out_of_range=settings.out_of_range == "refuse",
    )
    check_plan(plan)
    return plan


def sign_bits(participants: int) -> Literal[8, 16, 32]:
    """The narrowest ring that holds the sum of so many signs: each is -1, 0 or 1, exactly and without a weight."""
    if participants <= capacity(8):
        return 8
    return 16 if participants <= capacity(16) else 32


@lru_cache(128)
def whole_numbers(participants: int) -> Ring:
    """The ring of counters, as wide as the sum of so many allows: it cuts none that there is."""
    return Ring(bits=64, fraction=0, bound=2.0 ** (62 - participants.bit_length()))


def ring_bits(
    settings: SecureAggregation, weighting: str, participants: int, *, packed: bool = True
) -> Literal[8, 16, 32, 48, 64]:
    """Bits of a parameter's ring; `weighting` and `participants` as in `make_plan`.

    Where 48 hold as many fraction bits as 64, the two have the same sums, bit for bit: these 16 only repeat the sign.

    Args:
        packed: whether the participants know 48 bits; those of release 0.1.0 do not.
    """
    if settings.bits is not None:
        return settings.bits
    if weighting != "examples" or settings.largest_weight is not None:
        return 32
    finest = Ring(bits=48, fraction=MOST_FRACTION[64], bound=settings.bound)
    return 48 if packed and largest_sum(finest, participants) <= capacity(48) else 64


def packed_ring(bound: float, participants: int, largest_weight: int, total: int, *, below: int) -> Ring | None:
    """The narrowest ring, of 40 or 48 bits and fewer than `below`, for weights that are together `total`, or by growing
    data twice that. It has the sums of 64 bits, bit for bit, or rounds no mean by more than `FINEST_ERROR`; None: there
    is none."""
    weights = Fraction(2 * total, largest_weight)
    for bits in (40, 48):
        for fraction in range(MOST_FRACTION[bits], LEAST_FRACTION - 1, -1):
            ring = Ring(bits=bits, fraction=fraction, bound=bound)
            if bits < below and largest_sum(ring, participants, weights=weights) <= capacity(bits):
                error = Fraction(participants * largest_weight, total << (fraction + 1))
                if fraction == MOST_FRACTION[64] or error <= FINEST_ERROR:
                    return ring
                break
    return None


def largest_total(ring: Ring, participants: int, largest_weight: int) -> int:
    """What all weights together may be, that the sum fits a ring."""
    room = Fraction(capacity(ring.bits) - participants) / (Fraction(ring.bound) * (1 << ring.fraction))
    return min(participants * largest_weight, int(room * largest_weight))


def check_plan(plan: RingPlan) -> None:
    """Check that no sum of a plan can overflow: (1), for every ring, weights, metrics and signs. And that no
    ring rounds every value to nothing, so that the sum would be of those who have another.

    Raises:
        HanseError: INVALID_INPUT naming the ring and the numbers.
    """
    if plan.signs is not None and plan.participants > capacity(plan.signs):
        raise invalid(
            "ring.signs", plan.signs, f"{sign_bits(plan.participants)} bits, for {plan.participants} participants"
        )
    if plan.signs is not None and plan.chosen is not None:
        raise invalid("ring.signs", plan.signs, "none, where a part of the parameters is summed")
    for name, ring in {"default": plan.default, **plan.entries}.items():
        if ring.bound * 2.0**ring.fraction < 1:
            raise invalid(
                f"ring.{name}.bound", ring.bound, f"{2.0**-ring.fraction:g} or more, which is one step of the ring"
            )
        together = None if plan.total is None or name != "default" else Fraction(plan.total, plan.largest_weight)
        if largest_sum(ring, plan.participants, weights=together) > capacity(ring.bits):
            raise HanseError(
                ErrorCode.INVALID_INPUT,
                f"ring.{name}: {plan.participants} participants within +-{ring.bound:g} at {ring.fraction} fraction "
                f"bits overflow a ring of {ring.bits} bits",
                hint="a ring of 64 bits, a smaller bound or fewer fraction bits are needed",
            )
    if plan.participants * plan.largest_weight > capacity(64):
        raise invalid("ring.largest_weight", plan.largest_weight, f"small enough for {plan.participants} participants")


@lru_cache(1024)  # a site asks it of each ring of a plan, before and after its work, and of the next round's the same
def largest_sum(
    ring: Ring, participants: int, *, tail: float | None = None, weights: Fraction | None = None
) -> Fraction:
    """The left side of (1): the largest magnitude that a sum can have, in units of 2^-fraction.

    Args:
        tail: of the noise in the sum, where it is not the ring's own.
        weights: what all weights together are, in largest ones; None: as many as participants.
    """
    scale = 1 << ring.fraction
    values = (participants if weights is None else weights) * Fraction(ring.bound) * scale + participants
    return values + Fraction(ring.tail if tail is None else tail) * scale


def capacity(bits: int) -> int:
    """The largest magnitude that Z_2^bits holds with a sign."""
    return (1 << (bits - 1)) - 1


def ring_of(plan: RingPlan, entry: Entry) -> Ring:
    """The ring of a model's entry: by name, else by its buffer's rule, else the default.

    Floats that are kept newest are averaged without weights, so they have the averages' ring.

    Raises:
        HanseError: INVALID_INPUT when the plan has no ring for a buffer's rule.
    """
    if entry.name in plan.entries:
        return plan.entries[entry.name]
    key = _KEYS.get(str(entry.rule))
    if key is None:
        return plan.default
    if key == INTEGER and entry.dtype.startswith("F"):
        key = AVERAGE
    if key not in plan.entries:
        raise invalid(f"ring.entries[{key}]", None, f"a ring for entry {entry.name}")
    return plan.entries[key]


def weighted(entry: Entry) -> bool:
    """Whether an entry is multiplied by the participant's weight; buffers that are kept newest are not."""
    return str(entry.rule) != "keep_newest"


def metric_ring(plan: RingPlan) -> Ring:
    """The ring of weight * metric in the tally: bound is the metric's, the weight is up to `largest_weight`.

    participants * (largest_weight * bound * 2^fraction + 1) < 2^62 by the count of their bits. The mean of a metric is
    off by at most 2^-(fraction+1) / mean weight.
    """
    room = max(0, 61 - plan.participants.bit_length() - plan.largest_weight.bit_length())
    fraction = max(0, min(30, room - METRIC_BITS))
    return Ring(bits=64, fraction=fraction, bound=2.0 ** min(METRIC_BITS, room))


def _ring(bits: Literal[8, 16, 32, 48, 64], bound: float, participants: int, tail: float, field: str) -> Ring:
    narrow = bits < 32
    for fraction in range(MOST_FRACTION[bits], -1 if narrow else LEAST_FRACTION - 1, -1):
        ring = Ring(bits=bits, fraction=fraction, bound=bound, tail=tail)
        if narrow and bound * 2.0**fraction < LEAST_LEVELS:
            break
        if largest_sum(ring, participants) <= capacity(bits):
            return ring
    noise = f" with noise up to {tail:g}" if tail else ""
    raise HanseError(
        ErrorCode.INVALID_INPUT,
        f"secure_aggregation.{field}: sums of {participants} participants within +-{bound:g}{noise} do not fit a ring "
        f"of {bits} bits with {f'{LEAST_LEVELS} steps up to it' if narrow else f'{LEAST_FRACTION} fraction bits'}",
        hint="a smaller bound is needed"
        if bits == 64
        else f"bits: {_WIDER[bits]}" + ("" if narrow else ", or a smaller bound"),
    )
