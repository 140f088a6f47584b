"""Of how many sites combinations of sums speak, exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from itertools import combinations


def members(*numbers: int) -> frozenset[bytes]:
    """Sites, as works remember them."""
    return frozenset(number.to_bytes(16, "big") for number in numbers)


def rank(matrix: Sequence[Sequence[int]]) -> int:
    """Over the rationals."""
    rows: list[list[Fraction]] = [[Fraction(x) for x in row] for row in matrix]
    done = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((row for row in range(done, len(rows)) if rows[row][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        for row in range(done + 1, len(rows)):
            factor = rows[row][column] / rows[done][column]
            rows[row] = [a - factor * b for a, b in zip(rows[row], rows[done], strict=True)]
        done += 1
    return done


def smallest_support(sets: Collection[Collection[int]], honest: Collection[int]) -> int | None:
    """The fewest honest members that any rational combination of the sets' sums speaks of, at least one; None: none."""
    rows = [[int(site in one) for site in honest] for one in sets]
    whole = rank(rows)
    for size in range(1, len(honest) + 1):
        for kept in combinations(range(len(honest)), size):
            # A combination that vanishes outside of `kept`, and not everywhere.
            if rank([[row[at] for at in range(len(honest)) if at not in kept] for row in rows]) < whole:
                return size
    return None
