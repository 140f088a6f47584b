"""What all partitions share: their type, their checks, their table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid

Indices = NDArray[np.int64]
Labels = NDArray[np.integer]
Partition = list[Indices]


def check_sites(sites: int, examples: int) -> None:
    """Whether so many sites can have at least one example each.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if not 1 <= sites <= examples:
        raise invalid("sites", sites, f"1 to the number of examples, {examples}")


def shuffled(parts: Sequence[Sequence[NDArray[np.integer]]], generator: np.random.Generator) -> Partition:
    """Each site's pieces in one, in an order of its own."""
    empty = np.empty(0, np.int64)
    return [generator.permutation(np.concatenate([empty, *pieces]).astype(np.int64)) for pieces in parts]


def table(shares: Sequence[Indices], labels: Labels) -> NDArray[np.int64]:
    """(sites, classes) numbers of examples: the form of Mugunthan, 2022, Tables B.1 and B.2.

    Args:
        labels: (n,) integers from 0.
    """
    count = int(labels.max()) + 1
    return np.stack([np.bincount(labels[share], minlength=count) for share in shares]).astype(np.int64)
