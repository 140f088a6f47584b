"""The recovered seeds of a sum as bytes: what the coordinator hands the aggregator in `RingSum.recovery`.

magic "hanse-pairwise-1", then two big-endian 32-bit numbers: seeds to subtract, seeds to add; then the seeds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from hanse_fabric.errors import invalid

_HEAD = struct.Struct(">16sII")
_MAGIC = b"hanse-pairwise-1"
_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seeds of masks that are left in a sum: to take off, and to put back where they were subtracted."""

    subtract: tuple[bytes, ...] = field(repr=False)
    add: tuple[bytes, ...] = field(repr=False)


def encode_recovery(recovery: Recovery) -> bytes:
    """24 bytes, and 32 for each seed."""
    head = _HEAD.pack(_MAGIC, len(recovery.subtract), len(recovery.add))
    return head + b"".join(recovery.subtract + recovery.add)


def decode_recovery(data: bytes) -> Recovery:
    """Read what `encode_recovery` made.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise invalid("recovery", f"{len(data)} bytes", "the recovered seeds of a pairwise sum")
    _, subtract, add = _HEAD.unpack_from(data)
    if len(data) != _HEAD.size + _SEED_BYTES * (subtract + add):
        raise invalid("recovery", f"{len(data)} bytes", f"{subtract + add} seeds, as it says itself")
    seeds = [data[at : at + _SEED_BYTES] for at in range(_HEAD.size, len(data), _SEED_BYTES)]
    return Recovery(tuple(seeds[:subtract]), tuple(seeds[subtract:]))
