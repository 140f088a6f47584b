"""Dashboards and alerts: made of what is in the source, of names that exist, valid for Prometheus, with a page each."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from hanse_fabric.telemetry import catalogue
from hanse_fabric.telemetry.metrics import Histogram, Metric
from prometheus import WHY_NOT, program

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "charts/hanse/alerts/hanse.yaml"
CASES = Path(__file__).with_name("alerts.test.yaml")
PROMTOOL = program("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason=WHY_NOT)


@pytest.fixture(scope="module")
def source() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dashboards", ROOT / "observability/dashboards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def known_names(source: ModuleType) -> set[str]:
    names = set(source.OTHER_METRICS)
    for metric in vars(catalogue).values():
        if isinstance(metric, Metric):
            endings = ("_bucket", "_sum", "_count") if isinstance(metric, Histogram) else ("",)
            names |= {metric.name + ending for ending in endings}
    return names


def names_in(query: str) -> set[str]:
    without_strings = re.sub(r'"[^"]*"', "", query)
    return set(re.findall(r"\b(?:hanse|process|kubelet|kube|nats)_\w+", without_strings))


def queries(source: ModuleType) -> list[tuple[str, str]]:
    return [
        (panel.title, query)
        for _, rows in source.TITLES.values()
        for row in rows
        for panel in row.panels
        for query in panel.queries.values()
    ]


def test_the_dashboards_are_what_their_source_makes(source: ModuleType) -> None:
    files = {path.stem: path.read_text() for path in source.FOLDER.glob("*.json")}
    assert files == {name: source.text(name) for name in source.TITLES}, "run python observability/dashboards.py"


def test_the_hubs_dashboard_answers_the_operators_first_five_questions(source: ModuleType) -> None:
    panels = source.dashboard("hanse-hub")["panels"]
    assert [panel["title"] for panel in panels if panel["type"] == "row"] == [
        "Is it up?",
        "Which run is stuck, and on whom?",
        "How full is it?",
        "How slow is it?",
        "Who was refused?",
    ]


def test_dashboards_name_no_datasource_and_their_panels_do_not_overlap(source: ModuleType) -> None:
    for name in source.TITLES:
        made = source.dashboard(name)
        sources = re.findall(r'"uid": "([^"]+)"', json.dumps(made))
        assert set(sources) == {name, "${datasource}"}
        cells: set[tuple[int, int]] = set()
        for panel in made["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not own & cells, panel["title"]
            cells |= own
        assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"])


def test_dashboards_and_alerts_use_names_of_the_catalogue_only(source: ModuleType) -> None:
    known = known_names(source)
    for title, query in [*queries(source), *((rule["alert"], rule["expr"]) for rule in rules())]:
        assert names_in(query) - known == set(), title
    told = {name for rule in rules() for text in rule["annotations"].values() for name in names_in(text)}
    assert told - known == set()


def test_every_metric_of_the_dashboards_has_the_namespace(source: ModuleType) -> None:
    assert source.scoped('sum(rate(hanse_a_total{x="1"}[5m])) / hanse_b') == (
        'sum(rate(hanse_a_total{x="1", namespace=~"$namespace"}[5m])) / hanse_b{namespace=~"$namespace"}'
    )


def test_every_alert_has_a_page_with_what_it_means_what_to_look_at_and_what_to_do() -> None:
    pages = {path.stem: path.read_text() for path in (ROOT / "docs/runbooks").glob("*.md")}
    assert set(pages) == {rule["alert"] for rule in rules()}
    listed = (ROOT / "docs/metrics.md").read_text()
    for rule in rules():
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert f"(runbooks/{rule['alert']}.md)" in listed
        page = pages[rule["alert"]]
        assert [line for line in page.splitlines() if line.startswith("#")] == [
            f"# {rule['alert']}",
            "## What it means",
            "## What to look at",
            "## What to do",
        ]
        for target in re.findall(r"\]\(([^)]+)\)", page):
            assert (ROOT / "docs/runbooks" / target).resolve().is_file(), (rule["alert"], target)


def test_every_alert_is_seen_firing_and_not_firing_by_promtools_cases() -> None:
    firing, quiet = set(), set()
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for expected in case["alert_rule_test"]:
            (firing if expected["exp_alerts"] else quiet).add(expected["alertname"])
    assert firing == {rule["alert"] for rule in rules()}
    # A threshold that is not passed is another case of the same series.
    assert firing - quiet <= {"HanseBusWithoutLeader", "HanseVolumeNearlyFull"}


def promtool(*arguments: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_finds_the_alerts_well_formed_and_sees_each_fire_when_it_should() -> None:
    promtool("check", "rules", str(ALERTS))
    promtool("test", "rules", str(CASES))


@needs_promtool
def test_promtool_understands_every_query_of_the_dashboards(source: ModuleType, tmp_path: Path) -> None:
    rows = [
        {"record": f"panel:{index}", "expr": source.scoped(query).replace("$__rate_interval", "1m")}
        for index, (_, query) in enumerate(queries(source))
    ]
    (tmp_path / "queries.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rows}]}))
    promtool("check", "rules", str(tmp_path / "queries.yaml"))
