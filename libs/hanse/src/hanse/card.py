"""A model card (Mitchell et al., 2019): what a model is, how it was made, how good it is, and what it may be used for.

Hanse writes what it knows; the sections that only its owners can write are there, with a question each.
"""

from __future__ import annotations

import base64
import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

from hanse.card_data import data_section
from hanse.evaluation_tables import curves_section, table
from hanse.settings import flat_settings, without_defaults
from hanse.views import RunView, main_metrics
from hanse_fabric.messages.models import ModelVersion
from hanse_schemas.http.models import ModelView

_QUESTIONS = (
    ("Intended use", "Who shall use the model, for what decision, and with which person's review?"),
    ("Out of scope", "For whom, and for which uses, was it never tested?"),
    ("Limitations and fairness", "Where is it known to be wrong, and for which groups of people was that looked at?"),
    ("Contact", "Who answers questions, and whom does one tell of a fault?"),
)


def card_of(
    version: ModelVersion | ModelView,
    run: RunView | None,
    curves: Mapping[str, Any] | None = None,
    sites: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """The card, as Markdown.

    Args:
        version: the record that the registry signed.
        run: that made it; None where the hub does not have it any more, and then job and privacy are not told.
        curves: what its evaluation has beside metrics (`History.curves`), where there is something.
        sites: the evaluation's metrics by site, where the hub sees them.
    """
    parts = [f"# {version.project}, version {version.version}", _facts(version, run)]
    parts += [f"## {title}\n\n*To fill in: {question}*" for title, question in _QUESTIONS[:2]]
    parts += [
        data_section(version.problem or {}, run.job if run else {}),
        _metrics(version, sites or {}),
        curves_section(curves or {}, version.problem or {}),
        _privacy(run),
        _training(run),
        _use(version),
    ]
    parts += [f"## {title}\n\n*To fill in: {question}*" for title, question in _QUESTIONS[2:]]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(version: ModelVersion | ModelView, run: RunView | None) -> str:
    lineage, problem = version.lineage, version.problem or {}
    rows = [
        ("made", version.created_at.strftime("%Y-%m-%d %H:%M UTC")),
        ("stage", version.stage.value),
        ("model", _settings(problem.get("model", version.architecture))),
        ("run", f"{lineage.run}, round {lineage.round}" + (f" of {run.rounds}" if run else "")),
        ("workflow", lineage.workflow),
        ("sites", f"{len(lineage.participants)}: {', '.join(lineage.participants)}"),
        ("examples", f"{lineage.examples:,}" if lineage.examples else "not told"),
        ("strategy", _settings(lineage.strategy) or "weighted mean"),
        ("starts from", lineage.parent or "a model that the run has initialised"),
        ("SHA-256", version.digest),
        ("recorded by", f"the registry with the key {base64.b64encode(version.public_key).decode()}"),
    ]
    return table(("", ""), rows)


def _metrics(version: ModelVersion | ModelView, sites: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [(name, f"{value:.6g}") for name, value in sorted(version.metrics.items())]
    if not rows:
        return "## Metrics\n\nNone were taken."
    told = "By the sites' own test data, after the round.\n\n" + table(("metric", "value"), rows)
    names = [name for name in main_metrics(version.metrics) if any(name in found for found in sites.values())]
    if names and not names[0].startswith("train_"):
        lines = [(site, *(_rounded(found.get(name)) for name in names)) for site, found in sorted(sites.items())]
        told += "\n\nBy site, each by its own test data:\n\n" + table(("site", *names), lines)
    return f"## Metrics\n\n{told}"


def _rounded(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else ""


def _privacy(run: RunView | None) -> str:
    return "" if run is None else "## Privacy\n\n" + (run.privacy or "Nothing hides single updates from the hub.")


def _training(run: RunView | None) -> str:
    if run is None:
        return ""
    job = without_defaults(run.job)
    why = f"\n\n{run.reason}." if run.reason else ""
    # By indentation, which no text of the job can end.
    return f"## Training{why}\n\n" + textwrap.indent(yaml.safe_dump(job, sort_keys=False).rstrip(), "    ")


def _use(version: ModelVersion | ModelView) -> str:
    if version.problem is None:
        return "## Use\n\nThe file has parameters by name (safetensors); whoever wrote its code can build the module."
    return (
        "## Use\n\n```python\nimport hanse\n\nmodel = hanse.load(\"model.safetensors\")\nmodel.predict(table)\n```\n\n"
        "`hanse model verify` tells whether a file is this version; `model.to_onnx` and `model.to_sklearn` give others."
    )  # fmt: skip


def _settings(section: Mapping[str, Any]) -> str:
    """A section of a job in a line, its name first, without what is left empty."""
    said = {
        key: value for key, value in flat_settings(section, all_of_it=True).items() if value not in (None, [], {}, "")
    }
    name = said.pop("name", None)
    rest = [f"{key}: {value}" for key, value in said.items()]
    return ", ".join(rest if name is None else [str(name), *rest])
