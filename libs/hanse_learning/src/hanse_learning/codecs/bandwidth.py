"""What a round costs by the formulas of Henkel (2021), corrected: the measure that measured bytes are held against.

The paper's equation 3.5 halves the bits of the mask with those of the values, and its tables count the mask of one
client; a bit that tells a place is a bit whatever the values have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hanse_learning.codecs.config import check_chain

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


def way_of(chain: Sequence[Mapping[str, Any]], *, field: str = "codec.up") -> Way | None:
    """What the formulas say of a job's chain; what packs without loss counts as nothing. None where they say nothing of
    one of its codecs.

    Raises:
        HanseError: as `check_chain`.
    """
    told: dict[str, float] = {}
    for config in check_chain(chain, field):
        way = {} if config.role == "pack" else config.way
        if way is None:
            return None
        told |= way
    return Way(**told)


def formula(sites: int, model: int, up: Way | None, down: Way | None) -> dict[str, int]:
    """Bytes of a round's models and updates by the formulas, to and from all sites (equations 3.1 to 3.5, corrected).

    Args:
        sites: that take part.
        model: bytes of the model in float32, all of which are taken for parameters.
    """
    ways = {"up": up, "down": down}
    return {name: round(sites * model * way.bits_each / FULL_BITS) for name, way in ways.items() if way is not None}


def factor(up: Way, down: Way) -> float:
    """Bits of a round over those of a plain one, where each participant is sent the model by itself (equations 3.1 to
    3.5, corrected)."""
    return (up.bits_each + down.bits_each) / (2 * FULL_BITS)


def saving(plain_rounds: int, rounds: int, by: float) -> float:
    """Percent of the plain run's bits that a run of `rounds` saves, each round costing `by` of a plain one; negative
    where it costs more."""
    return 100 * (1 - rounds * by / plain_rounds)
