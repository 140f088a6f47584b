"""The matrix with the least error for what it hides: prefix error times sensitivity. Standard library only: hubs ask.

By BFGS with exact gradients (reverse mode, written out). What is found is rounded to multiples of 2^-8 (banded), so
that sites reckon with it in whole numbers; the error is flat there, and grows by less than 1e-4 of itself.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import assert_never

from hanse_fabric.errors import invalid
from hanse_fabric.messages.privacy import BandedMatrix, BufferedMatrix, Correlation, Privacy
from hanse_privacy.correlated.descent import least
from hanse_privacy.correlated.matrix import FRACTION
from hanse_privacy.correlated.sensitivity import most_participations, sensitivity, summed_columns

LARGEST_WORK = 2_000_000
"""Rounds times bands, or buffers: what can be optimised in some seconds."""
_WIDEST_LOGIT = 12.0

Floats = list[float]


def matrix_of(privacy: Privacy, rounds: int) -> Correlation | None:
    """The matrix that a job's section asks for; None where its noise is not correlated.

    Raises:
        HanseError: INVALID_INPUT for one that does not fit the rounds.
    """
    separation = privacy.min_separation
    if privacy.matrix is None or separation is None:  # the section has both of them, or neither
        return None
    match privacy.matrix:
        case BandedMatrix(bands=bands):
            return banded(bands, rounds=rounds, separation=separation)
        case BufferedMatrix(buffers=buffers):
            return buffered(buffers, rounds=rounds, separation=separation)
        case unknown:
            assert_never(unknown)


@lru_cache(maxsize=64)
def banded(bands: int, *, rounds: int, separation: int) -> Correlation:
    """The banded matrix of least error; bands: 1 is the identity, whose noise is independent.

    Raises:
        HanseError: INVALID_INPUT for bands that do not fit the separation, which does not fit the rounds.
    """
    check_fit("bands", bands, separation, rounds)
    if bands > separation:
        raise invalid("privacy.matrix.bands", bands, f"at most privacy.min_separation, {separation}")
    counts = [sum(1 for first in range(0, rounds, separation) if first + lag < rounds) for lag in range(bands)]

    def value(weights: Floats) -> tuple[float, Floats]:
        """Logarithm of the square of the whole error, and its gradient in c_1, ..., c_(b-1)."""
        squared, slopes = _banded_error(weights, rounds)
        hidden = counts[0] + sum(count * weight * weight for count, weight in zip(counts[1:], weights, strict=True))
        gradient = [
            slope / squared + 2 * count * weight / hidden
            for slope, count, weight in zip(slopes, counts[1:], weights, strict=True)
        ]
        return math.log(squared) + math.log(hidden), gradient

    found = least(value, root_weights(bands)) if bands > 1 else []
    unit = float(1 << FRACTION)
    return Correlation(weights=tuple(max(0.0, round(weight * unit) / unit) for weight in found))


@lru_cache(maxsize=64)
def buffered(buffers: int, *, rounds: int, separation: int) -> Correlation:
    """The buffered matrix of least error, with numbers that fall.

    Raises:
        HanseError: INVALID_INPUT as `banded`.
    """
    check_fit("buffers", buffers, separation, rounds)
    count = most_participations(rounds, separation)

    def value(point: Floats) -> tuple[float, Floats]:
        decays, weights = _parts(point)
        squared, by_weight, by_decay = _buffered_error(weights, decays, rounds)
        hidden, own_weight, own_decay = _buffered_hidden(weights, decays, rounds, separation, count)
        gradient = []
        for at, (decay, weight) in enumerate(zip(decays, weights, strict=True)):
            by = by_decay[at] / squared + own_decay[at] / hidden
            gradient.append(by * decay * (1 - decay) if abs(point[at]) < _WIDEST_LOGIT else 0.0)
            by = by_weight[at] / squared + own_weight[at] / hidden
            gradient.append(by * weight)
        return math.log(squared) + math.log(hidden), gradient[0::2] + gradient[1::2]

    starts = [_spread(buffers, reach) for reach in sorted({float(rounds), float(separation), math.sqrt(rounds)})]
    best = min((least(value, start) for start in starts), key=lambda point: value(point)[0])
    decays, weights = _parts(best)
    total = sum(weights)
    if total > 1:  # the bound on sensitivity is of numbers that fall from c_0 = 1 on
        weights = [weight / total for weight in weights]
    made = Correlation(weights=tuple(weights), decays=tuple(decays))
    sensitivity(made, rounds=rounds, separation=separation)
    return made


def root_weights(bands: int) -> Floats:
    """c_1, c_2, ... of the root of the matrix of ones: (2i choose i)/4^i (Fichtenberger, Henzinger, Upadhyay 2023)."""
    found, value = [], 1.0
    for at in range(1, bands):
        value *= (2 * at - 1) / (2 * at)
        found.append(value)
    return found


def check_fit(what: str, number: int, separation: int, rounds: int) -> None:
    """Refuse what does not fit the rounds.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if not 1 <= separation <= rounds:
        raise invalid("privacy.min_separation", separation, f"1 to the number of rounds, {rounds}")
    if not 1 <= number <= rounds:
        raise invalid(f"privacy.matrix.{what}", number, f"1 to the number of rounds, {rounds}")
    if number * rounds > LARGEST_WORK:
        raise invalid(f"privacy.matrix.{what}", number, f"at most {LARGEST_WORK // rounds} with {rounds} rounds")


def _error(inverse: Floats) -> tuple[float, Floats]:
    """Rounds times the square of the prefix error, from the first column of inv(C), and its gradient in that."""
    rounds, running, sums = len(inverse), 0.0, []
    for value in inverse:
        running += value
        sums.append(running)
    total, slopes, behind = 0.0, [0.0] * rounds, 0.0
    for at in range(rounds - 1, -1, -1):
        weighed = (rounds - at) * sums[at]
        total += weighed * sums[at]
        behind += 2 * weighed
        slopes[at] = behind
    return total, slopes


def _banded_error(weights: Floats, rounds: int) -> tuple[float, Floats]:
    lags, turned = len(weights), weights[::-1]
    inverse = [0.0] * lags + [1.0]  # padded, so that every round looks back at as many
    for at in range(1, rounds):
        inverse.append(-_dot(turned, inverse, at))
    total, slopes = _error(inverse[lags:])
    adjoint = slopes + [0.0] * lags
    for at in range(rounds - 1, -1, -1):
        adjoint[at] -= _dot(weights, adjoint, at + 1)
    found = [-_dot(inverse[lags:], adjoint, lag) for lag in range(1, lags + 1)]
    return total, found


def _dot(one: Floats, other: Floats, at: int) -> float:
    return sum(map(float.__mul__, one, other[at : at + len(one)]))


def _buffered_error(weights: Floats, decays: Floats, rounds: int) -> tuple[float, Floats, Floats]:
    """(rounds times the square of the prefix error, its gradients in weights and decays)."""
    own = range(len(weights))
    inverse, kept = [], [[0.0] * len(weights)]
    for at in range(rounds):
        buffers = kept[-1]
        made = (at == 0) - sum(weights[j] * buffers[j] for j in own)
        inverse.append(made)
        kept.append([decays[j] * buffers[j] + made for j in own])
    total, slopes = _error(inverse)
    by_weight, by_decay, adjoint = [0.0] * len(weights), [0.0] * len(weights), [0.0] * len(weights)
    for at in range(rounds - 1, -1, -1):
        buffers, made = kept[at], slopes[at] + sum(adjoint)
        for j in own:
            by_weight[j] -= made * buffers[j]
            by_decay[j] += adjoint[j] * buffers[j]
            adjoint[j] = decays[j] * adjoint[j] - weights[j] * made
    return total, by_weight, by_decay


def _buffered_hidden(
    weights: Floats, decays: Floats, rounds: int, separation: int, count: int
) -> tuple[float, Floats, Floats]:
    """(square of the sensitivity, its gradients in weights and decays)."""
    own = range(len(weights))
    powers = [[1.0] * len(weights)]
    for _ in range(2, rounds):
        powers.append([power * decay for power, decay in zip(powers[-1], decays, strict=True)])
    first = [1.0] + [sum(weights[j] * row[j] for j in own) for row in powers[: rounds - 1]]
    summed = summed_columns(first, separation, count)
    # The gradient in c is the same sum of columns, transposed: by turning the order of rounds.
    slopes = summed_columns([2 * value for value in summed[::-1]], separation, count)[::-1]
    by_weight, by_decay = [0.0] * len(weights), [0.0] * len(weights)
    for at in range(1, rounds):
        row, slope = powers[at - 1], slopes[at]
        for j in own:
            by_weight[j] += slope * row[j]
            by_decay[j] += slope * weights[j] * (at - 1) * (powers[at - 2][j] if at > 1 else 0.0)
    return math.fsum(value * value for value in summed), by_weight, by_decay


def _parts(point: Floats) -> tuple[Floats, Floats]:
    """Decays in (0, 1) and weights above 0 of a point without bounds."""
    half = len(point) // 2
    decays = [1 / (1 + math.exp(-max(-_WIDEST_LOGIT, min(_WIDEST_LOGIT, logit)))) for logit in point[:half]]
    return decays, [math.exp(min(log, 3.0)) for log in point[half:]]


def _spread(buffers: int, reach: float) -> Floats:
    """Decays whose memories are spread evenly, by their logarithms, from 2 rounds to `reach`; all weights are 1/2."""
    spans = [2.0 * (max(reach, 4.0) / 2) ** ((at + 1) / (buffers + 1)) for at in range(buffers)]
    return [math.log(span - 1) for span in spans] + [math.log(0.5 / buffers)] * buffers
