"""Medians and quartiles are those of the pooled table, found by sums of counts of bits."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, RobustScaler, StandardScaler

from hanse_fabric.errors import HanseError
from hanse_learning.preparation.histograms import histograms, keys
from hanse_learning.preparation.order import (
    COARSE,
    FINE,
    MOST_PREFIXES,
    PASSES,
    PrefixQuestion,
    Search,
    number_of,
    quantile,
    question_of,
    ranks,
)
from hanse_schemas.prepare import Prepare, completed
from hanse_schemas.protocols import PROTOCOLS, asked_by
from hanse_schemas.schema import Column
from unit.learning.pooled_tables import federated, schema_of, sites_of, titanic

ROBUST = {"scale": "robust", "missing": "median", "indicator": False}
HARD = [0.0, -0.0, 5e-324, -5e-324, 1.0, np.nextafter(1, 2), -1.0, 1e-300, 9e19, -9e19, 0.1, 1 / 3, -1 / 3]


def test_breast_cancer_is_scaled_robustly_as_the_pooled_table() -> None:
    frame = load_breast_cancer(as_frame=True).data
    schema = schema_of([Column(name=name) for name in frame.columns])
    features, _ = federated(Prepare(numbers=ROBUST), schema, sites_of(frame, 3))
    assert np.abs(features - RobustScaler().fit_transform(frame)).max() < 1e-12


def test_titanic_is_filled_with_medians_and_scaled_as_the_pooled_table() -> None:
    frame, schema = titanic()
    numbers = ["age", "fare", "sibsp", "parch"]
    schema = schema_of([column for column in schema.features if column.name in numbers])
    robust, _ = federated(Prepare(numbers=ROBUST), schema, sites_of(frame, 4))
    pooled = make_pipeline(RobustScaler(), SimpleImputer(strategy="median")).fit_transform(frame[numbers])
    assert np.abs(robust - pooled).max() < 1e-12
    logged = {"name": "fare", "log": True, "scale": "robust"}
    standard, _ = federated(
        Prepare(numbers={"missing": "median", "indicator": False}, columns=(logged,)), schema, sites_of(frame, 4)
    )
    others = ["age", "sibsp", "parch"]
    pooled = ColumnTransformer([
        ("standard", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), others),
        ("logged", make_pipeline(FunctionTransformer(np.log1p), RobustScaler(), SimpleImputer(strategy="median")),
         ["fare"]),
    ]).fit_transform(frame)  # fmt: skip
    assert np.abs(standard[:, [0, 2, 3, 1]] - pooled).max() < 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_cells_that_hardly_differ_are_found_to_the_bit(seed: int) -> None:
    draw = np.random.default_rng(seed)
    cells = draw.choice(np.array(HARD), size=draw.integers(1, 40))
    rules = completed(Prepare(numbers=ROBUST), schema_of([Column(name="x")])).rules
    found = _search(rules, [cells[0::2], cells[1::2]])["x"]
    ordered = np.sort(cells)
    assert found == {rank: ordered[rank] + 0.0 for rank in found}
    wanted = {rank for q in (1, 2, 3) for rank in ranks(Fraction(q, 4), len(cells))}
    assert set(found) == wanted
    for q in (0.25, 0.5, 0.75):
        assert quantile(Fraction(q), len(cells), found) == pytest.approx(np.quantile(cells, q), rel=1e-15, abs=1e-320)


def test_keys_sort_as_the_numbers_do_and_tell_them() -> None:
    told = keys(np.array(HARD))
    assert [number_of(int(key)) for key in told] == [value + 0.0 for value in HARD]
    for (one, a), (two, b) in itertools.combinations(zip(HARD, told, strict=True), 2):
        assert (a < b, a == b) == (one < two, one == two)


@pytest.mark.parametrize(
    ("frame", "features"),
    [
        ({"x": [3.0, 3.0, 3.0, None]}, [0, 0, 0, 0]),
        ({"x": [None, None]}, [0, 0]),
        ({"x": [5.0]}, [0]),
    ],
)
def test_a_constant_column_and_one_without_any_cell_become_zero(frame: dict[str, Any], features: list[float]) -> None:
    made, _ = federated(Prepare(numbers=ROBUST), schema_of([Column(name="x")]), [pd.DataFrame(frame)])
    assert made[:, 0].tolist() == features


def test_a_site_without_any_cell_of_a_column_takes_part() -> None:
    sites = [pd.DataFrame({"x": [None, None]}), pd.DataFrame({"x": [1.0, 2.0, 9.0]})]
    made, preparation = federated(Prepare(numbers=ROBUST), schema_of([Column(name="x")]), sites)
    assert preparation.columns[0].fill == 2.0  # type: ignore[union-attr]
    assert made[:2, 0].tolist() == [0, 0]


def test_what_is_asked_of_a_column_is_bounded() -> None:
    many = schema_of([Column(name=f"x{at}") for at in range(30)])
    for schema, bits in ((many, COARSE), (schema_of(many.features[:5]), FINE)):  # type: ignore[arg-type]
        rules = completed(Prepare(numbers=ROBUST), schema).rules
        search, numbers, passes = Search.of(rules, {rule.name: 1000 for rule in rules}), 0, 0
        cells = {rule.name: np.random.default_rng(at).normal(size=1000) for at, rule in enumerate(rules)}
        while question := search.question:
            assert question.bits == bits
            told = histograms(question, cells)
            numbers, passes = numbers + len(question.prefixes["x0"]) * (1 << bits), passes + 1
            search.take(told.tolist())
        assert passes <= PASSES
        assert numbers <= asked_by(rules)["quantiles"] == PROTOCOLS["quantiles"].most
    assert PROTOCOLS["quantiles"].most == MOST_PREFIXES * (64 // FINE) * (1 << FINE)
    wide = completed(Prepare(numbers=ROBUST), schema_of([Column(name=f"x{at}") for at in range(90)])).rules
    with pytest.raises(HanseError, match="540 order statistics, at most 512"):
        Search.of(wide, {rule.name: 1000 for rule in wide})


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ({"depth": 0, "bits": 16, "prefixes": {"x": [0]}}, "bits"),
        ({"depth": 3, "bits": 4, "prefixes": {"x": [0]}}, "no multiple"),
        ({"depth": 8, "bits": 8, "prefixes": {"x": [0, 1, 2, 3, 4, 5, 6]}}, "1 to 6 that ascend"),
        ({"depth": 8, "bits": 8, "prefixes": {"x": [1, 1]}}, "1 to 6 that ascend"),
        ({"depth": 8, "bits": 8, "prefixes": {"x": [256]}}, "8 bits each"),
        ({"depth": 0, "bits": 8, "prefixes": {"y": [0]}}, "y: its rule needs no order statistics"),
        ({"depth": 0, "bits": 8, "prefixes": {}}, "prefixes"),
        ([], "task.config.quantiles"),
    ],
)
def test_a_question_that_no_search_asks_is_refused(question: object, told: str) -> None:
    schema = schema_of([Column(name="x"), Column(name="y")])
    rules = completed(Prepare(numbers=ROBUST, columns=({"name": "y", "scale": "none", "missing": "mean"},)), schema)
    with pytest.raises(HanseError, match=told):
        question_of(question, rules.rules)


@pytest.mark.parametrize("spoil", [lambda counts: counts + 1, lambda counts: counts[:, :-1], lambda counts: counts[:0]])
def test_sums_of_other_cells_than_before_are_refused(spoil: Any) -> None:
    rules = completed(Prepare(numbers=ROBUST), schema_of([Column(name="x")])).rules
    search = Search.of(rules, {"x": 3})
    assert search.question is not None
    with pytest.raises(ValueError, match=r"x: the counts are not of 3 cells|shorter"):
        search.take(spoil(histograms(search.question, {"x": np.array([1.0, 2.0, 3.0])})).tolist())


def _search(rules: Any, sites: list[np.ndarray]) -> dict[str, dict[int, float]]:
    search = Search.of(rules, {"x": sum(len(cells) for cells in sites)})
    while question := search.question:
        asked = PrefixQuestion.model_validate_json(question.model_dump_json())
        search.take(np.sum([histograms(asked, {"x": cells}) for cells in sites], axis=0).tolist())
    return search.found
