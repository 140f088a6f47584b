"""`python observability/dashboards.py`: writes charts/hanse/dashboards/*.json, as Grafana reads them, from `panels`.

No datasource is named in them: it is the variable `datasource`, which Grafana fills with what it has.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from panels import HUB, SITE, Panel, Row

FOLDER = Path(__file__).parents[1] / "charts/hanse/dashboards"
TITLES: dict[str, tuple[str, tuple[Row, ...]]] = {
    "hanse-hub": ("Hanse: hub", HUB),
    "hanse-site": ("Hanse: sites", SITE),
}
OTHER_METRICS = frozenset({
    "up", "kubelet_volume_stats_used_bytes", "kubelet_volume_stats_capacity_bytes",
    "kube_cronjob_created", "kube_cronjob_status_last_successful_time",
})  # fmt: skip
"""Names that dashboards and alerts use beside those of the catalogue: Kubernetes' and Prometheus' own."""

_NAME = re.compile(r"\b((?:hanse|process|kubelet|kube)_\w+)(?:\{([^}]*)\})?")
_HEIGHT = {"stat": 4, "timeseries": 8, "table": 8}
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def scoped(query: str) -> str:
    """The query with the dashboard's namespace at every metric. Pure."""
    return _NAME.sub(lambda found: f'{found[1]}{{{_and(found[2])}namespace=~"$namespace"}}', query)


def _and(matchers: str | None) -> str:
    return f"{matchers}, " if matchers else ""


def dashboard(uid: str) -> dict[str, Any]:
    """Grafana's model of one dashboard. Pure."""
    title, rows = TITLES[uid]
    panels: list[dict[str, Any]] = []
    top = 0
    for row in rows:
        panels.append({"type": "row", "title": row.title, "collapsed": False, "panels": [], "id": len(panels) + 1,
                       "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}})  # fmt: skip
        top, left, tallest = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > 24:
                top, left, tallest = top + tallest, 0, 0
            height = _HEIGHT[panel.kind]
            at = {"x": left, "y": top, "w": panel.width, "h": height}
            panels.append({"id": len(panels) + 1, "gridPos": at, **_panel(panel)})
            left, tallest = left + panel.width, max(tallest, height)
        top += tallest
    return {
        "uid": uid, "title": title, "tags": ["hanse"], "schemaVersion": 39, "version": 1, "editable": True,
        "refresh": "30s", "time": {"from": "now-6h", "to": "now"}, "timezone": "", "graphTooltip": 1,
        "templating": {"list": _variables()}, "annotations": {"list": []}, "links": [], "panels": panels,
    }  # fmt: skip


def _variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0},
        {
            "name": "namespace", "label": "Namespace", "type": "query", "datasource": _SOURCE, "refresh": 2,
            "query": {"query": "label_values(hanse_build_info, namespace)", "refId": "namespace"},
            "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
        },
    ]  # fmt: skip


def _panel(panel: Panel) -> dict[str, Any]:
    table = panel.kind == "table"
    targets = [
        {
            "refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": scoped(query),
            "legendFormat": legend or "__auto", "instant": panel.kind != "timeseries",
            "range": panel.kind == "timeseries", "format": "table" if table else "time_series",
        }
        for index, (legend, query) in enumerate(panel.queries.items())
    ]  # fmt: skip
    shown: dict[str, Any] = {
        "type": panel.kind, "title": panel.title, "description": panel.about, "datasource": _SOURCE, "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **_colours(panel)}, "overrides": []},
    }  # fmt: skip
    if panel.kind == "stat":
        shown["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background", "textMode": "auto"}
    elif table:
        shown["transformations"] = [
            {"id": "organize", "options": {"excludeByName": {"Time": True}}},
            {"id": "sortBy", "options": {"sort": [{"field": "Value", "desc": True}]}},
        ]
    else:
        shown["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return shown


def _colours(panel: Panel) -> dict[str, Any]:
    if panel.good is None:
        return {}
    good, bad = panel.good
    steps = [{"color": "red", "value": None}, {"color": "green", "value": 1}]
    words = {"0": {"text": bad, "color": "red"}, "1": {"text": good, "color": "green"}}
    return {"thresholds": {"mode": "absolute", "steps": steps}, "mappings": [{"type": "value", "options": words}]}


def text(uid: str) -> str:
    """The file of one dashboard."""
    return json.dumps(dashboard(uid), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in TITLES:
        (FOLDER / f"{name}.json").write_text(text(name))
