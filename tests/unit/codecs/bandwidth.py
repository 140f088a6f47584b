"""What a round costs by the formulas of Henkel (2021), corrected: the measure that measured bytes are held against.

The paper's equation 3.5 halves the bits of the mask with those of the values, and its tables count the mask of one
client; a bit that tells a place is a bit whatever the values have.
"""

from __future__ import annotations

from dataclasses import dataclass

FULL_BITS = 32


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a round.

    Attributes:
        sent: share of the parameters that are sent.
        bits: of a value that is sent.
        place_bits: for each parameter, to tell which are sent: 1 for a bitmap, 0 where all are, or the seed says which.
    """

    sent: float = 1.0
    bits: float = FULL_BITS
    place_bits: float = 0.0

    @property
    def bits_each(self) -> float:
        """Bits for each parameter of the model."""
        return self.sent * self.bits + self.place_bits


def factor(up: Way, down: Way) -> float:
    """Bits of a round over those of a plain one, where each participant is sent the model by itself (equations 3.1 to
    3.5, corrected)."""
    return (up.bits_each + down.bits_each) / (2 * FULL_BITS)


def saving(plain_rounds: int, rounds: int, by: float) -> float:
    """Percent of the plain run's bits that a run of `rounds` saves, each round costing `by` of a plain one; negative
    where it costs more."""
    return 100 * (1 - rounds * by / plain_rounds)
