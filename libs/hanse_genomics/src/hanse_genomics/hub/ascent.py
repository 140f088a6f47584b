"""Newton's steps on the penalised likelihood of many SNPs at once, from what `hanse_genomics.site.penalised` sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Array, Floats
from hanse_genomics.hub.newton import LARGEST_STEP
from hanse_genomics.statistics.symmetric import BLOCK, bordered, cholesky, cube, dots, packed, packed_size, unpacked

FLATTEST = 0.02
"""Least curvature, as a share of the information, that a step trusts: along flatter directions it would be too long."""


@dataclass(frozen=True, slots=True, eq=False)
class Ascent:
    """A step of some SNPs.

    Attributes:
        step: float64 (A, d + 1): how far to go.
        length: (A,): of the whole step, in standard errors; se: (A,): of the SNP's coefficient.
        value: (A,): the penalised log-likelihood; definite: bool (A,): whether the information can be inverted.
        inverse: (A, k): packed, of the information.
    """

    step: Floats
    length: Floats
    se: Floats
    value: Floats
    definite: Array
    inverse: Floats


def ascend(sums: Floats, third: Floats, coefficients: Floats) -> Ascent:
    """The step at coefficients (A, d + 1).

    Args:
        sums, third: (A, k) and (A, l), as sites lay them out.
    """
    columns = coefficients.shape[1]
    height = max(1, BLOCK // columns**3)
    parts = [
        _ascend(sums[at : at + height], third[at : at + height], columns) for at in range(0, max(len(sums), 1), height)
    ]
    return Ascent(*(np.concatenate([getattr(part, name) for part in parts]) for name in Ascent.__slots__))


def _ascend(sums: Floats, third: Floats, k: int) -> Ascent:
    """Every SNP by itself, by products of its own matrices: no bit depends on which SNPs are beside it."""
    d, m = k - 1, packed_size(k - 1)
    information = bordered(unpacked(sums[:, :m], d), sums[:, m : m + d], sums[:, m + d])
    score = sums[:, m + k : m + 2 * k]
    more = sums[:, m + 2 * k :]
    curved = bordered(unpacked(more[:, :m], d), more[:, m : m + d], more[:, m + d])
    factors = cholesky(information, 1e-12)
    lower = factors.lower
    inverse = factors.inverse()
    # By r, the derivative of the information; A times it. `take` lays the numbers of a SNP side by side, as an index
    # would not: products of numbers that lie otherwise are summed otherwise.
    derivatives = np.take(third[:, 1:], cube(k).reshape(-1), axis=1).reshape(-1, k, k, k)
    flat = derivatives.reshape(-1, k, k * k)
    score = score + 0.5 * (flat @ inverse.reshape(-1, k * k, 1))[:, :, 0]
    turned = inverse[:, None] @ derivatives
    crossed = turned.reshape(-1, k, k * k) @ turned.swapaxes(2, 3).reshape(-1, k, k * k).swapaxes(1, 2)
    hessian = information + curved + 0.5 * crossed
    # In the information's own scale its curvature is 1 everywhere.
    whitened = np.linalg.solve(lower, np.linalg.solve(lower, hessian).swapaxes(1, 2))
    values, vectors = np.linalg.eigh(whitened + whitened.swapaxes(1, 2))
    forward = factors.forward(score)
    along = (vectors.swapaxes(1, 2) @ forward[:, :, None])[:, :, 0] / np.maximum(np.abs(values) / 2, FLATTEST)
    step = factors.backward((vectors @ along[:, :, None])[:, :, 0])
    step *= (LARGEST_STEP / np.maximum(np.abs(step).max(axis=1), LARGEST_STEP))[:, None]
    with np.errstate(invalid="ignore"):
        value = third[:, 0] + np.log(np.einsum("sjj->sj", lower)).sum(axis=1)
    return Ascent(
        step=step,
        length=np.sqrt(dots(along, along)),
        se=1.0 / lower[:, -1, -1],
        value=value,
        definite=factors.definite,
        inverse=packed(inverse),
    )
