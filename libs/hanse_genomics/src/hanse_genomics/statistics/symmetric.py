"""Symmetric matrices of many SNPs at once: packed as they travel, and their Cholesky factors.

Packed is the upper triangle by rows: (0,0), (0,1), ..., (0,d-1), (1,1), ...
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement, permutations

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Counts, Floats

BLOCK = 1 << 20
"""Elements of the matrices that are worked on at a time, about."""


def packed_size(d: int) -> int:
    """Elements of a packed matrix of d rows."""
    return d * (d + 1) // 2


def thirds(d: int) -> int:
    """Products of three of d columns that differ."""
    return d * (d + 1) * (d + 2) // 6


def cube(d: int) -> Counts:
    """Where the products of three of d columns, (d, d, d), are in the order in which step `penalised` has them."""
    inner = d - 1
    listed = [
        *combinations_with_replacement(range(inner), 3),
        *((*pair, inner) for pair in combinations_with_replacement(range(inner), 2)),
        *((one, inner, inner) for one in range(inner)),
        (inner, inner, inner),
    ]
    places = np.empty((d, d, d), dtype=np.int64)
    for at, three in enumerate(listed):
        for order in permutations(three):
            places[order] = at
    return places


def products(columns: Floats) -> Floats:
    """Packed products of the columns with each other, row by row: (n, d) -> (n, d (d + 1) / 2)."""
    row, column = np.triu_indices(columns.shape[1])
    return np.ascontiguousarray(columns[:, row] * columns[:, column])


def dots(left: Floats, right: Floats) -> Floats:
    """Sums of products over the last axis, term after term: no bit depends on how many matrices are beside one."""
    made: Floats = np.zeros(np.broadcast_shapes(left.shape, right.shape)[:-1])
    for at in range(left.shape[-1]):
        made += left[..., at] * right[..., at]
    return made


def unpacked(packed: Floats, d: int) -> Floats:
    """(S, d (d + 1) / 2) -> (S, d, d)."""
    row, column = np.triu_indices(d)
    matrices = np.empty((len(packed), d, d))
    matrices[:, row, column] = packed
    matrices[:, column, row] = packed
    return matrices


def packed(matrices: Floats) -> Floats:
    """(S, d, d) -> (S, d (d + 1) / 2)."""
    row, column = np.triu_indices(matrices.shape[1])
    made: Floats = matrices[:, row, column]
    return made


def bordered(inner: Floats, border: Floats, corner: Floats) -> Floats:
    """Matrices with one more row and column, the last: (S, d, d), (S, d), (S,) -> (S, d + 1, d + 1)."""
    snps, d = border.shape
    matrices = np.empty((snps, d + 1, d + 1))
    matrices[:, :d, :d] = inner
    matrices[:, d, :d] = border
    matrices[:, :d, d] = border
    matrices[:, d, d] = corner
    return matrices


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """Lower Cholesky factors.

    Attributes:
        lower: (S, d, d).
        definite: bool (S,): whether the matrix is positive definite; where it is not, the factor means nothing.
    """

    lower: Floats
    definite: NDArray[np.bool_]

    def forward(self, right: Floats) -> Floats:
        """L^-1 right: (S, d)."""
        lower = self.lower
        solved = np.empty_like(right)
        for j in range(right.shape[1]):
            known = dots(lower[:, j, :j], solved[:, :j])
            solved[:, j] = (right[:, j] - known) / lower[:, j, j]
        return solved

    def backward(self, right: Floats) -> Floats:
        """L^-T right: (S, d)."""
        lower = self.lower
        solved = np.empty_like(right)
        for j in reversed(range(right.shape[1])):
            known = dots(lower[:, j + 1 :, j], solved[:, j + 1 :])
            solved[:, j] = (right[:, j] - known) / lower[:, j, j]
        return solved

    def inverse(self) -> Floats:
        """(L L')^-1: (S, d, d)."""
        snps, d, _ = self.lower.shape
        columns = [self.backward(self.forward(np.broadcast_to(unit, (snps, d)))) for unit in np.eye(d)]
        return np.stack(columns, axis=1)


def cholesky(matrices: Floats, tolerance: float = 1e-13) -> Factors:
    """Factors of symmetric matrices (S, d, d).

    Args:
        tolerance: what is left of a diagonal element, by itself, at or below which the matrix is not definite.
    """
    snps, d, _ = matrices.shape
    lower = np.zeros_like(matrices)
    definite = np.ones(snps, dtype=bool)
    for j in range(d):
        rest = matrices[:, j:, j] - dots(lower[:, j:, :j], lower[:, None, j, :j])
        diagonal = matrices[:, j, j]
        with np.errstate(invalid="ignore"):
            definite &= rest[:, 0] > tolerance * np.abs(diagonal)
        pivot = np.where(definite, rest[:, 0], 1.0)
        lower[:, j:, j] = np.where(definite[:, None], rest / np.sqrt(pivot)[:, None], 0.0)
        lower[~definite, j, j] = 1.0
    return Factors(lower, definite)


def blocks(snps: int, d: int) -> list[slice]:
    """Slices of the SNPs whose matrices are worked on at a time."""
    height = max(1, BLOCK // (d * d))
    return [slice(start, min(start + height, snps)) for start in range(0, snps, height)]
