"""Genotypes as numbers: copies of an allele, by a table of the 256 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Counts, Packed

_SHIFTS = (0, 2, 4, 6)
_COPIES = (2, 0, 1, 0)
"""By the two bits: 00, 01 (missing: 0), 10, 11."""

Real = type[np.float32] | type[np.float64]


def _table(dtype: Real) -> NDArray[Any]:
    table: NDArray[Any] = np.empty((256, 4), dtype=dtype)
    for byte in range(256):
        table[byte] = [_COPIES[byte >> shift & 3] for shift in _SHIFTS]
    return table


def _places() -> Counts:
    """By the lower bits of four genotypes: which of the four are set, first ones first."""
    places = np.zeros((256, 4), dtype=np.int64)
    for byte in range(256):
        found = [at for at, shift in enumerate(_SHIFTS) if byte >> shift & 1]
        places[byte, : len(found)] = found
    return places


_TABLES: dict[Real, NDArray[Any]] = {real: _table(real) for real in (np.float32, np.float64)}
_PLACES = _places()


def room(snps: int, samples: int, dtype: Real = np.float64) -> NDArray[Any]:
    """A buffer for the numbers of so many SNPs, to be used again: fresh memory costs several times as much as the work
    itself."""
    return np.empty((snps, -(-samples // 4), 4), dtype=dtype)


def dosages(packed: Packed, samples: int, dtype: Real = np.float64, *, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Copies of A1, 0 where the genotype is missing.

    Args:
        packed: uint8 (S, ceil(n/4)).
        out: a buffer of `room` for at least S SNPs, of the dtype, which is overwritten.

    Returns:
        (S, n) of the dtype; a view of the buffer whose rows are a multiple of 4 apart, as BLAS takes them.
    """
    numbers = room(len(packed), samples, dtype) if out is None else out[: len(packed)]
    # With mode "clip" numpy writes to `out` without a copy; a byte is never out of the table's range.
    np.take(_TABLES[dtype], packed, axis=0, out=numbers, mode="clip")
    return numbers.reshape(len(packed), -1)[:, :samples]


def missing(packed: Packed, samples: int) -> tuple[Counts, Counts]:
    """Where genotypes are missing.

    Args:
        packed: uint8 (S, ceil(n/4)).

    Returns:
        (SNP, sample): int64 (M,) each, ordered by SNP, then sample.
    """
    lower = packed >> 1
    np.bitwise_not(lower, out=lower)
    lower &= packed
    lower &= 0x55
    flat = lower.reshape(-1)
    where = np.flatnonzero(flat != 0)
    found = flat[where]
    # A byte has up to four: each stands as often as it has.
    times = np.bitwise_count(found)
    byte = np.repeat(np.arange(len(where)), times)
    nth = np.arange(len(byte)) - (np.cumsum(times, dtype=np.int64) - times)[byte]
    snp, octet = np.divmod(where[byte], packed.shape[1])
    person = 4 * octet + _PLACES[found[byte], nth]
    real = person < samples
    return snp[real], person[real]
