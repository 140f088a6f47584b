"""Skew drawn from Dirichlet distributions: of labels (Hsu et al., 2019), and of sizes."""

from __future__ import annotations

import numpy as np

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_learning.partition.shares import Labels, Partition, check_sites, shuffled

_TRIES = 1000


def dirichlet_labels(labels: Labels, sites: int, *, alpha: float, least: int = 1, seed: int = 0) -> Partition:
    """Every class is shared among the sites by proportions drawn from Dirichlet(alpha, ..., alpha).

    Args:
        labels: (n,) integers.
        alpha: concentration: small for skew, large for even shares.
        least: examples that every site has at least; proportions are drawn again until it holds.

    Raises:
        HanseError: INVALID_INPUT where 1,000 draws do not give each site so many.
    """
    _check(alpha, sites, least, len(labels))
    generator = np.random.default_rng(seed)
    classes = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(_TRIES):
        parts: list[list[np.ndarray]] = [[] for _ in range(sites)]
        for members in classes:
            cuts = _cuts(generator.dirichlet(np.full(sites, alpha)), len(members))
            for site, piece in enumerate(np.split(generator.permutation(members), cuts)):
                parts[site].append(piece)
        if min(sum(map(len, pieces)) for pieces in parts) >= least:
            return shuffled(parts, generator)
    raise _hopeless(alpha, sites, least)


def dirichlet_sizes(labels: Labels, sites: int, *, alpha: float, least: int = 1, seed: int = 0) -> Partition:
    """Quantity skew: sizes drawn from Dirichlet(alpha, ..., alpha), classes by chance alone.

    Args:
        labels: (n,) integers.
        least: examples that every site has at least.

    Raises:
        HanseError: INVALID_INPUT as `dirichlet_labels`.
    """
    _check(alpha, sites, least, len(labels))
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(labels))
    for _ in range(_TRIES):
        pieces = np.split(order, _cuts(generator.dirichlet(np.full(sites, alpha)), len(order)))
        if min(map(len, pieces)) >= least:
            return shuffled([[piece] for piece in pieces], generator)
    raise _hopeless(alpha, sites, least)


def _cuts(shares: np.ndarray, count: int) -> np.ndarray:
    cuts: np.ndarray = np.rint(np.cumsum(shares)[:-1] * count).astype(int)
    return cuts


def _check(alpha: float, sites: int, least: int, examples: int) -> None:
    if not 0 < alpha < float("inf"):
        raise invalid("alpha", alpha, "a positive number")
    if least < 0 or least * sites > examples:
        raise invalid("least", least, f"0 to {examples // max(sites, 1)}: {sites} sites share {examples} examples")
    check_sites(sites, examples)


def _hopeless(alpha: float, sites: int, least: int) -> HanseError:
    return HanseError(
        ErrorCode.INVALID_INPUT,
        f"alpha: {alpha:g} gave one of {sites} sites fewer than {least} examples, {_TRIES} times",
        hint="a larger alpha, fewer sites, or a smaller least",
    )
