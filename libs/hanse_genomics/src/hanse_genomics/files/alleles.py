"""Whether a cohort's two alleles are the study's: as they are, or read from the other strand of the DNA."""

from __future__ import annotations

from hanse_genomics.files.snps import UNKNOWN

_COMPLEMENT = {"A": "T", "C": "G", "G": "C", "T": "A", UNKNOWN: UNKNOWN}


def oriented(a1: str, a2: str, first: str, second: str) -> tuple[bool, bool] | None:
    """How a cohort's alleles lie to the study's.

    An unknown allele ("0") agrees with any. Strands are only considered for single bases, and only where the alleles do
    not agree as they are: for A/T and C/G nobody can tell.

    Args:
        a1, a2: the cohort's, as in its .bim file; first, second: the study's.

    Returns:
        (whether A1 is `second`, whether the strand is flipped); None where they do not agree.
    """
    for flipped in (False, True):
        one, other = (complement(a1), complement(a2)) if flipped else (a1, a2)
        if one in (first, UNKNOWN) and other in (second, UNKNOWN):
            return False, flipped
        if one in (second, UNKNOWN) and other in (first, UNKNOWN):
            return True, flipped
    return None


def complement(allele: str) -> str:
    """The allele as the other strand has it; what is no single base stays as it is."""
    return _COMPLEMENT.get(allele, allele)


def ambiguous(first: str, second: str) -> bool:
    """Whether the two alleles are each other's complement, so that strands cannot be told apart: A/T, C/G."""
    return first != UNKNOWN and _COMPLEMENT.get(first) == second
