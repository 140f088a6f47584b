"""Leading eigenvectors of X X^T, a block of products at a time: block Lanczos with thick restarts.

The randomized range finder [Halko, Martinsson, Tropp 2011, algorithm 4.4] keeps the last block of its power iteration;
here all blocks are kept, so that the answer is the best of the whole Krylov space [Musco, Musco 2015, algorithm 2],
which takes the square root of the rounds where eigenvalues lie close together - as they do in the tail that
population structure leaves. Sites do nothing more for that. Orthogonality is made fully, by two passes, at each step;
where the blocks become too many, the leading Ritz vectors stay [Wu, Simon 2000].

A step is given orthonormal blocks Q = [Q_1 ... Q_c], T = Q'^T A Q' of the blocks Q' before the last, and A Q_c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from hanse_genomics.arrays import Floats

_RANK = 1e-13
"""A direction is new if its part outside the space is larger than this share of the largest eigenvalue."""


@dataclass(frozen=True, slots=True, eq=False)
class Ritz:
    """What a block's products have told.

    Attributes:
        projected: float64 (q, q): Q^T A Q.
        values: float64 (q,): its eigenvalues, largest first; vectors: float64 (q, q): its eigenvectors, as columns.
        following: float64 (M, b'): the next orthonormal block; b' is 0 where the space is complete.
        angle: a bound of the sine of the largest angle between the span of the leading vectors and the true one.
    """

    projected: Floats
    values: Floats
    vectors: Floats
    following: Floats
    angle: float


def first_block(snps: int, columns: int) -> Floats:
    """An orthonormal block (M, b) to begin with. It is no secret, and always the same: studies can be repeated."""
    rng = np.random.Generator(np.random.PCG64([snps, columns]))
    return orthonormal(rng.standard_normal((snps, columns)))


def orthonormal(block: Floats) -> Floats:
    """An orthonormal basis of a block's columns, float64 (M, b)."""
    basis: Floats = scipy.linalg.qr(block, mode="economic", check_finite=False)[0]
    return basis


def advance(blocks: Sequence[Floats], projected: Floats, image: Floats, components: int) -> Ritz:
    """Take in A Q_c.

    Args:
        blocks: orthonormal, (M, b_1) ... (M, b_c).
        projected: float64 (q', q'): of all blocks but the last.
        image: float64 (M, b_c): A Q_c.
        components: k, the number of eigenvectors that are asked for.
    """
    along = np.concatenate([block.T @ image for block in blocks])
    rest = image - combined(blocks, along)
    again = np.concatenate([block.T @ rest for block in blocks])
    rest -= combined(blocks, again)
    along += again
    grown = _grown(projected, along)
    values, vectors = eigen(grown)
    # A Q = Q T + rest E^T, where E are the last b rows: the residual of a Ritz vector Q s is rest times s's last rows.
    outside, coupling = scipy.linalg.qr(rest, mode="economic", check_finite=False)
    tails = coupling @ vectors[-image.shape[1] :]
    left, size, _ = np.linalg.svd(coupling)
    new = size > _RANK * max(float(values[0]), 0.0)
    following = _outside(blocks, outside @ left[:, new])
    angle = _angle(values, tails, components) if new.any() else 0.0
    return Ritz(grown, values, vectors, following, angle)


def eigen(symmetric: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues, largest first: float64 (q,), and eigenvectors as columns: float64 (q, q)."""
    values, vectors = np.linalg.eigh(symmetric)
    return values[::-1], vectors[:, ::-1]


def combined(blocks: Sequence[Floats], weights: Floats) -> Floats:
    """Q W, block by block: float64 (M, columns).

    Args:
        weights: float64 (q, columns).
    """
    made = np.zeros((len(blocks[0]), weights.shape[1]))
    start = 0
    for block in blocks:
        made += block @ weights[start : start + block.shape[1]]
        start += block.shape[1]
    return made


def directed(vectors: Floats) -> Floats:
    """Vectors with the sign by which they are told: the largest entry is positive.

    Of entries that are as large within 1e-6 the first counts, so that rounding does not turn a vector.
    """
    size = np.abs(vectors)
    decisive = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)
    signed: Floats = vectors * np.sign(vectors[decisive, np.arange(vectors.shape[1])])
    return signed


def _angle(values: Floats, tails: Floats, components: int) -> float:
    """The sin(theta) theorem [Davis, Kahan 1970]: residual over gap, 1 where there is no gap yet.

    The next eigenvalue may be larger than the Ritz value that stands for it, by up to its residual.
    """
    if len(values) <= components:
        return 1.0
    below = values[components] + float(np.linalg.norm(tails[:, components]))
    gap = float(values[components - 1] - below)
    residual = float(np.linalg.norm(tails[:, :components], ord=2))
    return min(1.0, residual / gap) if gap > 0 else 1.0


def _grown(projected: Floats, along: Floats) -> Floats:
    """Q^T A Q with the last block's rows and columns, symmetric to the last bit."""
    before, size = len(projected), len(along)
    grown = np.empty((size, size))
    grown[:before, :before] = projected
    grown[:, before:] = along
    grown[before:, :before] = along[:before].T
    corner = along[before:]
    grown[before:, before:] = (corner + corner.T) / 2
    return grown


def _outside(blocks: Sequence[Floats], block: Floats) -> Floats:
    """A block once more made orthogonal to all others: what was small before it was normalised has lost digits."""
    if not block.shape[1]:
        return block
    for _ in range(2):
        block = orthonormal(block - combined(blocks, np.concatenate([other.T @ block for other in blocks])))
    return block
