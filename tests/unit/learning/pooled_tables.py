"""Tables of real people that wheels ship, split over sites, and the preparation that all sites find together."""

from __future__ import annotations

import gzip
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from numpy.typing import NDArray

from hanse_learning.preparation.apply import apply
from hanse_learning.preparation.cells import cells_of
from hanse_learning.preparation.histograms import histograms
from hanse_learning.preparation.measured import measured
from hanse_learning.preparation.order import question_of
from hanse_learning.preparation.plan import counted, fitted, search
from hanse_schemas.preparation import Preparation
from hanse_schemas.prepare import Prepare, completed
from hanse_schemas.schema import Column, TabularSchema

_SKLEARN = Path(sklearn.__file__).parent / "datasets/tests/data/openml"


def federated(prepare: Prepare, schema: TabularSchema, sites: list[pd.DataFrame]) -> tuple[NDArray[Any], Preparation]:
    """(the features of all sites, one below the other; the preparation of their sums)."""
    rules = completed(prepare, schema).rules
    tables = [raw_cells(schema, frame) for frame in sites]
    answers = [measured(rules, table) for table in tables]
    assert set(answers[0]) == set(counted(rules).arrays)
    total = {name: sum(answer[name] for answer in answers).tolist() for name in answers[0]}  # type: ignore[attr-defined]
    ordered = search(rules, total)
    while question := ordered.question:
        asked = question_of(question.model_dump(mode="json"), rules)
        ordered.take(sum(histograms(asked, table) for table in tables).tolist())  # type: ignore[union-attr]
    preparation = fitted(rules, total, ordered.found)
    return np.vstack([apply(preparation, table) for table in tables]), preparation


def raw_cells(schema: TabularSchema, frame: pd.DataFrame) -> dict[str, NDArray[Any]]:
    return cells_of(schema.features, frame)


def schema_of(columns: list[Column]) -> TabularSchema:
    return TabularSchema(features=tuple(columns), target="y")


def category(frame: pd.DataFrame, name: str) -> Column:
    return Column(name=name, kind="category", values=tuple(sorted(frame[name].dropna().unique())))


def sites_of(frame: pd.DataFrame, sites: int) -> list[pd.DataFrame]:
    """Uneven parts, in order, so that pooled rows keep their place."""
    cuts = [len(frame) * at * at // (sites * sites) for at in range(sites + 1)]
    return [frame.iloc[start:stop] for start, stop in pairwise(cuts)]


def titanic() -> tuple[pd.DataFrame, TabularSchema]:
    """The passengers (as OpenML has them, in scikit-learn's wheel), with missing ages, a fare and two ports."""
    (path,) = (_SKLEARN / "id_40945").glob("data-*.arff.gz")
    text = gzip.decompress(path.read_bytes()).decode()
    names = [line.split()[1].strip("'") for line in text.splitlines() if line.startswith("@attribute")]
    frame = pd.read_csv(StringIO(text[text.index("@data") + 5 :].strip()), names=names, na_values="?", escapechar="\\")
    columns = [
        *(Column(name=name) for name in ("age", "fare", "sibsp", "parch")),
        Column(name="sex", kind="category", values=("female", "male")),
        Column(name="embarked", kind="category", values=("C", "Q", "S")),
    ]
    return frame, schema_of(columns)
