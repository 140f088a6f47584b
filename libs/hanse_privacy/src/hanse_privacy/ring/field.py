"""The field of integers modulo p = 2^54 - 33, the largest prime below 2^54 (Nasirigerdeh et al., 2022).

Negative numbers are p + x. Sums are reduced after every addition, so that the number of participants is limited by
p alone (participants * (bound * 2^fraction + 1) <= (p - 1) / 2) and not by the 1,024 elements that 64 bits hold.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_fabric.messages.masking import Ring
from hanse_privacy.ring import codec
from hanse_privacy.ring.group import RandomBytes
from hanse_privacy.ring.plan import largest_sum

MODULUS = 2**54 - 33
_P = np.uint64(MODULUS)


@dataclass(frozen=True, slots=True)
class PrimeField:
    """Z_p for p = 2^54 - 33; elements are uint64 below p."""

    @property
    def modulus(self) -> int:
        return MODULUS

    def random(self, count: int, source: RandomBytes = os.urandom) -> NDArray[Any]:
        drawn = np.empty(0, dtype=np.uint64)
        while drawn.size < count:
            # 54 bits each; the 33 values in 2^54 above p - 1 are drawn again, so that the rest stay uniform.
            words = np.frombuffer(source(8 * (count - drawn.size)), dtype="<u8") >> np.uint64(10)
            drawn = np.concatenate([drawn, words[words < _P]])
        return drawn

    def add(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        return (_checked(a) + _checked(b)) % _P

    def subtract(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        return (_checked(a) + (_P - _checked(b))) % _P

    def encode(self, values: NDArray[Any], ring: Ring, *, factor: float = 1.0) -> NDArray[Any]:
        if not self.holds(ring, 1):
            raise invalid("ring.fraction", ring.fraction, f"small enough for +-{ring.bound:g} modulo 2^54 - 33")
        integers, _ = codec.to_integers(values, ring, factor=factor, stochastic=None, refuse=False)
        return np.where(integers < 0, integers + MODULUS, integers).astype(np.uint64)

    def decode(self, total: NDArray[Any], ring: Ring) -> NDArray[np.float64]:
        signed = _checked(total).astype(np.int64)
        signed = np.where(signed > MODULUS // 2, signed - MODULUS, signed)
        return np.multiply(signed, 2.0**-ring.fraction, dtype=np.float64)

    def holds(self, ring: Ring, participants: int) -> bool:
        return largest_sum(ring, participants) <= MODULUS // 2


def _checked(elements: NDArray[Any]) -> NDArray[np.uint64]:
    if elements.dtype != np.uint64 or (elements.size and int(elements.max()) >= MODULUS):
        raise invalid("elements", str(elements.dtype), "uint64 below 2^54 - 33")
    return elements
