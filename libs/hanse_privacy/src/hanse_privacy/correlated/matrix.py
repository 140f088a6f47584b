"""Lower triangular Toeplitz matrices C by the numbers that a task carries: banded ones and buffered ones. No numpy.

Their first column c has c_0 = 1, and
- banded: c_1, ..., c_(b-1) are given, the rest is 0 (Choquette-Choo et al. 2023, "(Amplified) Banded Matrix
  Factorization"; Kalinin and Lampert 2024);
- buffered: c_i = sum over j of weight_j decay_j^(i-1) (BLT; Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024;
  McMahan, Xu, Zhang 2024).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from itertools import accumulate

from hanse_fabric.messages.privacy import Correlation

FRACTION = 8
"""Bits after the point of a banded matrix's numbers, and of their products with whole numbers."""

LEAST_SIGMA, LARGEST_SIGMA = 4, 2**40
"""Deviations of independent noise, in steps of the grid that correlated noise is made on."""


def column(matrix: Correlation, rounds: int) -> list[float]:
    """The first column of C: c_0 = 1, c_1, ..., one number for each round."""
    if not matrix.decays:
        return ([1.0, *matrix.weights] + [0.0] * rounds)[:rounds]
    found, powers = [1.0], list(matrix.weights)
    while len(found) < rounds:
        found.append(sum(powers))
        powers = [power * decay for power, decay in zip(powers, matrix.decays, strict=True)]
    return found


def inverse_column(matrix: Correlation, rounds: int) -> list[float]:
    """The first column of inv(C): what a round's own draw adds to its noise, and to that of the rounds after it."""
    if not matrix.decays:
        weights = matrix.weights
        found = [1.0]
        for at in range(1, rounds):
            found.append(-sum(weight * found[at - 1 - lag] for lag, weight in enumerate(weights[:at])))
        return found
    found, buffers = [], [0.0] * len(matrix.decays)
    for at in range(rounds):
        made = (at == 0) - sum(weight * kept for weight, kept in zip(matrix.weights, buffers, strict=True))
        buffers = [decay * kept + made for decay, kept in zip(matrix.decays, buffers, strict=True)]
        found.append(made)
    return found


def round_name(number: int, participants: Iterable[str]) -> str:
    """What a round's noise is known by: another for other participants, whose updates are other ones."""
    return hashlib.sha256("\n".join((str(number), *sorted(participants))).encode()).hexdigest()[:32]


def prefix_error(matrix: Correlation, rounds: int) -> float:
    """Root of the mean square, over rounds, of the noise in the sum of all rounds so far, per unit of Z's deviation.

    The prefix sums' matrix A of ones gives B = A inv(C), whose first column is the running sum of inv(C)'s: the error
    of round t is the root of b_0^2 + ... + b_t^2 (Denisov et al. 2022, section 3).
    """
    sums = accumulate(inverse_column(matrix, rounds))
    return math.sqrt(sum((rounds - at) * value * value for at, value in enumerate(sums)) / rounds)


def widest(matrix: Correlation, rounds: int) -> float:
    """The largest deviation of any round's noise, per unit of Z's: the last one's."""
    return math.hypot(*inverse_column(matrix, rounds))
