"""How large an answer may be: what a site may upload, and what an answer may refer to."""

from __future__ import annotations

from hanse_fabric.messages import Masking, ObjectRef

_SLACK = 64 << 10


def largest_update(model: ObjectRef | None, masking: Masking | None, largest_model: int) -> int:
    """Bytes that an update to `model` may have; `largest_model` where it is the first model itself. Pure.

    A ring of 64 bits doubles numbers of 32.
    """
    if model is None:
        return largest_model
    plan = None if masking is None else masking.ring
    wide = plan is not None and any(ring.bits == 64 for ring in (plan.default, *plan.entries.values()))
    return model.size * 11 // 10 * (2 if wide else 1) + _SLACK
