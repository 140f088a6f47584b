"""Numbers made to ascend, changed as little as can be: isotonic regression. Pure, without numpy."""

from __future__ import annotations

from collections.abc import Sequence


def ascending(numbers: Sequence[float]) -> list[float]:
    """The ascending sequence with the least sum of squared differences (pool adjacent violators; Ayer, Brunk, Ewing,
    Reid and Silverman 1955)."""
    pools: list[tuple[float, int]] = []  # mean, and of how many
    for number in numbers:
        pools.append((number, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (low, few), (high, more) = pools.pop(), pools.pop()
            pools.append(((low * few + high * more) / (few + more), few + more))
    return [mean for mean, count in pools for _ in range(count)]
