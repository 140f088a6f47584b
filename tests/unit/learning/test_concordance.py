"""Concordance of numbers, from cells and the sites' own pairs: held against all pairs of the pooled examples, one by
one, and against SciPy and torchmetrics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy.stats import kendalltau
from torchmetrics.regression import ConcordanceCorrCoef

from hanse.evaluation_tables import curves_tables
from hanse_fabric.errors import HanseError
from hanse_learning.pooled.count import counts_of
from hanse_learning.pooled.derive import Pooled, pooled, summed
from hanse_learning.pooled.layout import MOST_WORDS, Counts, counts_in, finest, told_of
from hanse_learning.pooled.pairs import inversions
from hanse_schemas.job import check_job
from hanse_schemas.metrics import COARSE, FINEST_CELLS
from hanse_schemas.prepare import completed_job
from hanse_schemas.protocols import PROTOCOLS, asked_by_counts
from hanse_schemas.schema import ArraySchema, Column, TabularSchema
from hanse_schemas.subgroups import Subgroups
from hanse_schemas.target_bounds import check_bounds, completed_bounds
from hanse_workflows.metrics import EarlyStopping

Floats = NDArray[np.float64]
_NAMES = ("concordance", "concordance_correlation")


def cells(bounds: tuple[float, ...] = (-4.0, 4.0), bins: int = FINEST_CELLS, **more: Any) -> Counts:
    return Counts(_NAMES, "regression", 0, bins, bounds=bounds, **more)


def harrell(y: Floats, said: Floats) -> float:
    """All pairs, one by one; ties of what is said count half."""
    true, ranked = (
        np.greater.outer(each, each).view(np.int8) - np.less.outer(each, each).view(np.int8) for each in (y, said)
    )
    return float(((true * ranked).sum(dtype=np.int64) / np.count_nonzero(true) + 1) / 2)


def over_sites(counts: Counts, y: Floats, said: Floats, site: NDArray[np.int64]) -> Pooled:
    vectors = {
        str(each): counts_of(counts, said[site == each, None], y[site == each, None]) for each in np.unique(site)
    }
    return pooled(counts, summed(vectors, counts.words))


def drawn(seed: int, n: int, r: float, *, alike: bool) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """(values, what is said of them, site) of n examples, of which the sites may have other values."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=n)
    said = r * (r * y + np.sqrt(1 - r * r) * rng.normal(size=n))
    by = rng.normal(size=n) + (0 if alike else 1) * y
    return y, said, np.argsort(np.argsort(by)) * 3 // n


_value = st.one_of(st.floats(-9, 9), st.integers(-4, 4).map(float))


@given(st.lists(st.tuples(_value, _value, st.integers(0, 2)), min_size=1, max_size=60),
       st.sampled_from([4, 8, 16, 32, 64, 1024, FINEST_CELLS]))  # fmt: skip
@settings(deadline=None, max_examples=50)
def test_it_is_never_outside_of_what_is_told(rows: list[tuple[float, float, int]], bins: int) -> None:
    y, said, site = (np.array(column) for column in zip(*rows, strict=True))
    found = over_sites(cells((-4.0, -1.0, 0.0, 4.0), bins), y, said, site)
    if len(np.unique(y)) == 1:
        assert "concordance" in found.undefined or bins <= COARSE
    elif "concordance" in found.metrics:
        least, most = found.curves["concordance_between"]
        assert least - 1e-12 <= harrell(y, said) <= most + 1e-12
        assert 0 <= least <= found.metrics["concordance"] <= most <= 1


@pytest.mark.parametrize(
    ("n", "alike", "off"), [(300, True, 3e-3), (2000, True, 5e-4), (5000, True, 2e-4), (2000, False, 1e-3)]
)
def test_it_is_the_pooled_examples_whatever_the_sites_have(n: int, *, alike: bool, off: float) -> None:
    for seed, r in enumerate((0.3, 0.6, 0.9)):
        y, said, site = drawn(seed, n, r, alike=alike)
        assert over_sites(cells(), y, said, site).metrics["concordance"] == pytest.approx(harrell(y, said), abs=off)


def test_a_mean_of_the_sites_own_and_cells_alone_are_farther_off() -> None:
    y, said, site = drawn(0, 600, 0.6, alike=False)
    exact = harrell(y, said)
    found = over_sites(cells(), y, said, site).metrics["concordance"]
    own = np.mean([harrell(y[site == at], said[site == at]) for at in range(3)])
    coarse = over_sites(cells(bins=32), y, said, site).metrics["concordance"]
    assert abs(found - exact) < 1e-3
    assert abs(own - exact) > 0.02
    assert 0.005 < abs(coarse - exact) < 0.1


@pytest.mark.parametrize("n", [2, 30, 500])
def test_one_sites_own_is_exact_with_ties_and_values_beyond_the_bounds(n: int) -> None:
    rng = np.random.default_rng(n)
    y, said = rng.integers(-8, 8, n).astype(float), rng.integers(-4, 4, n).astype(float)
    y[0] = 100.0
    found = over_sites(cells(), y, said, np.zeros(n, np.int64))
    assert found.metrics["concordance"] == pytest.approx(harrell(y, said), abs=1e-12)
    assert found.curves["concordance_between"] == pytest.approx([harrell(y, said)] * 2, abs=1e-12)


def test_without_ties_it_is_kendalls() -> None:
    y, said, _ = drawn(7, 400, 0.5, alike=True)
    alone = over_sites(cells(), y, said, np.zeros(400, np.int64))
    assert alone.metrics["concordance"] == pytest.approx((kendalltau(y, said).statistic + 1) / 2, abs=1e-12)


def test_a_heavy_tail_needs_its_bounds_and_the_interval_tells_it() -> None:
    z, said, site = drawn(3, 3000, 0.7, alike=False)
    days, guessed = np.exp(1.5 * z), np.exp(1.5 * said)
    exact = harrell(days, guessed)
    wide = over_sites(cells((0.0, 1000.0)), days, guessed, site)
    fitted = over_sites(cells((0.0, 0.2, 0.5, 1.0, 2.0, 5.0, 1000.0)), days, guessed, site)
    width = [
        found.curves["concordance_between"][1] - found.curves["concordance_between"][0] for found in (wide, fitted)
    ]
    assert width[0] > 0.3 > 0.05 > width[1]
    assert fitted.metrics["concordance"] == pytest.approx(exact, abs=1e-3)
    (table,) = curves_tables(fitted.curves)
    assert table.head == ("concordance of all examples: at least", "at most")


@given(st.lists(st.integers(0, 20), max_size=40))
def test_pairs_out_of_order_are_counted(ranks: list[int]) -> None:
    expected = sum(one > other for at, one in enumerate(ranks) for other in ranks[at + 1 :])
    assert inversions(np.array(ranks, np.int64)) == expected


@pytest.mark.parametrize("alike", [True, False])
def test_lins_coefficient_is_torchmetrics(*, alike: bool) -> None:
    y, said, site = drawn(1, 500, 0.5, alike=alike)
    oracle = ConcordanceCorrCoef().double()(torch.tensor(said + 3), torch.tensor(y))
    found = over_sites(cells(), y, said + 3, site).metrics["concordance_correlation"]
    # Its variances are of n - 1, and so are not those of Lin's paper; the limit is the same.
    assert found == pytest.approx(float(oracle), rel=3e-3)
    exact = 2 * np.cov(y, said, bias=True)[0, 1] / (y.var() + said.var() + (y.mean() - said.mean() - 3) ** 2)
    assert found == pytest.approx(exact, abs=1e-12)


def test_values_that_do_not_vary_have_reasons() -> None:
    same = np.full(4, 2.0)
    found = over_sites(cells(), same, same, np.array([0, 0, 1, 1]))
    assert found.undefined["concordance"] == "no two examples are known to have different values"
    assert found.undefined["concordance_correlation"] == "all values are the same, and the model says so"


def test_counts_that_cannot_be_are_told_and_never_fail() -> None:
    y, said, site = drawn(0, 100, 0.5, alike=True)
    counts = cells()
    words = counts_of(counts, said[:, None], y[:, None])
    part, rng = counts.parts["pairs"], np.random.default_rng(0)
    for at in range(part.stop - 9, part.stop):
        wrong = words.copy()
        wrong[at] ^= np.uint64(1 << 40)
        assert "a site's are wrong" in pooled(counts, wrong).undefined["concordance"]
    more = words.copy()
    more[part.start] += np.uint64(1)
    assert "a site's are wrong" in pooled(counts, more).undefined["concordance"]
    for _ in range(20):
        wild = rng.integers(0, 2**63, counts.words, dtype=np.uint64) * np.uint64(2)
        assert "concordance" in pooled(counts, np.concatenate([words[:2], wild[2:]])).undefined
    with pytest.raises(HanseError, match="one value of each example"):
        counts_of(counts, np.zeros((3, 2)), np.zeros((3, 2)))
    assert site.max() == 2


_SCHEMA = TabularSchema(
    features=(Column(name="age"),), target="days", task="regression", target_bounds=(0.0, 7.0, 365.0)
)


def test_bounds_are_the_schemas_and_neither_a_job_nor_a_hub_moves_one() -> None:
    assert completed_bounds((), _SCHEMA) == completed_bounds((0.0, 7.0, 365.0), _SCHEMA) == (0.0, 7.0, 365.0)
    check_bounds((0.0, 7.0, 365.0), _SCHEMA)
    check_bounds((), _SCHEMA)
    bare = _SCHEMA.model_copy(update={"target_bounds": ()})
    for given_, schema in (((0.0, 7.5, 365.0), _SCHEMA), ((), bare), ((0.0, 1.0), bare), ((), None)):
        with pytest.raises(HanseError, match="target_bounds of the project's schema") as refused:
            completed_bounds(given_, schema)
        assert "target_bounds: [0, 100]" in (refused.value.hint or "")
    with pytest.raises(HanseError, match=r"evaluate\.bounds: they are not the target_bounds"):
        check_bounds((0.0, 7.5, 365.0), _SCHEMA)


@pytest.mark.parametrize("evaluate", [{"metrics": ["mae"]}, {}, {"metrics": []}])
def test_bounds_by_which_nothing_would_be_counted_are_refused_and_not_dropped(evaluate: dict[str, Any]) -> None:
    job = {"rounds": 1, "model": {"name": "linear"}, "evaluate": {**evaluate, "bounds": [0, 7, 365]}}
    for schema in (_SCHEMA, _SCHEMA.model_copy(update={"task": "classification", "classes": 2, "target_bounds": ()})):
        with pytest.raises(HanseError, match=r"evaluate\.bounds: .*: no metric of this job") as refused:
            completed_job(check_job(job), schema)
        assert "name it in evaluate.metrics, or leave evaluate.bounds out" in refused.value.hint
    named = {**job, "evaluate": {"metrics": ["concordance"], "bounds": [0, 7, 365]}}
    made = completed_job(check_job(named), _SCHEMA)
    assert completed_job(made, _SCHEMA) == made  # as it is submitted


def test_a_job_that_stops_by_concordance_has_it_and_more_of_it_is_better() -> None:
    job = {"rounds": 9, "model": {"name": "linear"}, "stop": {"metric": "concordance", "patience": 2}, "keep": "best"}
    made = completed_job(check_job(job), _SCHEMA)
    assert (made.evaluate.metrics, made.evaluate.bounds) == (("concordance",), (0.0, 7.0, 365.0))
    stopping = EarlyStopping(made.stop)
    verdicts = [stopping.observe({"concordance": value}) for value in (0.6, 0.7, 0.65, 0.5)]
    assert [verdict.best for verdict in verdicts] == [True, True, False, False]
    assert [bool(verdict.stop) for verdict in verdicts] == [False, False, False, True]


@pytest.mark.parametrize("wrong", [[1], [2, 1], [1, 1], [0, float("inf")], list(range(40))])
def test_bounds_that_are_none_are_refused_in_the_schema(wrong: list[float]) -> None:
    with pytest.raises(ValidationError, match="target_bounds"):
        TabularSchema(features=_SCHEMA.features, target="days", task="regression", target_bounds=tuple(wrong))
    for made in (TabularSchema, ArraySchema):
        of = {"features": _SCHEMA.features, "target": "days"} if made is TabularSchema else {"shape": (2,)}
        with pytest.raises(ValidationError, match="they belong to a regression"):
            made.model_validate({**of, "target_bounds": [0, 1]})


def test_a_task_names_its_bounds_and_cells_that_lie_within_each_other() -> None:
    counts = cells((0.0, 7.0, 365.0))
    assert counts_in({"evaluate": {"counts": told_of(counts)}}) == counts
    with pytest.raises(HanseError, match="target_bounds"):
        counts_in({"evaluate": {"counts": told_of(cells(()))}})
    for bins in (2, 3, 33, 6000):
        with pytest.raises(HanseError, match="another power of two"):
            counts_in({"evaluate": {"counts": told_of(cells(bins=bins))}})


def test_fine_cells_are_a_protocol_and_coarse_ones_tell_of_no_pair() -> None:
    assert asked_by_counts(_NAMES, None, 0) == {"concordance": FINEST_CELLS}
    assert PROTOCOLS["concordance"].most == FINEST_CELLS
    for bins in (4, 8, 16, 32):
        assert asked_by_counts(_NAMES, bins, 0) == {}
        part = cells(bins=bins).parts["pairs"]
        assert part.stop - part.start == bins
    assert asked_by_counts(_NAMES, 64, 0) == {"concordance": 64}
    assert asked_by_counts(_NAMES, 32, 0, 3)["concordance"] == 96
    assert asked_by_counts(("concordance_correlation", "mae"), None, 0) == {}


@pytest.mark.parametrize(("groups", "most"), [(1, FINEST_CELLS), (3, 2048), (31, 256)])
def test_what_is_counted_fits_on_the_bus(groups: int, most: int) -> None:
    column = Subgroups(column="ward", kind="category", values=tuple(f"w{at}" for at in range(groups)))
    asked = None if groups == 1 else column
    names = (*_NAMES, "mae", "rmse", "r2")
    assert finest(0, names, asked) == most
    assert cells(bins=most, subgroups=asked).words <= MOST_WORDS
