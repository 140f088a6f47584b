"""The mean of every coordinate over the updates that change it (LotteryFL, Li et al., 2021; FedLTN, Mugunthan, 2022).

A site that has pruned a weight, or whose codec left it out, says zero of it, which is no opinion: in the weighted mean
it would hold the others back. Where nobody says anything, the coordinate stays. A weight that a site keeps and whose
training has not moved it by a bit counts as unsaid, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hanse_fabric.errors import invalid
from hanse_learning.server.reduction import TILE, Array, Rows, tiles

JUMP_SCORE = "jump_score"
"""Among the numbers that come with an update: above 0 in the jump-start's round, of all, and larger for a better
ticket."""


@dataclass(frozen=True, slots=True)
class OverlapMean:
    """out = sum_k w_k u_k / sum_k w_k [u_k != 0]; 0 where all are.

    Attributes:
        jump_start: whether updates come with a `jump_score`: where all are above 0, the best update alone counts, of
            equal ones the first. A site that says so in a round of others' zeros gains nothing by it.
    """

    jump_start: bool = False

    def reweigh(self, totals: Mapping[str, Array], weights: Array, info: Mapping[str, Array]) -> Array:  # noqa: ARG002
        """See `Reweighed.reweigh`.

        Raises:
            HanseError: INVALID_INPUT unless every update comes with a finite `jump_score` from 0, where it is needed.
        """
        if not self.jump_start:
            return weights
        scores = info.get(JUMP_SCORE)
        if scores is None or not (np.isfinite(scores) & (scores >= 0)).all():
            given = None if scores is None else scores.tolist()
            raise invalid("updates.info.jump_score", given, "a number from 0 with every update, for the jump-start")
        if not scores.all():
            return weights
        best = np.zeros_like(weights)
        best[int(np.argmax(np.where(weights > 0, scores, -1.0)))] = 1.0
        return best

    def combine(self, updates: Rows, weights: Array, out: Array) -> None:
        """See `Reduction.combine`; updates K x (n,), weights (K,), out (n,)."""
        kept = [(row, factor) for row, factor in zip(updates, weights.astype(out.dtype), strict=True) if factor]
        scratch, shares = (np.empty(min(TILE, len(out)), out.dtype) for _ in range(2))
        for part in tiles(len(out)):
            total = out[part]
            term, share = scratch[: len(total)], shares[: len(total)]
            total[...] = 0
            share[...] = 0
            for row, factor in kept:
                np.multiply(row[part], factor, out=term)
                np.add(total, term, out=total)
                np.multiply(row[part] != 0, factor, out=term)
                np.add(share, term, out=share)
            np.add(share, share == 0, out=share)
            np.divide(total, share, out=total)
