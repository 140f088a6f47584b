"""Two columns of alleles as numbers: a million SNPs have a dozen pairs, or hundreds, and each is looked at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of words by SNP.

    Attributes:
        listed: (P,) the pairs that differ, in alphabetical order.
        number: int64 (S,): which of them each SNP has.
    """

    listed: list[tuple[str, str]]
    number: NDArray[np.int64]

    @classmethod
    def of(cls, one: list[str], other: list[str]) -> Self:
        """The pairs of two columns: (S,) words each."""
        words = sorted({*one, *other})
        known = {word: at for at, word in enumerate(words)}
        first, second = (np.fromiter(map(known.__getitem__, column), np.int64, len(column)) for column in (one, other))
        both = first * len(words) + second
        found = np.unique(both)
        listed = [(words[at // len(words)], words[at % len(words)]) for at in found.tolist()]
        return cls(listed, np.searchsorted(found, both))

    def column(self, side: int) -> list[str]:
        """One of the two columns, 0 or 1: (S,) words."""
        return [self.listed[at][side] for at in self.number.tolist()]
