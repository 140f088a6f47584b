"""Distances between updates from one pass: the Gram matrix G = U U^T of the K updates U (K, P).

|u_i - u_j|^2 = G_ii + G_jj - 2 G_ij. Products and sums are made in float64, so that a difference is lost only where two
updates agree to eight digits. The products are not made of deviations from the mean: one hostile update of great length
would move the mean, and all other distances would lose digits. This way it spoils its own distances only.

BLAS makes the products, of GROUP by GROUP updates and DEPTH columns: small enough that it uses one thread, whatever the
machine has, so that bits do not depend on the number of cores, and the engine's own threads do not fight with it. They
do depend on the kind of processor: totals are made once, and what Krum chooses by them is discrete.
"""

from __future__ import annotations

import numpy as np

from hanse_learning.server.reduction import Array, Rows

GRAM = "gram"
"""Name of the Gram matrix among the totals."""

GROUP, DEPTH = 16, 960
"""Of one product. OpenBLAS uses more threads above 2^18 multiplications (GROUP * GROUP * DEPTH for a product of two
groups, GROUP * (GROUP + 1) * DEPTH for one with itself)."""

_CACHE_BYTES = 1 << 20
"""Of the float64 copies that are multiplied at once, for up to a hundred updates."""


def gram_of(updates: Rows) -> Array:
    """(K, K) float64 of inner products of K arrays (n,)."""
    count, columns = len(updates), len(updates[0])
    each = max(1, _CACHE_BYTES // (8 * DEPTH * count))
    stack = np.empty((each, count, DEPTH))
    found = np.zeros((count, count))
    for at in range(0, columns, each * DEPTH):
        tiles, left = divmod(min(each * DEPTH, columns - at), DEPTH)
        end = at + tiles * DEPTH
        if tiles:
            for k, row in enumerate(updates):
                stack[:tiles, k, :] = row[at:end].reshape(tiles, DEPTH)
            _add_products(stack[:tiles], found)
        if left:
            _add_products(np.array([row[end : end + left] for row in updates], np.float64)[None], found)
    return np.triu(found) + np.triu(found, 1).T


def _add_products(tiles: Array, found: Array) -> None:
    """Add the inner products of `tiles` (t, K, d), summed over t, to the upper triangle of `found` (K, K)."""
    count = len(found)
    for i in range(0, count, GROUP):
        rows = tiles[:, i : i + GROUP]
        for j in range(i, count, GROUP):
            products = np.matmul(rows, tiles[:, j : j + GROUP].transpose(0, 2, 1))
            found[i : i + GROUP, j : j + GROUP] += np.add.reduce(products, axis=0)


def squared_distances(gram: Array) -> Array:
    """(K, K) of |u_i - u_j|^2; never negative, symmetric, 0 on the diagonal."""
    squares = np.diagonal(gram)
    distances = np.maximum(squares[:, None] + squares[None, :] - 2 * gram, 0.0)
    np.fill_diagonal(distances, 0.0)
    return np.asarray((distances + distances.T) / 2)
