"""Of how many sites combinations of sums speak, exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from itertools import combinations


def members(*numbers: int) -> frozenset[bytes]:
    """Sites, as works remember them."""
    return frozenset(number.to_bytes(16, "big") for number in numbers)


def rank(matrix: Sequence[Sequence[int]]) -> int:
    """Over the rationals. By Bareiss, in whole numbers: each division is without remainder."""
    rows, done, last = [list(row) for row in matrix], 0, 1
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((row for row in range(done, len(rows)) if rows[row][column]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        first = rows[done]
        for row in range(done + 1, len(rows)):
            factor = rows[row][column]
            rows[row] = [(first[column] * a - factor * b) // last for a, b in zip(rows[row], first, strict=True)]
        done, last = done + 1, first[column]
    return done


def smallest_support(sets: Collection[Collection[int]], honest: Collection[int]) -> int | None:
    """The fewest honest members that any rational combination of the sets' sums speaks of, at least one; None: none."""
    return _smallest(frozenset(tuple(int(site in one) for site in honest) for one in sets), len(honest))


@cache
def _smallest(rows: frozenset[tuple[int, ...]], count: int) -> int | None:
    """Remembered: most steps of a hub that lies add no sum to those that it has."""
    whole = rank(sorted(rows))
    for size in range(1, count + 1):
        for kept in combinations(range(count), size):
            # A combination that vanishes outside of `kept`, and not everywhere.
            if rank([[row[at] for at in range(count) if at not in kept] for row in rows]) < whole:
                return size
    return None
