"""The bytes of steps that have closed, as the operator sees them."""

from __future__ import annotations

from collections.abc import Iterable

from hanse_fabric.messages import ObjectRef
from hanse_fabric.telemetry.catalogue import STEP_BYTES
from hanse_workflows.outcomes import Answer


def count_bytes(sent: Iterable[ObjectRef | None], asked: int, answers: Iterable[Answer]) -> None:
    """Add a closed step to the totals that the operator sees, by what carries it: the bus, or the store."""
    rows = [("down", ref, asked) for ref in sent]
    for answer in answers:
        rows += [("up", ref, 1) for ref in (answer.update, answer.tally, *answer.extras.values())]
    for direction, ref, times in rows:
        if ref is not None:
            STEP_BYTES.add(ref.size * times, direction=direction, carrier="bus" if ref.key is None else "store")
