"""Which two alleles a study counts, and whether a cohort's are these: as they are, or from the other strand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hanse_genomics.files.snps import UNKNOWN

Pair = tuple[str, str]

_COMPLEMENT = {"A": "T", "C": "G", "G": "C", "T": "A", UNKNOWN: UNKNOWN}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done with a SNP, given the cohorts' alleles.

    Attributes:
        pair: the study's alleles, in alphabetical order.
        flipped, incompatible: by cohort: it has them from the other strand; it has others.
        ambiguous: strands cannot be told apart: A/T, C/G.
    """

    pair: Pair
    flipped: tuple[bool, ...]
    incompatible: tuple[bool, ...]
    ambiguous: bool


def decide(pairs: Sequence[Pair]) -> Verdict:
    """The study's alleles of a SNP: the pair that most cohorts have, among equals the alphabetically first.

    A cohort in which an allele is unknown has no vote; where it is unknown to all, what they know together is the pair.

    Args:
        pairs: by cohort its two alleles in alphabetical order; "0" is unknown.
    """
    votes = Counter(pair for pair in pairs if UNKNOWN not in pair)
    if votes:
        pair = min(votes, key=lambda one: (-votes[one], one))
    else:
        known = sorted({allele for pair in pairs for allele in pair} - {UNKNOWN})
        one, other = (*known, UNKNOWN, UNKNOWN)[:2]
        pair = (min(one, other), max(one, other))
    turns = [oriented(*own, *pair) for own in pairs]
    return Verdict(
        pair=pair,
        flipped=tuple(turn is not None and turn[1] for turn in turns),
        incompatible=tuple(turn is None for turn in turns),
        ambiguous=ambiguous(*pair),
    )


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
        one, other = (_COMPLEMENT.get(a1), _COMPLEMENT.get(a2)) if flipped else (a1, a2)
        if one is None or other is None:
            return None
        if one in (first, UNKNOWN) and other in (second, UNKNOWN):
            return False, flipped
        if one in (second, UNKNOWN) and other in (first, UNKNOWN):
            return True, flipped
    return None


def ambiguous(first: str, second: str) -> bool:
    """Whether the two alleles are each other's complement, so that strands cannot be told apart: A/T, C/G."""
    return first != UNKNOWN and _COMPLEMENT.get(first) == second
