"""What crosses between sites and hub: arrays by name, as they lie in a tensor file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Packed = NDArray[np.uint8]
"""Rows of a .bed file: (S, ceil(n/4)), two bits a sample, least significant first."""
