"""docs/metrics.md has the catalogue as it is; its table is made by `python -m hanse_fabric.telemetry.table`."""

from __future__ import annotations

from pathlib import Path

from hanse_fabric.telemetry import catalogue
from hanse_fabric.telemetry.metrics import Counter, Histogram, Metric
from hanse_fabric.telemetry.table import sections, table

ROOT = Path(__file__).parents[3]
UNITS = {"seconds", "bytes"}


def test_the_page_has_the_catalogues_table() -> None:
    assert table() in (ROOT / "docs/metrics.md").read_text(), "run python -m hanse_fabric.telemetry.table"


def test_every_metric_of_the_catalogue_is_in_the_table() -> None:
    listed = {metric.name for _, metrics in sections() for metric in metrics}
    assert listed == {each.name for each in vars(catalogue).values() if isinstance(each, Metric)}


def test_names_say_their_unit_and_counters_that_they_are_totals() -> None:
    for _, metrics in sections():
        for metric in metrics:
            assert metric.name.startswith(("hanse_", "process_"))
            assert isinstance(metric, Counter) == metric.name.endswith("_total"), metric.name
            if metric.unit in UNITS:
                assert metric.unit in metric.name, metric.name
            if isinstance(metric, Histogram):
                assert metric.name.endswith("_seconds")
