"""Raw columns become what a model sees, as scikit-learn's pipeline on the pooled table makes it, though no site tells
more than counts and sums."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, StandardScaler

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_learning.preparation.apply import apply
from hanse_learning.preparation.cells import cells_of
from hanse_learning.preparation.exact import totals
from hanse_learning.preparation.measured import measured
from hanse_learning.preparation.plan import fitted, needs_sums
from hanse_learning.preparation.scales import SQUARE_FRACTION, SUM_FRACTION
from hanse_schemas.preparation import Preparation, prepared_schema
from hanse_schemas.prepare import Prepare, completed
from hanse_schemas.protocols import PROTOCOLS, asked_by
from hanse_schemas.schema import Column
from unit.learning.pooled_tables import category, federated, raw_cells, schema_of, sites_of, titanic

_STATSMODELS = Path(statsmodels.__file__).parent


def test_breast_cancer_is_scaled_as_the_pooled_table() -> None:
    frame = load_breast_cancer(as_frame=True).data
    schema = schema_of([Column(name=name) for name in frame.columns])
    features, preparation = federated(Prepare(), schema, sites_of(frame, 3))
    assert np.abs(features - StandardScaler().fit_transform(frame)).max() < 1e-12
    assert preparation.outputs == tuple(frame.columns)
    assert prepared_schema(schema, preparation).features == schema.features


def test_titanic_has_missing_ages_fares_and_ports_filled_and_told_as_the_pooled_table() -> None:
    frame, schema = titanic()
    pipeline = ColumnTransformer([
        ("numbers", make_pipeline(SimpleImputer(add_indicator=True), scaled_but(2, 2)), ["age", "fare"]),
        ("whole", StandardScaler(), ["sibsp", "parch"]),
        ("sex", OneHotEncoder(), ["sex"]),
        ("port", OneHotEncoder(), ["embarked"]),
    ])  # fmt: skip
    pooled = np.asarray(pipeline.fit_transform(frame))
    features, preparation = federated(Prepare(), schema, sites_of(frame, 4))
    assert preparation.outputs == (
        "age", "age:missing", "fare", "fare:missing", "sibsp", "parch", "sex=female", "sex=male",
        "embarked=C", "embarked=Q", "embarked=S", "embarked:missing",
    )  # fmt: skip
    order = [0, 2, 1, 3, *range(4, 12)]
    assert np.abs(features - pooled[:, order]).max() < 1e-12


def test_framing_has_its_categories_and_missing_cells_as_the_pooled_table() -> None:
    frame = pd.read_csv(_STATSMODELS / "stats/tests/results/framing.csv")
    numbers, categories = ["age", "emo", "p_harm"], ["educ", "gender", "anx"]
    frame["emo"] = frame["emo"].astype(float).mask(frame.index % 7 == 0)
    frame.loc[frame.index % 11 == 0, "educ"] = None
    columns = [*(Column(name=name) for name in numbers), *(category(frame, name) for name in categories)]
    encoded = OneHotEncoder(categories=[[*sorted(frame[name].dropna().unique())] for name in categories],
                            handle_unknown="ignore", sparse_output=False)  # fmt: skip
    pooled = ColumnTransformer([
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers), ("categories", encoded, categories),
    ]).fit_transform(frame)  # fmt: skip
    prepare = Prepare(numbers={"indicator": False}, categories={"missing": "unknown"})
    features, _ = federated(prepare, schema_of(columns), sites_of(frame, 3))
    assert np.abs(features - np.asarray(pooled)).max() < 1e-12


def test_logarithms_constants_and_declared_ends_are_as_the_pooled_table() -> None:
    frame, _ = titanic()
    ends = Column(name="age", minimum=0, maximum=100)
    prepare = Prepare(columns=(
        {"name": "age", "scale": "minmax", "missing": "constant", "constant": 30.0, "indicator": False},
        {"name": "fare", "log": True, "indicator": False},
    ))  # fmt: skip
    features, _ = federated(prepare, schema_of([ends, Column(name="fare")]), sites_of(frame, 3))
    filled = SimpleImputer(strategy="constant", fill_value=30.0).fit_transform(frame[["age"]])
    told = MinMaxScaler().fit([[0.0], [100.0]]).transform(filled)
    logged = make_pipeline(FunctionTransformer(np.log1p), SimpleImputer(), StandardScaler())
    pooled = np.hstack([told, logged.fit_transform(frame[["fare"]])])
    assert np.abs(features - pooled).max() < 1e-12


@pytest.mark.parametrize("sites", [1, 2, 5, 40])
def test_the_preparation_has_the_same_digest_however_the_rows_lie_at_the_sites(sites: int) -> None:
    frame, schema = titanic()
    shuffled = frame.sample(frac=1, random_state=sites)
    assert federated(Prepare(), schema, sites_of(shuffled, sites))[1].digest == (
        federated(Prepare(), schema, [frame])[1].digest
    )


def test_sums_are_exact_where_float64_loses_all_digits() -> None:
    hard = np.array([1e15, 1.0, -1e15, 2.0**-60, 0.1, 0.0, -3e-9] * 30_000)
    random = np.random.default_rng(1)
    random.shuffle(hard)
    total, squares = totals(hard)
    values, counts = np.unique(hard, return_counts=True)
    exact = [(Fraction(float(value)), int(count)) for value, count in zip(values, counts, strict=True)]
    assert total == sum(value * count for value, count in exact) * 2**SUM_FRACTION
    assert squares == sum(value**2 * count for value, count in exact) * 2**SQUARE_FRACTION


def test_a_column_that_is_constant_becomes_zero_and_one_without_any_cell_too() -> None:
    frame = pd.DataFrame({"same": [0.1] * 6, "none": [None] * 6, "x": range(6)})
    schema = schema_of([Column(name=name) for name in frame.columns])
    features, preparation = federated(Prepare(), schema, sites_of(frame, 2))
    assert preparation.outputs == ("same", "none", "none:missing", "x")
    assert not features[:, :2].any()
    assert features[:, 2].all()


def test_a_column_that_one_site_lacks_all_cells_of_is_filled_with_the_others_mean() -> None:
    empty = pd.DataFrame({"x": [None, None]})
    features, _ = federated(Prepare(), schema_of([Column(name="x")]), [empty, pd.DataFrame({"x": [1.0, 3.0]})])
    assert features[:, 0].tolist() == pytest.approx([0.0, 0.0, -math.sqrt(2), math.sqrt(2)], rel=1e-15)
    assert features[:, 1].tolist() == [1, 1, 0, 0]


def test_a_category_that_one_site_alone_has_is_the_same_feature_at_all() -> None:
    sites = [pd.DataFrame({"c": ["a", "b"]}), pd.DataFrame({"c": ["z", "a"]})]
    schema = schema_of([Column(name="c", kind="category", values=("a", "b", "z"))])
    features, _ = federated(Prepare(), schema, sites)
    assert features.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize(
    ("rule", "features"),
    [
        ({"unknown": "other"}, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]),
        ({"missing": "unknown"}, [[1, 0], [0, 1], [0, 0], [0, 0]]),
        ({"rare": 2}, [[0], [0], [0], [1]]),
        ({"form": "ordinal"}, [[0, 0], [1, 0], [-1, 0], [-1, 1]]),
    ],
)
def test_unknown_rare_and_missing_values_become_what_the_rule_says(
    rule: dict[str, Any], features: list[list[float]]
) -> None:
    schema = schema_of([Column(name="c", kind="category", values=("a", "b"))])
    frame = pd.DataFrame({"c": ["a", "b", "else", None]})
    assert federated(Prepare(categories=rule), schema, [frame])[0].tolist() == features


@pytest.mark.parametrize(
    ("numbers", "categories", "arrays"),
    [
        ({}, {"rare": 2}, {"rows", "set_aside", "missing", "sums", "squares", "counts"}),
        ({}, {}, {"rows", "set_aside", "missing", "sums", "squares"}),
        ({"scale": "none", "missing": "constant"}, {"missing": "own"}, {"rows", "set_aside", "missing"}),
        ({"scale": "none", "missing": "constant", "indicator": False}, {"missing": "unknown"}, {"rows", "set_aside"}),
        ({"scale": "none", "missing": "constant", "indicator": False}, {"form": "hashed", "rare": 2, "missing": "own"},
         {"rows", "set_aside"}),
    ],
)  # fmt: skip
def test_a_site_tells_only_what_the_preparation_depends_on(
    numbers: dict[str, Any], categories: dict[str, Any], arrays: set[str]
) -> None:
    schema = schema_of([Column(name="x"), Column(name="c", kind="category", values=("a", "b"))])
    rules = completed(Prepare(numbers=numbers, categories=categories), schema).rules
    told = measured(rules, raw_cells(schema, pd.DataFrame({"x": [1.0, None], "c": ["a", None]})))
    assert told.keys() == arrays
    assert needs_sums(rules) == (arrays != {"rows", "set_aside"})
    assert asked_by(rules).keys() == (
        ({"moments"} if "missing" in arrays else set()) | ({"category_counts"} if "counts" in arrays else set())
    )


def test_whatever_jobs_ask_moments_are_five_numbers_of_a_column() -> None:
    schema, told = schema_of([Column(name="x", minimum=0, maximum=9)]), set()
    cells = raw_cells(schema, pd.DataFrame({"x": [1.5, None, 2.25, 7.0]}))
    for scale, log, missing, indicator in itertools.product(
        ("standard", "minmax", "none"), (True, False), ("mean", "constant"), (True, False, "auto")
    ):
        numbers = {"scale": scale, "log": log, "missing": missing, "constant": 3.0, "indicator": indicator}
        arrays = measured(completed(Prepare(numbers=numbers), schema).rules, cells)
        told |= {(name, array.tobytes()) for name, array in arrays.items()}
    names = sorted(name for name, _ in told)
    assert names == ["missing", "rows", "set_aside", "squares", "squares", "sums", "sums"]
    assert len(names) - len({"rows", "set_aside"}) == PROTOCOLS["moments"].most + 2  # rows are of no column


def test_hashed_values_need_no_declaration_and_fall_where_blake2b_says() -> None:
    schema = schema_of([Column(name="c", kind="category")])
    prepare = Prepare(categories={"form": "hashed", "buckets": 4})
    features, preparation = federated(prepare, schema, [pd.DataFrame({"c": ["a", "b", "a"]})])
    assert features.shape == (3, 4)
    assert features.sum(axis=1).tolist() == [1, 1, 1]
    assert features[0].tolist() == features[2].tolist()
    assert preparation.outputs == ("c#0", "c#1", "c#2", "c#3")


def test_booleans_and_dates_are_numbers_and_text_is_left_out() -> None:
    schema = schema_of([
        Column(name="smoker", kind="boolean"), Column(name="note", kind="text"),
        Column(name="seen", kind="date", formats=("%d.%m.%Y", "%Y-%m-%d")),
    ])  # fmt: skip
    frame = pd.DataFrame({
        "smoker": ["yes", "No", "1"], "note": ["a", "b", None], "seen": ["02.01.1970", "1970-01-03", "1970-01-02"],
    })  # fmt: skip
    features, preparation = federated(Prepare(numbers={"scale": "none"}), schema, [frame])
    assert preparation.outputs == ("smoker", "seen")
    assert features.tolist() == [[1, 1], [0, 2], [1, 1]]


def test_a_cell_that_is_refused_is_named_by_its_place_and_what_it_holds_stays_at_the_site() -> None:
    frame = pd.DataFrame({"x": ["1.5", "secret"]})
    with pytest.raises(HanseError, match=r"column x, row 2: a finite number below 1e20 was expected") as raised:
        raw_cells(schema_of([Column(name="x")]), frame)
    assert raised.value.code is ErrorCode.SCHEMA_MISMATCH
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("prepare", "frame", "told"),
    [
        ({"numbers": {"missing": "refuse"}}, {"x": [1.0, None], "c": ["a", "a"]}, "column x: cells are missing"),
        ({"categories": {"unknown": "refuse"}}, {"x": [1.0], "c": ["hidden"]}, "column c: a value is none of"),
        ({"categories": {"missing": "refuse"}}, {"x": [1.0], "c": [None]}, "column c: cells are missing"),
    ],
)
def test_what_a_rule_refuses_is_refused_without_the_cell(
    prepare: dict[str, Any], frame: dict[str, Any], told: str
) -> None:
    schema = schema_of([Column(name="x"), Column(name="c", kind="category", values=("a",))])
    with pytest.raises(HanseError, match=told) as raised:
        federated(Prepare(**prepare), schema, [pd.DataFrame(frame)])
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        ({"columns": [{"name": "y"}]}, "prepare.columns: 'y' is not a column of the project's schema"),
        ({"columns": [{"name": "x", "scale": "minmax"}]}, "scale minmax needs the column's minimum and maximum"),
        ({"columns": [{"name": "x", "scale": "robst"}]}, "'standard', 'robust', 'minmax' or 'none'"),
        ({"columns": [{"name": "x", "unknown": "other"}]}, "unknown: Extra inputs are not permitted"),
        ({"columns": [{"name": "x", "kind": "category"}]}, "number, as the schema says"),
        ({}, "c is a category, and the project's schema does not declare its values"),
    ],
)
def test_a_rule_that_does_not_fit_the_schema_is_refused(prepare: dict[str, Any], told: str) -> None:
    with pytest.raises(HanseError, match=told):
        completed(Prepare(**prepare), schema_of([Column(name="x"), Column(name="c", kind="category")]))


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        ({"numbers": {"scales": "none"}}, "numbers: scales is no setting; there are clip, constant, indicator, log"),
        ({"number": {}}, "Extra inputs"),
        ({"columns": [{"name": "x"}, {"name": "x"}]}, "columns: x is there twice"),
        ({"columns": [{"scale": "none"}]}, "columns: one has no name"),
    ],
)
def test_a_setting_that_is_none_is_an_error(prepare: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Prepare(**prepare)


def test_a_preparation_is_json_and_back_the_same_to_the_bit() -> None:
    frame, schema = titanic()
    features, preparation = federated(Prepare(), schema, sites_of(frame, 3))
    again = Preparation.model_validate_json(preparation.model_dump_json())
    assert again == preparation
    assert again.digest == preparation.digest
    assert np.array_equal(apply(again, raw_cells(schema, frame)), features)


def test_a_lists_cells_are_those_of_a_frame() -> None:
    frame, schema = titanic()
    _, preparation = federated(Prepare(), schema, [frame])
    plain = {name: frame[name].tolist() for name in frame.columns}
    by_list = apply(preparation, cells_of(preparation.columns, plain))
    assert np.array_equal(by_list, apply(preparation, cells_of(preparation.columns, frame)))


def test_sums_of_which_something_is_missing_are_refused() -> None:
    rules = completed(Prepare(), schema_of([Column(name="x")])).rules
    with pytest.raises(HanseError, match="rows, set_aside, missing, sums, squares"):
        fitted(rules, {"rows": [1]})
    with pytest.raises(HanseError, match="0 rows"):
        fitted(rules, {"rows": [0], "set_aside": [0], "missing": [0], "sums": [[0] * 6], "squares": [[0] * 10]})


def scaled_but(numbers: int, last: int) -> ColumnTransformer:
    """Scales the first columns, and leaves the last as they are."""
    left = list(range(numbers, numbers + last))
    return ColumnTransformer([("scaled", StandardScaler(), list(range(numbers))), ("left", "passthrough", left)])
