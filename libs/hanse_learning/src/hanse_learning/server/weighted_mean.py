"""The weighted mean, at the memory's speed.

Order: ((w0 u0 + w1 u1) + w2 u2) + ..., rows as given, in the working dtype (float32 for float32 and float16 rows,
float64 for float64). Error of an output: at most (K + 2) eps sum_k |w_k u_k| with eps = 2^-24 (float32) or 2^-53.
Nothing but elementwise multiplications and additions is used (no dot product, whose order depends on alignment).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hanse_learning.server.reduction import TILE, Array, Rows, tiles


@dataclass(frozen=True, slots=True)
class WeightedMean:
    """out = sum_k weights[k] * updates[k]; rows of weight 0 are not looked at. Memory: one scratch row of a tile."""

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`; updates K x (n,), weights (K,), out (n,)."""
        kept = [(row, factor) for row, factor in zip(updates, weights.astype(out.dtype), strict=True) if factor]
        if not kept:
            out[...] = 0
            return
        scratch = np.empty(min(TILE, len(out)), out.dtype)
        for part in tiles(len(out)):
            total = out[part]
            term = scratch[: len(total)]
            np.multiply(kept[0][0][part], kept[0][1], out=total)
            for row, factor in kept[1:]:
                np.multiply(row[part], factor, out=term)
                np.add(total, term, out=total)
