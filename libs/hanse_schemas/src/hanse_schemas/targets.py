"""What it took to reach a target: the first round that met it, and what had been sent by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hanse_fabric.errors import invalid


@dataclass(frozen=True, slots=True)
class Reached:
    """The first round that met a target, and what had been sent by then.

    Attributes:
        round: from 1.
        bytes: up and down together, through that round.
    """

    round: int
    bytes: int


def reached(
    values: Sequence[float | None],
    target: float,
    *,
    larger_is_better: bool = True,
    round_bytes: Sequence[int] | int = 0,
) -> Reached | None:
    """When a metric first met a target; None: not reached.

    Args:
        values: by round, from the first; None where it was not measured.
        round_bytes: sent in each round, up and down; one number if all are alike.

    Raises:
        HanseError: INVALID_INPUT where the bytes are not of as many rounds.
    """
    sizes = [round_bytes] * len(values) if isinstance(round_bytes, int) else list(round_bytes)
    if len(sizes) != len(values):
        raise invalid("round_bytes", len(sizes), f"one number, or {len(values)}, one for each round")
    sent = 0
    for number, (value, size) in enumerate(zip(values, sizes, strict=True), start=1):
        sent += size
        if value is not None and (value >= target if larger_is_better else value <= target):
            return Reached(number, sent)
    return None
