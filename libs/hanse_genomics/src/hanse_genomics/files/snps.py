"""SNPs: a cohort's, as its .bim file lists them, and the study's, which the cohorts have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_genomics.arrays import Arrays
from hanse_genomics.files import text
from hanse_genomics.files.pairs import Pairs

LABELS = ("0", *map(str, range(1, 23)), "X", "Y", "XY", "MT")
"""Chromosomes by PLINK's numeric code: 0 is unplaced, XY the pseudo-autosomal region."""

X, Y, XY, MT = 23, 24, 25, 26

UNKNOWN = "0"
"""An allele that nobody of the cohort carries, so that its .bim file has no name for it."""


@dataclass(frozen=True, slots=True, eq=False)
class SnpTable:
    """A .bim file, in its order.

    Attributes:
        code: chromosome by PLINK's numeric code: int8 (S,).
        position: base pairs: int64 (S,); a SNP with a negative one is left out of analyses, as in PLINK.
        name: (S,) words.
        alleles: A1 and A2; an allele "0" is unknown.
    """

    code: NDArray[np.int8]
    position: NDArray[np.int64]
    name: list[str]
    alleles: Pairs

    def __len__(self) -> int:
        return len(self.name)

    @property
    def a1(self) -> list[str]:
        """(S,) words, made when asked for."""
        return self.alleles.column(0)

    @property
    def a2(self) -> list[str]:
        """(S,) words, made when asked for."""
        return self.alleles.column(1)

    @property
    def chromosome(self) -> list[str]:
        """Chromosomes as 1..22, X, Y, XY, MT; 0 where unplaced."""
        return [LABELS[code] for code in self.code.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class CommonSnps:
    """The study's SNPs, in genome order: chromosome, position, name.

    Attributes:
        code: int8 (S,); position: int64 (S,); name: (S,) words: as SnpTable's.
        first, second: the two alleles, `first` < `second` alphabetically. Sites count copies of `first`.
    """

    code: NDArray[np.int8]
    position: NDArray[np.int64]
    name: list[str]
    first: list[str]
    second: list[str]

    def __len__(self) -> int:
        return len(self.name)

    @property
    def chromosome(self) -> list[str]:
        """Chromosomes as 1..22, X, Y, XY, MT; 0 where unplaced."""
        return [LABELS[code] for code in self.code.tolist()]

    def arrays(self) -> Arrays:
        """As they travel: the object `snps` of a study."""
        return {
            "chromosome": self.code,
            "position": self.position,
            "name": text.pack(self.name),
            "first": text.pack(self.first),
            "second": text.pack(self.second),
        }

    @classmethod
    def read(cls, arrays: Arrays) -> CommonSnps:
        """From what `arrays` made."""
        return cls(
            code=np.asarray(arrays["chromosome"], np.int8),
            position=np.asarray(arrays["position"], np.int64),
            name=text.unpack(arrays["name"]),
            first=text.unpack(arrays["first"]),
            second=text.unpack(arrays["second"]),
        )
