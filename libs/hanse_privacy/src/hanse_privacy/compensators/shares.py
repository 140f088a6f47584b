"""A mask as a sum of keystreams, of which each compensator is given the seeds of some (replicated secret sharing)."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from hanse_fabric.errors import invalid
from hanse_fabric.messages.masking import MOST_COMPENSATORS

_SEED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which seeds each of `count` compensators holds, such that `needed` of them have all.

    Attributes:
        needed: k, more than half of them.
        count: n.

    Raises:
        HanseError: INVALID_INPUT unless 2 <= k <= n <= 7 and 2k > n.
    """

    needed: int
    count: int

    def __post_init__(self) -> None:
        if not 2 <= self.count <= MOST_COMPENSATORS:
            raise invalid("compensators", self.count, f"2 to {MOST_COMPENSATORS} of them")
        if not 2 <= self.needed <= self.count:
            raise invalid("needed", self.needed, f"2 to {self.count}, the number of compensators")
        if 2 * self.needed <= self.count:
            raise invalid(
                "needed", self.needed, f"more than half of {self.count} compensators",
                hint="two halves could sum different sets, whose difference tells of single sites",
            )  # fmt: skip

    @property
    def holders(self) -> tuple[tuple[int, ...], ...]:
        """Who holds each seed: all choices of n - k + 1 compensators, by their places from 0."""
        return tuple(combinations(range(self.count), self.count - self.needed + 1))

    def held_by(self, place: int) -> tuple[int, ...]:
        """Which seeds the compensator at a place holds, in order."""
        return tuple(index for index, holders in enumerate(self.holders) if place in holders)

    def dealt(self, there: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Which seeds each of those who are there sums: every seed once, about as many each.

        Raises:
            HanseError: INVALID_INPUT for fewer than are needed.
        """
        present = sorted(set(there) & set(range(self.count)))
        if len(present) < self.needed:
            raise invalid("there", len(present), f"at least {self.needed} of the compensators")
        dealt: dict[int, list[int]] = {place: [] for place in present}
        for index, holders in enumerate(self.holders):
            least = min((place for place in holders if place in dealt), key=lambda place: (len(dealt[place]), place))
            dealt[least].append(index)
        return {place: tuple(indices) for place, indices in dealt.items()}


def draw_seeds(sharing: Sharing) -> tuple[bytes, ...]:
    """New seeds, 32 bytes for each of `sharing.holders`, from the system's randomness."""
    return tuple(secrets.token_bytes(_SEED_BYTES) for _ in sharing.holders)
