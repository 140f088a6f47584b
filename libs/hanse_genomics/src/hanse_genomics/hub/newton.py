"""Newton steps of many SNPs' logistic regressions at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Array, Floats
from hanse_genomics.statistics.symmetric import blocks, bordered, cholesky, dots, packed, packed_size, unpacked

LARGEST_STEP = 5.0
"""No coefficient moves by more at once, as in plink2's Firth regression."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A step of some SNPs.

    Attributes:
        coefficients: float64 (A, d + 1): after it, the SNP's last.
        length: (A,): of the whole step in standard errors, whichever the direction: the Newton decrement.
        se: (A,): of the SNP's coefficient before the step.
        definite: bool (A,): whether the information can be inverted.
        inverse: (A, k): packed, of the information before the step.
    """

    coefficients: Floats
    length: Floats
    se: Floats
    definite: Array
    inverse: Floats

    @classmethod
    def joined(cls, parts: list[Step]) -> Step:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


def newton(sums: Floats, coefficients: Floats, *, inverse: bool = False) -> Step:
    """Take a step.

    Args:
        sums: (A, k): as sites lay them out: packed information of the d columns, that of the copies with them, that
            of the copies, score of the columns and of the copies.
        coefficients: (A, d + 1): at which they were taken.
        inverse: whether that of the information is wanted; else it is empty.
    """
    d = coefficients.shape[1] - 1
    m = packed_size(d)
    if not len(sums):
        return Step(coefficients, np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool), np.zeros((0, packed_size(d + 1))))
    return Step.joined([_newton(sums[rows], coefficients[rows], d, m, inverse) for rows in blocks(len(sums), d + 1)])


def _newton(sums: Floats, coefficients: Floats, d: int, m: int, inverse: bool) -> Step:
    information = bordered(unpacked(sums[:, :m], d), sums[:, m : m + d], sums[:, m + d])
    factors = cholesky(information, 1e-12)
    forward = factors.forward(sums[:, m + d + 1 : m + 2 * d + 2])
    step = factors.backward(forward)
    largest = np.abs(step).max(axis=1)
    step *= (LARGEST_STEP / np.maximum(largest, LARGEST_STEP))[:, None]
    return Step(
        coefficients=coefficients + step,
        length=np.sqrt(dots(forward, forward)),
        se=1.0 / factors.lower[:, -1, -1],
        definite=factors.definite,
        inverse=packed(factors.inverse()) if inverse else np.zeros((len(sums), 0)),
    )
