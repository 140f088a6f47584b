"""Equal shares: by chance (IID), or by the value of a feature (feature skew)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hanse_fabric.errors import invalid
from hanse_learning.partition.shares import Labels, Partition, check_sites, shuffled


def iid(labels: Labels, sites: int, *, seed: int = 0) -> Partition:
    """Every class shared out evenly by chance; sizes differ by at most one.

    Args:
        labels: (n,) integers.

    Raises:
        HanseError: INVALID_INPUT for more sites than examples.
    """
    check_sites(sites, len(labels))
    generator = np.random.default_rng(seed)
    # One long deal over all classes, so that remainders of classes do not pile up at the first sites.
    order = np.concatenate([generator.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)])
    return shuffled([[order[site::sites]] for site in range(sites)], generator)


def by_feature(feature: NDArray[np.floating], sites: int, *, overlap: float = 0.0, seed: int = 0) -> Partition:
    """Equal shares along one feature: the first site has the smallest values, the last the largest.

    Args:
        feature: (n,) the values that sites differ in: a pixel's mean, an age, a principal component.
        overlap: share of the examples that are dealt by chance instead.

    Raises:
        HanseError: INVALID_INPUT for an overlap outside [0, 1], values that are not finite, or too many sites.
    """
    check_sites(sites, len(feature))
    if not 0 <= overlap <= 1:
        raise invalid("overlap", overlap, "a share in [0, 1]")
    if not np.isfinite(feature).all():
        raise invalid("feature", "values that are not finite", "finite numbers")
    generator = np.random.default_rng(seed)
    dealt = np.sort(generator.permutation(len(feature))[: round(overlap * len(feature))])
    left = np.setdiff1d(np.arange(len(feature)), dealt)
    ordered = left[np.argsort(feature[left], kind="stable")]
    dealt = generator.permutation(dealt)
    return shuffled([[part, dealt[site::sites]] for site, part in enumerate(np.array_split(ordered, sites))], generator)
