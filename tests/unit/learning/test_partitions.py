"""Partitions: every example in exactly one site, the same for the same seed, and each skewed as it says."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hanse_fabric.errors import HanseError
from hanse_learning.partition import (
    PARTITIONS,
    by_feature,
    dirichlet_labels,
    dirichlet_sizes,
    exact_classes,
    iid,
    majority_classes,
    partition,
    rotating_classes,
    table,
)

LABELS = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 500))
CONFIGS: list[dict[str, Any]] = [
    {"name": "iid"},
    {"name": "classes", "classes_per_site": 2},
    {"name": "classes", "classes_per_site": 4, "balance": 0.5},
    {"name": "majority"},
    {"name": "rotating", "classes_per_site": 4},
    {"name": "dirichlet", "alpha": 0.3},
    {"name": "sizes", "alpha": 0.5},
    {"name": "dominance"},
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: "-".join(map(str, config.values())))
def test_every_example_is_in_exactly_one_site_and_the_seed_decides_where(config: dict[str, Any]) -> None:
    shares = partition(config, LABELS, 5, seed=7)
    assert len(shares) == 5
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(LABELS)))
    again = partition(config, LABELS, 5, seed=7)
    assert all(np.array_equal(one, other) for one, other in zip(shares, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(shares, partition(config, LABELS, 5, seed=8), strict=True))


@settings(max_examples=50, deadline=None)
@given(labels=st.lists(st.integers(0, 6), min_size=20, max_size=200), sites=st.integers(1, 9), seed=st.integers(0, 99))
def test_shares_cover_any_labels(labels: list[int], sites: int, seed: int) -> None:
    array = np.array(labels)
    for shares in (
        iid(array, sites, seed=seed),
        majority_classes(array, sites, majority=1, seed=seed),
        dirichlet_labels(array, sites, alpha=5.0, least=0, seed=seed),
        dirichlet_sizes(array, sites, alpha=5.0, least=0, seed=seed),
        by_feature(array.astype(float), sites, overlap=0.3, seed=seed),
    ):
        assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(array)))


def test_iid_shares_have_every_class_alike() -> None:
    counts = table(iid(LABELS, 10, seed=3), LABELS)
    assert (counts == 50).all()


@pytest.mark.parametrize(("sites", "per_site", "balance"), [(10, 1, 1.0), (10, 2, 1.0), (10, 4, 0.3), (100, 3, 1.0)])
def test_exact_classes_gives_each_site_so_many_classes(sites: int, per_site: int, balance: float) -> None:
    counts = table(exact_classes(LABELS, sites, classes_per_site=per_site, balance=balance, seed=5), LABELS)
    assert ((counts > 0).sum(axis=1) == per_site).all()


def test_majority_classes_hold_their_share_of_each_site() -> None:
    counts = table(majority_classes(LABELS, 10, seed=0), LABELS)
    two = np.sort(counts, axis=1)[:, -2:].sum(axis=1) / counts.sum(axis=1)
    assert two.mean() == pytest.approx(0.9, abs=0.01)
    assert two.min() > 0.88


def test_rotating_classes_is_the_papers_table() -> None:
    for per_site, rows in {
        2: [{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}],
        4: [{0, 1, 2, 3}, {2, 3, 4, 5}, {4, 5, 6, 7}, {6, 7, 8, 9}, {8, 9, 0, 1}],
    }.items():
        counts = table(rotating_classes(LABELS, 5, classes_per_site=per_site), LABELS)
        assert [set(np.flatnonzero(row).tolist()) for row in counts] == rows
        assert (counts.sum(axis=1) == 1000).all()
        assert (counts[counts > 0] == 1000 // per_site).all()
    eight = table(rotating_classes(LABELS, 5, classes_per_site=8), LABELS)
    assert set(np.flatnonzero(eight[2]).tolist()) == {4, 5, 6, 7, 8, 9, 0, 1}
    assert (table(rotating_classes(LABELS, 5, classes_per_site=10), LABELS) == 100).all()


def test_smaller_alpha_is_more_skew() -> None:
    def spread(alpha: float) -> float:
        counts = table(dirichlet_labels(LABELS, 10, alpha=alpha, least=0, seed=2), LABELS)
        return float((counts / counts.sum(axis=0)).std())

    assert spread(0.1) > 2 * spread(1.0) > 4 * spread(100.0)
    sizes = [len(share) for share in dirichlet_sizes(LABELS, 10, alpha=0.5, seed=2)]
    assert max(sizes) > 4 * min(sizes)


def test_a_feature_grows_from_site_to_site() -> None:
    feature = np.random.default_rng(0).normal(size=900)
    shares = by_feature(feature, 3, seed=0)
    assert [len(share) for share in shares] == [300, 300, 300]
    for lower, upper in itertools.pairwise(shares):
        assert feature[lower].max() <= feature[upper].min()


@pytest.mark.parametrize(
    ("config", "sites", "field"),
    [
        ({"name": "even"}, 5, "partition.name"),
        ({"name": "dirichlet"}, 5, "partition.alpha"),
        ({"name": "dirichlet", "alpha": 0}, 5, "alpha"),
        ({"name": "dirichlet", "alpha": 1.0, "seed": 3}, 5, "partition.seed"),
        ({"name": "dirichlet", "alpha": 0.001, "least": 500}, 10, "alpha"),
        ({"name": "classes", "classes_per_site": 3}, 5, "sites * classes_per_site"),
        ({"name": "classes", "classes_per_site": 11}, 10, "classes_per_site"),
        ({"name": "rotating", "classes_per_site": 3}, 5, "classes_per_site"),
        ({"name": "rotating", "classes_per_site": 2}, 4, "sites"),
        ({"name": "majority", "share": 1.5}, 5, "share"),
        ({"name": "iid"}, 0, "sites"),
    ],
)
def test_an_impossible_partition_is_refused_with_the_field(config: dict[str, Any], sites: int, field: str) -> None:
    with pytest.raises(HanseError) as caught:
        partition(config, LABELS, sites, seed=0)
    assert field in caught.value.message


def test_every_partition_has_a_name() -> None:
    assert {str(config["name"]) for config in CONFIGS} == set(PARTITIONS)
