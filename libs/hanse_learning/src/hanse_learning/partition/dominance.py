"""Uneven shares of a data set among sites: deterministic, every example in exactly one site."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def label_skew(
    labels: NDArray[np.integer], sites: int, *, classes_per_site: int = 2, dominance: float = 0.9, seed: int = 0
) -> list[NDArray[np.int64]]:
    """Share examples out so that each site sees mostly a few classes.

    A share `dominance` of every class goes to the sites that have the class as one of their `classes_per_site`
    (consecutive in a seeded order of classes, so that neighbours overlap); the rest goes to all sites evenly. A class
    that no site has as its own goes to all sites evenly.

    Args:
        labels: (n,) integers.
        sites: how many shares.
        classes_per_site: how many classes dominate at a site.
        dominance: in [0, 1].
        seed: of all order.

    Returns:
        For each site the indices of its examples, in a shuffled order.
    """
    if sites < 1:
        raise ValueError(f"sites: {sites} is not a positive number")
    if not 0 <= dominance <= 1:
        raise ValueError(f"dominance: {dominance} is not in [0, 1]")
    generator = np.random.default_rng(seed)
    classes = generator.permutation(np.unique(labels))
    count = len(classes)
    own = [
        {int(classes[(site * count // sites + k) % count]) for k in range(min(classes_per_site, count))}
        for site in range(sites)
    ]
    shares: list[list[NDArray[np.int64]]] = [[] for _ in range(sites)]
    for label in classes:
        members = generator.permutation(np.flatnonzero(labels == label))
        owners = [site for site in range(sites) if int(label) in own[site]]
        cut = int(dominance * len(members)) if owners else 0
        for site, part in zip(owners, np.array_split(members[:cut], len(owners) or 1), strict=False):
            shares[site].append(part)
        first = int(generator.integers(sites))  # so that remainders do not always fall to the first sites
        for i, part in enumerate(np.array_split(members[cut:], sites)):
            shares[(first + i) % sites].append(part)
    return [generator.permutation(np.concatenate(parts)).astype(np.int64) for parts in shares]
