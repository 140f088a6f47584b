"""What a codec is, by its role. Arrays are flat, of the entry's dtype (float16, float32 or float64)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hanse_learning.codecs.bytes_in import BytesIn

Values = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
Raw = NDArray[np.uint64]


class Draw(Protocol):
    """Random bits, the same at every call and for the same task."""

    def __call__(self, n: int) -> Raw:
        """`n` numbers of 64 bits."""
        ...


class Sparsifier(Protocol):
    """Chooses what is sent of an entry; the rest is zero for who receives it.

    Attributes:
        seeded: whether `choose` depends on the number of values and on `draw` alone: then places are not sent, and it
            chooses of each portion of an entry by itself, so that a portion can be read alone.
    """

    seeded: bool

    def choose(self, values: Values, name: str, draw: Draw) -> Mask:
        """Which of the entry's values (n,) are sent.

        Args:
            values: of the whole entry `name`; of a portion of it where `seeded`, whose values do not count.

        Raises:
            HanseError: INVALID_INPUT where the entry has fewer values than were asked for.
        """
        ...


class Factorizer(Protocol):
    """Sends a matrix as a product of two narrow ones."""

    def width(self, rows: int, columns: int) -> int:
        """How many columns both factors of such a matrix have; 0: it is sent as it is. It depends on nothing else, for
        the receiver asks, too."""
        ...

    def factors(
        self, matrix: Values, former: NDArray[np.float64] | None, draw: Draw
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(P, Q): (rows, width) and (columns, width), of which P Q^T is near to the matrix.

        Args:
            matrix: (rows, columns), finite.
            former: Q of the site's former update; None: there is none.
        """
        ...


class Quantizer(Protocol):
    """Writes numbers in fewer bits."""

    def write(self, values: Values, draw: Draw) -> bytes:
        """The bytes of values (n,), which are finite. `draw` is for rounding."""
        ...

    def read(self, data: BytesIn, count: int, dtype: np.dtype[Any]) -> Values:
        """The values (count,) of a portion, of the entry's dtype.

        Raises:
            HanseError: INVALID_INPUT for bytes that `write` does not make.
        """
        ...


class Packer(Protocol):
    """Packs bytes without loss."""

    def pack(self, data: bytes) -> bytes:
        """Fewer bytes, mostly."""
        ...

    def unpack(self, data: bytes, most: int) -> bytes:
        """What was packed.

        Raises:
            HanseError: INVALID_INPUT for bytes that `pack` does not make, or that are more than `most` unpacked.
        """
        ...


Stage = Sparsifier | Factorizer | Quantizer | Packer
