"""How much of C X one unit can change: exactly, for Toeplitz matrices. No numpy.

A unit takes part at most `participations` times, with rounds at least `separation` apart, and what it adds each time is
at most 1 long. Where C has no number below 0, all that it adds may be taken for one and the same vector, and the
sensitivity is the largest norm of a sum of columns of C that may be chosen so (Choquette-Choo, McMahan, Rush, Thakurta
2023, "Multi-Epoch Matrix Factorization", corollary 2.1). The sum that is largest is that of columns 0, s, 2 s, ...
- where c falls, or stays (Kalinin and Lampert 2024, theorem 2);
- where at most s numbers of c are not 0: then columns that may be chosen together share no row, so that their squares
  add up, and earlier columns are no shorter.
Of any other matrix no bound is proved here, and it is refused.
"""

from __future__ import annotations

import math
from itertools import pairwise

from hanse_fabric.errors import invalid
from hanse_fabric.messages.privacy import Correlation
from hanse_privacy.correlated.matrix import column

_ROUNDING = 1 + 1e-9
"""More than the rounding of all sums and products here can take off."""


def most_participations(rounds: int, separation: int) -> int:
    """How often a unit can take part in so many rounds."""
    return -(-rounds // separation)


def sensitivity(matrix: Correlation, *, rounds: int, separation: int, participations: int | None = None) -> float:
    """The sensitivity of C X in the L2 norm, per unit of length of what is added in one round: never too small.

    Args:
        separation: from one participation to the next, in rounds: 1 is every round.
        participations: at most; None: as many as the rounds allow.

    Raises:
        HanseError: INVALID_INPUT for a separation beyond the rounds, and for a matrix without a proved bound.
    """
    if not 1 <= separation <= rounds:
        raise invalid("privacy.min_separation", separation, f"1 to the number of rounds, {rounds}")
    most = most_participations(rounds, separation)
    count = most if participations is None else min(participations, most)
    if count < 1:
        raise invalid("privacy.participations", participations, "at least 1")
    first = column(matrix, rounds)
    check_bound(first, separation)
    return _ROUNDING * math.sqrt(math.fsum(value * value for value in summed_columns(first, separation, count)))


def summed_columns(first: list[float], separation: int, count: int) -> list[float]:
    """The sum of columns 0, s, 2 s, ..., so many, of the Toeplitz matrix with this first column."""
    total = list(first)
    for at in range(separation, len(first)):
        total[at] += total[at - separation]
    beyond = count * separation  # what a column further on would have added
    return [value - (total[at - beyond] if at >= beyond else 0.0) for at, value in enumerate(total)]


def check_bound(first: list[float], separation: int) -> None:
    """Refuse a matrix of which no bound is proved.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if any(not 0 <= value < math.inf for value in first):
        raise invalid("privacy.matrix", "a number below 0", "none: no bound of its sensitivity is proved")
    falls = all(after <= before for before, after in pairwise(first))
    bands = max((at + 1 for at, value in enumerate(first) if value), default=1)
    if not falls and bands > separation:
        raise invalid("privacy.matrix", f"{bands} bands that rise", f"falling ones, or at most {separation} bands")
