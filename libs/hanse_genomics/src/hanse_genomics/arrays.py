"""What crosses between sites and hub: arrays by name, as they lie in a tensor file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]
Given = Mapping[str, Arrays]
"""Objects of former computations, by name."""
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Packed = NDArray[np.uint8]
"""Rows of a .bed file: (S, ceil(n/4)), two bits a sample, least significant first."""


class PackedRows(Protocol):
    """Rows of a .bed file that are read when they are asked for, so that memory does not grow with their number."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(S, ceil(n/4))."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | NDArray[np.int64], /) -> Packed:
        """Some of them, as an array that is the caller's."""
        ...
