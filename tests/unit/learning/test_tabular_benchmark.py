"""`make bench-tabular` compares what it says: real tables, and the pooled table's own transformers and regression."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("tabular")


def test_there_are_six_real_tables_and_three_have_missing_cells_and_categories(benchmark: Any) -> None:
    found = benchmark.tables()
    raw = [table for table in found if table.missing and any(map(table.is_category, table.features))]
    assert len(found) >= 6
    assert len(raw) >= 3
    assert all(set(table.frame["target"].unique()) == {0, 1} for table in found)


def test_a_small_table_is_learnt_as_scikit_learn_learns_it(benchmark: Any, tmp_path: Path) -> None:
    (table,) = [table for table in benchmark.tables() if table.name == "penguins"]
    benchmark.ROUNDS = 50  # of 300, which are compared to 0.005
    figures = benchmark.compared(tmp_path, table, 1)
    assert figures["preparation"] < 1e-12
    assert abs(figures["federated"] - figures["pooled"]) < 0.01


def test_control_transformers_of_other_rows_give_other_features(benchmark: Any) -> None:
    (table,) = [table for table in benchmark.tables() if table.name == "penguins"]
    seen = benchmark.by_scikit_learn(table, table.frame[:100], table.frame[:100])
    other = benchmark.by_scikit_learn(table, table.frame[100:], table.frame[:100])
    assert abs(seen - other).max() > 0.1
