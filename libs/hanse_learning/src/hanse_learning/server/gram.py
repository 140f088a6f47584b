"""Distances between updates from one pass: the Gram matrix G = U U^T of the K updates U (K, P).

|u_i - u_j|^2 = G_ii + G_jj - 2 G_ij. Products and sums are made in float64, so that a difference is lost only where two
updates agree to eight digits. It is not the deviations from the mean that are multiplied: one hostile update of great
length would take the digits of all others' distances with it. Here it spoils its own only.

BLAS makes the products, on tiles of a size that K alone determines: blocks are cut the same wherever they are measured.
Its bits depend on the kind of processor, so totals are made once, and what is chosen by them is discrete for Krum.
"""

from __future__ import annotations

import numpy as np

from hanse_learning.server.reduction import Array, Rows

GRAM = "gram"
"""Name of the Gram matrix among the totals."""

_DEPTH = 1024
"""Columns of one product, at most."""

_ONE_THREAD = 1 << 18
"""Multiplications up to which OpenBLAS makes a product by one thread, whatever the machine has."""

_CACHE_BYTES = 1 << 20
"""Of the float64 copies that are multiplied at once."""


def gram_of(updates: Rows) -> Array:
    """(K, K) float64 of inner products of K arrays (n,)."""
    count, columns = len(updates), len(updates[0])
    depth = max(64, min(_DEPTH, _ONE_THREAD // (count * (count + 1)) // 64 * 64))
    each = max(1, _CACHE_BYTES // (8 * depth * count))
    stack = np.empty((each, count, depth))
    found = np.zeros((count, count))
    at = 0
    while at < columns:
        whole = min(each, (columns - at) // depth)
        if whole:
            size = whole * depth
            for k, row in enumerate(updates):
                stack[:whole, k, :] = row[at : at + size].reshape(whole, depth)
            tiles = stack[:whole]
            found += np.add.reduce(np.matmul(tiles, tiles.transpose(0, 2, 1)), axis=0)
        else:
            size = columns - at
            last = np.array([row[at:] for row in updates], np.float64)
            found += last @ last.T
        at += size
    return found


def squared_distances(gram: Array) -> Array:
    """(K, K) of |u_i - u_j|^2; never negative, symmetric, 0 on the diagonal."""
    squares = np.diagonal(gram)
    distances = np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0.0)
    np.fill_diagonal(distances, 0.0)
    return np.asarray((distances + distances.T) / 2)
