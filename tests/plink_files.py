"""Small PLINK files for tests, written genotype by genotype: nothing of what is tested is used to write them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

CODES = {2: 0b00, -1: 0b01, 1: 0b10, 0: 0b11}
"""A genotype's two bits by its copies of A1; -1 is missing."""

Snp = tuple[str, int, str, str, str]
"""Chromosome, position, name, A1, A2."""


def bed_bytes(copies: np.ndarray) -> bytes:
    """A .bed file of copies of A1, (S, n), -1 where missing."""
    rows = [b"\x6c\x1b\x01"]
    for snp in copies.tolist():
        row = bytearray(-(-len(snp) // 4))
        for sample, number in enumerate(snp):
            row[sample // 4] |= CODES[number] << 2 * (sample % 4)
        rows.append(bytes(row))
    return b"".join(rows)


def write_plink(
    prefix: Path,
    copies: np.ndarray,
    *,
    snps: Sequence[Snp] | None = None,
    people: Sequence[str] | None = None,
) -> Path:
    """Write .bed, .bim and .fam.

    Args:
        copies: (S, n) copies of A1, -1 where missing.
        snps: by default on chromosome 1 at 1, 2, ..., A/G.
        people: lines of the .fam file; by default founders, men and women, controls and cases in turn.
    """
    listed = snps or [("1", at + 1, f"rs{at}", "A", "G") for at in range(len(copies))]
    lines = people or [f"F{at} I{at} 0 0 {1 + at % 2} {1 + at // 2 % 2}" for at in range(copies.shape[1])]
    Path(f"{prefix}.bed").write_bytes(bed_bytes(copies))
    Path(f"{prefix}.bim").write_text("".join(f"{c}\t{name}\t0\t{at}\t{a1}\t{a2}\n" for c, at, name, a1, a2 in listed))
    Path(f"{prefix}.fam").write_text("".join(f"{line}\n" for line in lines))
    return prefix


def random_copies(snps: int, samples: int, *, seed: int = 0, missing: float = 0.1) -> np.ndarray:
    """Copies of A1, (S, n), -1 where missing."""
    rng = np.random.default_rng(seed)
    copies = rng.integers(0, 3, (snps, samples))
    copies[rng.random((snps, samples)) < missing] = -1
    return copies
