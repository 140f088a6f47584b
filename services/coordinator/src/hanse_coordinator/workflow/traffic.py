"""Bytes that a round's models and updates have, as tasks and answers name them. Pure, so that replays count the same.

A site that has an object already does not fetch it again, and messages, keys and sums inside a step are not counted:
it is what the algorithm needs to send, the measure by which algorithms are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hanse_coordinator.workflow.outcomes import Answer
from hanse_fabric.messages import ObjectRef


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes between the hub and all sites together.

    Attributes:
        down: models, and what the algorithm sends beside them, once for each site that was asked.
        up: updates, masked tallies, and what the algorithm answers beside them, of those whose answers were taken.
    """

    down: int = 0
    up: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.down + other.down, self.up + other.up)

    def body(self) -> dict[str, int]:
        """As it stands in events."""
        return {"down": self.down, "up": self.up}


def traffic(sent: Iterable[ObjectRef | None], asked: int, answers: Iterable[Answer]) -> Traffic:
    """Of one gathered step.

    Args:
        sent: what each task names.
        asked: how many sites were sent it.
    """
    up = sum(_size(answer.update) + _size(answer.tally) + _sizes(answer.extras.values()) for answer in answers)
    return Traffic(down=asked * _sizes(sent), up=up)


def _sizes(refs: Iterable[ObjectRef | None]) -> int:
    return sum(_size(ref) for ref in refs)


def _size(ref: ObjectRef | None) -> int:
    return 0 if ref is None else ref.size
