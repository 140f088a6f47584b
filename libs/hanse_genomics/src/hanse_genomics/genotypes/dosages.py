"""Genotypes as numbers: copies of an allele, by a table of the 256 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Counts, Packed

_COPIES = (2, 0, 1, 0)
"""By the two bits: 00, 01 (missing: 0), 10, 11."""


def _table(dtype: str) -> NDArray[Any]:
    table: NDArray[Any] = np.empty((256, 4), dtype=dtype)
    for byte in range(256):
        table[byte] = [_COPIES[byte >> shift & 3] for shift in (0, 2, 4, 6)]
    return table


_LOWER = np.array([1, 4, 16, 64], dtype=np.uint8)
_PLACES = np.arange(4)
_TABLES = {name: _table(name) for name in ("float32", "float64")}


def dosages(packed: Packed, samples: int, dtype: type[np.float32] | type[np.float64] = np.float64) -> NDArray[Any]:
    """Copies of A1, 0 where the genotype is missing.

    Args:
        packed: uint8 (S, ceil(n/4)).

    Returns:
        (S, n) of the dtype; a view whose rows are a multiple of 4 apart, as BLAS takes them.
    """
    numbers = np.empty((len(packed), packed.shape[1], 4), dtype=dtype)
    np.take(_TABLES[np.dtype(dtype).name], packed, axis=0, out=numbers, mode="clip")
    return numbers.reshape(len(packed), -1)[:, :samples]


def missing(packed: Packed, samples: int) -> tuple[Counts, Counts]:
    """Where genotypes are missing.

    Returns:
        (SNP, sample): int64 (M,) each, ordered by SNP, then sample.
    """
    lower = packed >> 1
    np.invert(lower, out=lower)
    lower &= packed
    lower &= 0x55
    octets = np.flatnonzero(lower.reshape(-1) != 0)
    # Bytes are in order and so are the four genotypes of each: nothing is left to sort.
    marked = lower.reshape(-1)[octets, None] & _LOWER != 0
    cells = (octets[:, None] * 4 + _PLACES)[marked]
    snp = cells // (4 * packed.shape[1])
    person = cells - snp * (4 * packed.shape[1])
    if 4 * packed.shape[1] == samples:
        return snp, person
    real = person < samples
    return snp[real], person[real]
