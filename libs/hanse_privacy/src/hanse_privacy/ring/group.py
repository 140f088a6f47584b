"""The groups that numbers are summed in: Z_2^32, Z_2^64 and, for compatibility, a prime field, behind one interface."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.messages.masking import Ring
from hanse_privacy.ring import codec
from hanse_privacy.ring.plan import capacity, largest_sum

RandomBytes = Callable[[int], bytes]


class Group(Protocol):
    """A finite group of integers, in which a uniform element N hides any other M: I(M; M + N) = 0."""

    @property
    def modulus(self) -> int: ...

    def random(self, count: int, source: RandomBytes = os.urandom) -> NDArray[Any]:
        """Uniform elements (count,) from a CSPRNG's bytes."""

    def add(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """a + b modulo the modulus."""

    def subtract(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        """a - b modulo the modulus."""

    def encode(self, values: NDArray[Any], ring: Ring, *, factor: float = 1.0) -> NDArray[Any]:
        """Elements of numbers, clipped to the ring's bound, in units of 2^-fraction."""

    def decode(self, total: NDArray[Any], ring: Ring) -> NDArray[np.float64]:
        """The numbers that elements stand for."""

    def holds(self, ring: Ring, participants: int) -> bool:
        """Whether sums of so many participants cannot overflow."""


@dataclass(frozen=True, slots=True)
class PowerRing:
    """Z_2^bits: numpy's own wrap-around, in two's complement."""

    bits: Literal[32, 64]

    @property
    def modulus(self) -> int:
        return 1 << self.bits

    def random(self, count: int, source: RandomBytes = os.urandom) -> NDArray[Any]:
        dtype = codec.DTYPES[self.bits]
        return np.frombuffer(source(count * dtype.itemsize), dtype=dtype)

    def add(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        total: NDArray[Any] = np.add(a, b)
        return total

    def subtract(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        difference: NDArray[Any] = np.subtract(a, b)
        return difference

    def encode(self, values: NDArray[Any], ring: Ring, *, factor: float = 1.0) -> NDArray[Any]:
        return codec.encode(values, ring.model_copy(update={"bits": self.bits}), factor=factor)[0]

    def decode(self, total: NDArray[Any], ring: Ring) -> NDArray[np.float64]:
        return codec.decode(total, ring.model_copy(update={"bits": self.bits}))

    def holds(self, ring: Ring, participants: int) -> bool:
        return largest_sum(ring, participants) <= capacity(self.bits)
