"""A chunk of the candidates for pruning, with the SNPs behind it that share windows with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hanse_genomics.arrays import Array, Counts
from hanse_genomics.structure import linkage
from hanse_genomics.structure.bits import widths_of
from hanse_genomics.structure.linkage import Candidates

_PAIRS = 400_000
"""Pairs of a chunk, about: their sums are in memory as numbers before they are packed."""


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """SNPs whose pairs are summed at once. Indices are within it.

    Attributes:
        start: of its first SNP among all candidates.
        own: SNPs whose pairs are asked for: the first ones; the others are the partners of the last of them.
        known: what is known of its SNPs.
        reaches: int64 (own,): `linkage.reach`.
    """

    start: int
    own: int
    known: Candidates
    reaches: Counts

    def pairs(self) -> tuple[Counts, Counts]:
        """int64 (P,) each."""
        return linkage.pairs(self.reaches, 0, self.own)

    def arrays(self) -> dict[str, Array]:
        return {**self.known.arrays(), "reaches": self.reaches, "start": np.array([self.start], dtype=np.int64)}

    @classmethod
    def read(cls, arrays: dict[str, Array]) -> Chunk:
        reaches = arrays["reaches"]
        return cls(int(arrays["start"][0]), len(reaches), Candidates.read(arrays), reaches)


def chunks(known: Candidates, window: int, step: int, largest: int) -> Iterator[Chunk]:
    """All candidates in chunks.

    Args:
        largest: SNPs of a chunk, at most.
    """
    reaches = linkage.reach(known.chromosome, window, step)
    size = max(1, min(largest, _PAIRS // window))
    for start in range(0, len(known), size):
        stop = min(start + size, len(known))
        end = int(reaches[start:stop].max())
        part = Candidates(known.index[start:end], known.chromosome[start:end], known.counts[start:end])
        yield Chunk(start, stop - start, part, reaches[start:stop] - start)


def founder_widths(snps: int, samples: int, founders: int) -> Counts:
    """Bits of the genotype counts of so many SNPs, int64 (snps * groups * 3,): founders, then others, if there are."""
    sizes = [founders] if founders == samples else [founders, samples - founders]
    return np.tile(np.repeat(widths_of(np.array(sizes)), 3), snps)
