"""A cohort's rows of the study's SNPs, turned so that every site counts copies of the same allele."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_genomics.arrays import Packed
from hanse_genomics.files.alleles import oriented
from hanse_genomics.files.cohort import Cohort
from hanse_genomics.files.pairs import Pairs
from hanse_genomics.files.snps import CommonSnps, SnpTable
from hanse_genomics.genotypes.packed import swap

POSITION_BITS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """The study's SNPs in a cohort's files.

    Attributes:
        rows: int64 (S,): each SNP's row in the .bim file.
        swapped: bool (S,): the cohort's A1 is the study's `second` allele.
        flipped: bool (S,): the cohort has it from the other strand.
    """

    cohort: Cohort
    rows: NDArray[np.int64]
    swapped: NDArray[np.bool_]
    flipped: NDArray[np.bool_]

    def packed(self, start: int, stop: int) -> Turned:
        """Genotypes of the study's SNPs [start, stop), whose count is copies of `first`; read when asked for."""
        return Turned(self.cohort, self.rows[start:stop], self.swapped[start:stop])


@dataclass(frozen=True, slots=True, eq=False)
class Turned:
    """Rows of a cohort's .bed file, turned where its A1 is not the allele that the study counts (`PackedRows`)."""

    cohort: Cohort
    rows: NDArray[np.int64]
    swapped: NDArray[np.bool_]

    @property
    def shape(self) -> tuple[int, int]:
        """(S, ceil(n/4))."""
        return len(self.rows), self.cohort.bed.row_bytes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: slice | NDArray[np.int64], /) -> Packed:
        """Some of them: uint8 (s, ceil(n/4)).

        Raises:
            HanseError: CONFLICT when the file was changed since it was opened.
        """
        packed = self.cohort.packed(self.rows[rows])
        swap(packed, self.swapped[rows])
        return packed


def match(cohort: Cohort, snps: CommonSnps) -> Matched:
    """Find the study's SNPs in a cohort.

    Raises:
        HanseError: CONFLICT when one is not there, or with other alleles: the files are others than those that the
            study was opened with.
    """
    own = cohort.snps
    rows = find(own, snps)
    asked = Pairs.of(snps.first, snps.second)
    # There are few combinations of pairs, so each is looked at once; SNPs take what was found for theirs.
    both = own.alleles.number[rows] * len(asked.listed) + asked.number
    found = np.unique(both)
    turns = []
    for combined in found.tolist():
        mine, theirs = own.alleles.listed[combined // len(asked.listed)], asked.listed[combined % len(asked.listed)]
        turn = oriented(*mine, *theirs)
        if turn is None:
            name = snps.name[int(np.argmax(both == combined))]
            raise _changed(f"{name} has alleles {'/'.join(mine)}, the study has {'/'.join(theirs)}")
        turns.append(turn)
    turned = np.array(turns, dtype=bool).reshape(-1, 2)[np.searchsorted(found, both)]
    return Matched(cohort, rows, turned[:, 0].copy(), turned[:, 1].copy())


def find(own: SnpTable, snps: CommonSnps) -> NDArray[np.int64]:
    """Rows of the study's SNPs in a table: int64 (S,), by chromosome, position and name.

    Raises:
        HanseError: CONFLICT when one is not there.
    """
    if not len(snps):
        return np.zeros(0, dtype=np.int64)
    keys, wanted = _keys(own), _keys(snps)
    if own.name == snps.name and np.array_equal(keys, wanted):
        return np.arange(len(snps))  # as mostly
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    low = np.searchsorted(ordered, wanted, side="left")
    count = np.searchsorted(ordered, wanted, side="right") - low
    rows = order[np.minimum(low, len(order) - 1)]
    # Where several SNPs stand at one place, and positions are often not known at all, the name decides.
    for at in np.flatnonzero(count != 1).tolist():
        if count[at] == 0:
            raise _changed(f"{snps.name[at]} is not in the .bim file any more")
    several = np.flatnonzero(count > 1)
    if len(several):
        crowded = np.flatnonzero(np.isin(keys, np.unique(wanted[several])))
        row_of = {(int(keys[row]), own.name[row]): row for row in crowded.tolist()}
        rows[several] = [row_of.get((int(wanted[at]), snps.name[at]), 0) for at in several.tolist()]
    names = _taken(own.name, rows)
    if names != snps.name:
        at = next(at for at, name in enumerate(names) if name != snps.name[at])
        raise _changed(f"{snps.name[at]} is not in the .bim file any more")
    return rows


def _taken(words: list[str], rows: NDArray[np.int64]) -> list[str]:
    """Words by row; the list itself where all are taken in their order, as mostly."""
    if len(rows) == len(words) and np.array_equal(rows, np.arange(len(rows))):
        return words
    return [words[row] for row in rows.tolist()]


def _keys(snps: SnpTable | CommonSnps) -> NDArray[np.int64]:
    return (snps.code.astype(np.int64) << POSITION_BITS) + snps.position


def _changed(what: str) -> HanseError:
    return HanseError(
        ErrorCode.CONFLICT, f"the .bim file was changed while the study ran: {what}",
        hint="a study's files stay as they are until it has ended",
    )  # fmt: skip
