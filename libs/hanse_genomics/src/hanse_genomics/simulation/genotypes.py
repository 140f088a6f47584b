"""Genotypes in tiles, each from one uniform 16-bit number, which is fast.

A SNP's genotype is the quantile of a uniform number among Hardy-Weinberg proportions (A1 A1, A1 A2, A2 A2). Linkage is
a number repeated from the SNP before; a causal SNP's numbers are bent in the cases so that its genotypes have the odds
ratio asked for, and neighbours in linkage inherit a part of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.simulation.people import People
from hanse_genomics.simulation.plan import Causal, StudyPlan

TILE = 256
_LEVELS = 1 << 16
_FREQUENCIES, _CAUSAL, _TILES = 1, 2, 3  # streams of random numbers


@dataclass(frozen=True, slots=True)
class CausalSnp:
    """A causal SNP's numbers, and the copies of A1 that they stand for (before some become missing)."""

    effect: Causal
    uniform: NDArray[np.uint16]
    copies: NDArray[np.uint8]


def frequencies(plan: StudyPlan) -> NDArray[np.float64]:
    """Frequency of A1 by SNP and population, float64 (snps, populations).  [Balding and Nichols 1995]"""
    rng = np.random.Generator(np.random.PCG64([plan.seed, _FREQUENCIES]))
    low, high = np.log(plan.maf)
    p = np.exp(rng.uniform(low, high, plan.snps))
    for effect in plan.causal:
        if effect.maf is not None:
            p[effect.snp] = effect.maf
    if plan.populations > 1:
        scale = (1 - plan.fst) / plan.fst
        drawn = rng.beta(p[:, None] * scale, (1 - p[:, None]) * scale, (plan.snps, plan.populations))
    else:
        drawn = p[:, None]
    drawn[rng.random(plan.snps) < plan.monomorphic] = 0.0
    return drawn


def thresholds(p: NDArray[np.float64]) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Where two copies and where one copy of A1 end, of 65536 equal steps."""
    two = np.round(p * p * _LEVELS)
    one = np.round((1 - (1 - p) ** 2) * _LEVELS)
    return np.minimum(two, _LEVELS - 1).astype(np.uint16), np.minimum(one, _LEVELS - 1).astype(np.uint16)


def causal_snps(plan: StudyPlan, people: People, p: NDArray[np.float64]) -> dict[int, CausalSnp]:
    """The causal SNPs' numbers: uniform among controls, bent in cases to P(g | case) ~ P(g) OR^g."""
    made = {}
    for effect in plan.causal:
        rng = np.random.Generator(np.random.PCG64([plan.seed, _CAUSAL, effect.snp]))
        uniform = rng.random(plan.samples)
        for population in range(plan.populations):
            q = p[effect.snp, population]
            proportions = np.array([q * q, 2 * q * (1 - q), (1 - q) ** 2])
            among_cases = proportions * effect.odds_ratio ** np.array([2.0, 1.0, 0.0])
            ours = people.case & (people.population == population)
            edges = np.cumsum(np.concatenate(([0.0], among_cases / among_cases.sum())))
            uniform[ours] = np.interp(uniform[ours], edges, np.cumsum(np.concatenate(([0.0], proportions))))
        levels = np.minimum(uniform * _LEVELS, _LEVELS - 1).astype(np.uint16)
        two, one = (edge[people.population] for edge in thresholds(p[effect.snp]))
        made[effect.snp] = CausalSnp(effect, levels, (levels < two).astype(np.uint8) + (levels < one))
    return made


def tiles(
    plan: StudyPlan, people: People, p: NDArray[np.float64], causal: dict[int, CausalSnp]
) -> Iterator[tuple[int, NDArray[np.uint8], NDArray[np.uint8]]]:
    """The study in tiles: first SNP, and the two bits of every genotype as bytes 0 or 1, uint8 (snps, samples).

    The bits are PLINK's: high, low = 00 two copies of A1, 10 one, 11 none, 01 missing. Buffers are used again: a tile
    is gone when the next is asked for.
    """
    n = plan.samples
    two, one = thresholds(p)
    segments = [(int(ends[0]), int(ends[-1]) + 1) for ends in _runs(people.population)]
    high = np.empty((TILE, n), dtype=np.bool_)
    low = np.empty((TILE, n), dtype=np.bool_)
    last = np.empty(n, dtype=np.uint16)
    for start in range(0, plan.snps, TILE):
        stop = min(start + TILE, plan.snps)
        size = stop - start
        bits = np.random.SFC64([plan.seed, _TILES, start])
        rng = np.random.Generator(bits)
        u = bits.random_raw(-(-size * n // 4)).view(np.uint16)[: size * n].reshape(size, n)
        for snp in range(start, stop):
            if plan.linkage and snp % plan.block and snp not in causal:
                before = u[snp - start - 1] if snp > start else last
                np.copyto(u[snp - start], before, where=rng.random(n, dtype=np.float32) < plan.linkage)
            elif snp in causal:
                u[snp - start] = causal[snp].uniform
        last = u[-1].copy()
        for begin, end in segments:
            population = people.population[begin]
            part = u[:, begin:end]
            np.greater_equal(part, two[start:stop, population, None], out=high[:size, begin:end])
            np.greater_equal(part, one[start:stop, population, None], out=low[:size, begin:end])
        if plan.missing:
            where = rng.integers(0, size * n, rng.binomial(size * n, plan.missing))
            high.reshape(-1)[where] = False
            low.reshape(-1)[where] = True
        yield start, high[:size].view(np.uint8), low[:size].view(np.uint8)


def _runs(labels: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Positions of each run of equal labels."""
    return np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels)) + 1)


_EVEN = np.array([sum((byte >> bit & 1) << (2 * bit) for bit in range(8)) for byte in range(256)], dtype="<u2")


def packed(
    high: NDArray[np.uint8], low: NDArray[np.uint8], swapped: NDArray[np.bool_] | None = None
) -> NDArray[np.uint8]:
    """Bytes of a .bed, uint8 (snps, ceil(samples / 4)).

    Args:
        high, low: the bits, as `tiles` has them.
        swapped: rows (snps,) whose A1 and A2 change places: high' = not low, low' = not high.
    """
    first, second = high, low
    if swapped is not None and swapped.any():
        first = np.where(swapped[:, None], low ^ 1, high)
        second = np.where(swapped[:, None], high ^ 1, low)
    highs = np.packbits(first, axis=1, bitorder="little")
    lows = np.packbits(second, axis=1, bitorder="little")
    pairs = _EVEN[lows] | (_EVEN[highs] << 1)
    return np.ascontiguousarray(pairs).view(np.uint8)[:, : -(-high.shape[1] // 4)]
