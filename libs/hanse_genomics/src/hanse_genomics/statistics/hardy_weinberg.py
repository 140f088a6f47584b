"""The exact test of Hardy-Weinberg equilibrium, for all SNPs at once.

Source: Wigginton, Cutler and Abecasis 2005: the probability, given the alleles, of the observed number of heterozygotes
or of a number that is no more probable.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hanse_genomics.arrays import Counts, Floats

_TIE = 1e-10
"""Numbers of heterozygotes whose probabilities differ by less, relatively, are equally probable."""
_NEGLIGIBLE = 1e-16
_BLOCK = 8
"""Terms that are added between two looks at which SNPs are done."""


def exact(heterozygous: Counts, one: Counts, other: Counts) -> Floats:
    """p-values: float64 (S,), NaN where nobody has a genotype.

    Args:
        heterozygous, one, other: int64 (S,): samples with one copy, and homozygous for either allele.
    """
    n = heterozygous + one + other
    p = np.where(n > 0, 1.0, np.nan)
    rare = heterozygous + 2 * np.minimum(one, other)
    at = np.flatnonzero(rare > 1)
    if not len(at):
        return p
    heterozygous, rare, n = heterozygous[at], rare[at], n[at]
    factorial = special.gammaln(np.arange(2 * int(n.max()) + 2, dtype=np.float64) + 1)

    def log_probability(h: Counts) -> Floats:
        few = (rare - h) // 2
        made: Floats = h * np.log(2.0) - factorial[h] - factorial[few] - factorial[n - h - few]
        return made

    constant = factorial[n] + factorial[rare] + factorial[2 * n - rare] - factorial[2 * n]
    observed = log_probability(heterozygous)
    # The mode: the ratio of neighbours h+2 and h is 4 few many / ((h+1)(h+2)), which falls with h.
    below = heterozygous <= _mode(rare, n)
    outer = np.where(below, -1, 1)
    total = _tail(heterozygous, rare, n, outer)
    far = _beyond(heterozygous, rare, below, observed, log_probability)
    inside = (far >= 0) & (far <= rare)
    there = np.where(inside, far, heterozygous)
    ratio = np.exp(log_probability(there) - observed)
    total += np.where(inside, ratio * _tail(there, rare, n, -outer), 0.0)
    p[at] = np.minimum(np.exp(observed + constant) * total, 1.0)
    return p


def _mode(rare: Counts, n: Counts) -> Counts:
    """The most probable number of heterozygotes, of the parity of `rare`."""
    h = (rare * (2 * n - rare)) // np.maximum(2 * n, 1)
    h += (h ^ rare) & 1
    # The guess is off by one step at most in either direction.
    for _ in range(3):
        few = (rare - h) // 2
        h = np.where((h + 2 <= rare) & (4 * few * (n - h - few) > (h + 1) * (h + 2)), h + 2, h)
        few = (rare - h) // 2
        h = np.where((h >= 2) & (4 * (few + 1) * (n - h - few + 1) < h * (h - 1)), h - 2, h)
    return h


def _beyond(
    heterozygous: Counts,
    rare: Counts,
    below: NDArray[np.bool_],
    observed: Floats,
    log_probability: Callable[[Counts], Floats],
) -> Counts:
    """On the other side of the mode, the number next to it that is no more probable than the observed one; outside of
    0..rare where there is none. By bisection: beyond the mode the probability falls.
    """
    step = np.where(below, 2, -2)
    low = np.zeros_like(heterozygous)
    # Steps from the observed number to the last possible one on the other side, which `high` is one beyond.
    high = np.where(below, (rare - heterozygous) // 2, heterozygous // 2) + 1
    while ((high - low) > 1).any():
        middle = (low + high) // 2
        at = heterozygous + step * middle
        inside = (at >= 0) & (at <= rare)
        higher = inside & (log_probability(np.where(inside, at, heterozygous)) > observed + _TIE)
        low = np.where(higher, middle, low)
        high = np.where(higher, high, np.maximum(middle, low + 1))
    found: Counts = heterozygous + step * high
    return found


def _tail(start: Counts, rare: Counts, n: Counts, direction: Counts) -> Floats:
    """Sum of the probabilities from `start` outwards, relative to that of `start`: float64 (S,), at least 1."""
    total = np.ones(len(start))
    at = np.arange(len(start))
    h, rare_f, n_f = start.astype(np.float64), rare.astype(np.float64), n.astype(np.float64)
    up = direction > 0
    term = np.ones(len(start))
    while len(at):
        for _ in range(_BLOCK):
            few = (rare_f - h) / 2
            many = n_f - h - few
            # Beyond the last possible number a ratio is 0, and what follows does not matter.
            rising = 4 * few * many / np.maximum((h + 1) * (h + 2), 1)
            ratio = np.where(up, rising, h * (h - 1) / np.maximum(4 * (few + 1) * (many + 1), 1))
            term = term * ratio
            total[at] += term
            h = np.where(up, h + 2, h - 2)
        alive = term > _NEGLIGIBLE * total[at]
        at, up = at[alive], up[alive]
        h, rare_f, n_f, term = h[alive], rare_f[alive], n_f[alive], term[alive]
    return total
