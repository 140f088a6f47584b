"""docs/model-metrics.md: its job is taken, its tables are true, and its figures are measured again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from hanse_fabric.text_files import parse_yaml
from hanse_learning.pooled.count import counts_of
from hanse_learning.pooled.derive import pooled, summed
from hanse_learning.pooled.layout import Counts
from hanse_schemas.job import check_job
from hanse_schemas.metrics import COUNTED
from hanse_schemas.prepare import completed_job
from hanse_schemas.schema import Column, TabularSchema
from hanse_workflows.submission import check_submitted

_PAGE = (Path(__file__).parents[3] / "docs/model-metrics.md").read_text()
_ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in _PAGE.splitlines() if line.startswith("| ")]


def test_the_pages_jobs_are_taken() -> None:
    wards = Column(name="ward", kind="category", values=("burns", "stroke"))
    schema = TabularSchema(features=(Column(name="age", minimum=0, maximum=120), wards), target="died", classes=2)
    blocks = re.findall(r"```yaml\n(.*?)```", _PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        check_submitted(completed_job(check_job(parse_yaml(block, "page")), schema), schema=schema)


def test_every_metric_of_counts_has_its_row() -> None:
    rows = {row[0].strip("`"): row for row in _ROWS if row[0].strip("`") in COUNTED}
    assert rows.keys() == COUNTED.keys()
    for name, metric in COUNTED.items():
        assert rows[name][1:3] == [metric.task, metric.better]


def _three(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Examples by what the sites differ in."""
    if name == "breast cancer":
        (x, y), by = load_breast_cancer(return_X_y=True), 0
    elif name == "diabetes, above 140":
        (x, y), by = load_diabetes(return_X_y=True), 2
        y = (y > 140).astype(int)
    else:
        x, y = load_digits(return_X_y=True)
        x, y, by = np.column_stack([x, x.sum(axis=1)]), (y == 8).astype(int), 64
    order = np.argsort(x[:, by], kind="stable")
    x = x[:, :64] if by == 64 else x
    return StandardScaler().fit_transform(x[order]), y[order]


@pytest.mark.parametrize("row", [row for row in _ROWS if row[1][:2] == "0."], ids=lambda row: row[0])
def test_the_figures_are_those_of_the_tables(row: list[str]) -> None:
    name, own, mean, together, ours = row
    x, y = _three(name)
    model = LogisticRegression(max_iter=1000, C=0.01).fit(x[::2], y[::2])
    odds, labels = model.decision_function(x[1::2]), y[1::2]
    parts = np.array_split(np.arange(len(labels)), 3)
    each = [roc_auc_score(labels[part], odds[part]) for part in parts]
    # Two decimals more would be another solver's.
    assert [float(value) for value in own.split(", ")] == pytest.approx(each, abs=2e-3)
    average = float(np.average(each, weights=[len(part) for part in parts]))
    exact = roc_auc_score(labels, odds)
    assert [float(mean), float(together)] == pytest.approx([average, exact], abs=2e-3)
    counts = Counts(("auroc",), "classification", 2)
    logits = np.stack([np.zeros_like(odds), odds], axis=1)
    vectors = {str(at): counts_of(counts, logits[part], labels[part]) for at, part in enumerate(parts)}
    found = pooled(counts, summed(vectors, counts.words)).metrics["auroc"]
    assert found == pytest.approx(exact, abs=1e-4)
    assert float(ours) == pytest.approx(found, abs=2e-3)
    assert abs(found - average) > 0.005


def test_concordance_of_values_is_coarse_or_tells_patients_apart() -> None:
    """Why it is not counted: the page's figures, on the page's table."""
    x, y = load_diabetes(return_X_y=True)
    said = LinearRegression().fit(x, y).predict(x)
    apart = np.sign(y[:, None] - y)
    exact = ((apart * np.sign(said[:, None] - said))[apart != 0].mean() + 1) / 2
    assert abs(_of_cells(y, said, 77)[0] - exact) == pytest.approx(0.003, abs=0.001)
    assert _of_cells(y, said, 77)[1] == pytest.approx(0.87, abs=0.01)
    assert abs(_of_cells(y, said, 5)[0] - exact) == pytest.approx(0.04, abs=0.005)
    for told in ("one of 77 by 77 bins is off by 0.003, and 87 %", "5 by 5 bins is off by 0.04"):
        assert told in " ".join(_PAGE.split())


def _of_cells(y: Any, said: Any, bins: int) -> tuple[float, float]:
    """(concordance of pairs of different rows, the share of examples that are alone in a cell)."""
    cells = np.histogram2d(y, said, bins=bins)[0]
    rows, right = cells.sum(axis=1), 0.0
    for at in range(bins):
        above = cells[at + 1 :].sum(axis=0)
        right += float((cells[at] * (np.cumsum(above[::-1])[::-1] - above / 2)).sum())
    return right / float((rows.sum() ** 2 - (rows**2).sum()) / 2), float((cells == 1).sum() / len(y))
