"""Which correlated SNPs are removed: the greedy choice of PLINK 1.9's --indep-pairwise, order and ties included."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from hanse_genomics.arrays import Array, Counts, Floats
from hanse_genomics.structure.linkage import EPSILON


def prune(chromosome: Array, minor: Floats, varies: Array, i: Counts, j: Counts, window: int, step: int) -> Array:
    """SNPs that stay: bool (C,).

    Each window is passed through in genome order. A SNP is compared with the first later one that is left and
    correlated with it; of the two, the one with the smaller minor allele frequency is removed (the later one, where
    they are equal), and the pass goes on with the next SNP. Passes are repeated until nothing is removed, then the
    window moves on.

    Args:
        chromosome: (C,), sorted.
        minor: float64 (C,): minor allele frequencies.
        varies: bool (C,): whether the SNP has a variance; those without go first.
        i, j: int64 (L,): pairs that are correlated, ordered by i, then j.
    """
    count = len(chromosome)
    alive = varies.tolist()
    frequency = minor.tolist()
    partners: list[list[int]] = [[] for _ in range(count)]
    for one, other in zip(i.tolist(), j.tolist(), strict=True):
        partners[one].append(other)
    linked = np.unique(i)  # only these can decide anything
    edges = [0, *(np.flatnonzero(np.diff(chromosome)) + 1).tolist(), count]
    for begin, end in pairwise(edges):
        for at in range(begin, end, step):
            behind = min(at + window, end)
            low, high = np.searchsorted(linked, (at, behind))
            _settle(linked[low:high].tolist(), behind, partners, frequency, alive)
            if behind == end and step <= window:
                break  # the windows that follow are parts of this one
    return np.array(alive, dtype=bool)


def _settle(
    members: list[int], behind: int, partners: list[list[int]], frequency: list[float], alive: list[bool]
) -> None:
    """Prune one window [.., behind) until nothing goes."""
    going = True
    while going:
        going = False
        for one in members:
            if not alive[one]:
                continue
            for other in partners[one]:
                if other >= behind:
                    break
                if alive[other]:
                    rarer = frequency[one] < (1 - EPSILON) * frequency[other]
                    alive[one if rarer else other] = False
                    going = True
                    break
