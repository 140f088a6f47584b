"""Booleans, dates and categories, prepared federated, against scikit-learn's transformers on the pooled table of real
people: numbers are in `test_preparation` and `test_quantiles`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, RobustScaler, StandardScaler

from hanse_fabric.errors import HanseError
from hanse_schemas.prepare import Prepare
from hanse_schemas.schema import Column
from unit.learning.pooled_tables import federated, schema_of, sites_of, titanic


def passengers() -> pd.DataFrame:
    """With what is no number: a boolean, a day, a deck of many letters, a title; cells of each are missing."""
    frame, _ = titanic()
    draw = np.random.default_rng(3)
    day = pd.Timestamp("1911-06-01") + pd.to_timedelta(draw.integers(0, 300, len(frame)), "D")
    made = pd.DataFrame({
        "alone": np.where(frame["sibsp"] + frame["parch"] == 0, "yes", "no"),
        "bought": pd.Series(day).dt.strftime("%d.%m.%Y"),
        "deck": frame["cabin"].str.extract(r"^'?([A-Z])")[0], "port": frame["embarked"],
    })  # fmt: skip
    return made.mask(draw.random(made.shape) < 0.07).astype(object)


def prepared(prepare: Prepare, *columns: Column) -> tuple[np.ndarray, tuple[str, ...]]:
    features, preparation = federated(prepare, schema_of(list(columns)), sites_of(passengers(), 4))
    return features, preparation.outputs


def days(frame: pd.DataFrame) -> pd.DataFrame:
    since = pd.to_datetime(frame["bought"], format="%d.%m.%Y") - pd.Timestamp("1970-01-01")
    return (since / pd.Timedelta(days=1)).to_frame()


@pytest.mark.parametrize(("missing", "scale"), [("mean", "standard"), ("median", "standard"), ("median", "robust")])
def test_booleans_and_dates_are_filled_and_scaled_as_the_pooled_table(missing: str, scale: str) -> None:
    columns = [Column(name="alone", kind="boolean"), Column(name="bought", kind="date", formats=("%d.%m.%Y",))]
    rule = {"missing": missing, "scale": scale}
    features, outputs = prepared(Prepare(numbers=rule, columns=({"name": "alone", **rule},)), *columns)
    assert outputs == ("alone", "alone:missing", "bought", "bought:missing")
    frame = passengers()
    numbers = days(frame).assign(alone=frame["alone"].map({"yes": 1.0, "no": 0.0}).astype(float))[["alone", "bought"]]
    filling = SimpleImputer(strategy=missing)
    steps = (filling, StandardScaler()) if scale == "standard" else (RobustScaler(), filling)  # of the cells there
    pooled = make_pipeline(*steps).fit_transform(numbers)
    assert np.abs(features[:, [0, 2]] - pooled).max() < 1e-12 * max(1.0, np.abs(pooled).max())
    assert np.array_equal(features[:, [1, 3]], numbers.isna().to_numpy())


def test_rare_values_are_one_feature_with_unknown_ones_as_scikit_learn_has_infrequent_ones() -> None:
    frame = passengers()
    values = tuple(sorted(frame["deck"].dropna().unique()))
    prepare = Prepare(categories={"rare": 25, "unknown": "other", "missing": "unknown"})
    features, outputs = prepared(prepare, Column(name="deck", kind="category", values=values))
    there = frame["deck"].notna().to_numpy()
    encoder = OneHotEncoder(min_frequency=25, handle_unknown="infrequent_if_exist", sparse_output=False)
    pooled = encoder.fit_transform(frame.loc[there, ["deck"]])
    assert 2 < pooled.shape[1] < len(values)
    assert outputs == (
        *(f"deck={value}" for value in values if value not in encoder.infrequent_categories_[0]),
        "deck:other",
    )
    assert np.array_equal(features[there], pooled)
    assert np.array_equal(features[~there], np.tile([*[0.0] * (pooled.shape[1] - 1), 1.0], (int((~there).sum()), 1)))


def test_ordinal_places_are_scikit_learns_and_missing_cells_have_a_feature() -> None:
    frame = passengers()
    named = [["C", "Q"], sorted(frame["deck"].dropna().unique())]  # S is a value that the schema does not name
    columns = [
        Column(name=name, kind="category", values=tuple(values))
        for name, values in zip(("port", "deck"), named, strict=True)
    ]
    features, outputs = prepared(Prepare(categories={"form": "ordinal"}), *columns)
    assert outputs == ("port", "port:missing", "deck", "deck:missing")
    encoder = OrdinalEncoder(
        categories=named, handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1
    )
    given = frame[["port", "deck"]].where(frame[["port", "deck"]].notna(), None)
    pooled = encoder.fit_transform(given)
    assert np.array_equal(features[:, [0, 2]], pooled)
    assert np.array_equal(features[:, [1, 3]], frame[["port", "deck"]].isna().to_numpy())


def test_missing_cells_of_a_category_are_a_value_of_their_own_as_scikit_learn_encodes_none() -> None:
    frame = passengers()
    features, outputs = prepared(Prepare(), Column(name="port", kind="category", values=("C", "Q", "S")))
    pooled = ColumnTransformer([("port", OneHotEncoder(sparse_output=False), ["port"])]).fit_transform(
        frame[["port"]].where(frame[["port"]].notna(), None)
    )
    assert outputs == ("port=C", "port=Q", "port=S", "port:missing")
    assert np.array_equal(features, pooled)


def test_booleans_stay_zero_and_one_whatever_is_said_of_numbers_unless_they_are_named() -> None:
    column = Column(name="alone", kind="boolean")
    features, outputs = prepared(Prepare(numbers={"scale": "robust", "missing": "median"}), column)
    given = passengers()["alone"].map({"yes": 1.0, "no": 0.0}).astype(float)
    assert outputs == ("alone", "alone:missing")
    assert np.abs(features[:, 0] - given.fillna(given.mean())).max() < 1e-12


REFUSED = {
    "boolean": ("alone", (), {"missing": "refuse"}, "column alone: "),
    "date": ("bought", (), {"missing": "refuse"}, "column bought: "),
    "category": ("port", ("C", "Q", "S"), {"missing": "refuse"}, "column port: "),
    "unknown value": ("port", ("C", "Q"), {"unknown": "refuse"}, "column port: a value is none of the schema's"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_to_be_refused_is_refused_by_its_column(case: str) -> None:
    name, values, rule, told = REFUSED[case]
    kind = "category" if values else case
    formats = ("%d.%m.%Y",) if kind == "date" else ()
    column = Column.model_validate({"name": name, "kind": kind, "values": values, "formats": formats})
    with pytest.raises(HanseError, match=told):
        prepared(Prepare(columns=({"name": name, **rule},)), column)
    allowed = {"missing": "mean"} if not values else {}
    prepared(Prepare(columns=({"name": name, **allowed},)), column)
