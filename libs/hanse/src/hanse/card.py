"""A model card (Mitchell et al., 2019): what a model is, how it was made, how good it is, and what it may be used for.

Hanse writes what it knows; the sections that only its owners can write are there, with a question each.
"""

from __future__ import annotations

import base64
import json
import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

from hanse.evaluation_tables import cell, curves_section, table
from hanse.settings import without_defaults
from hanse.views import RunView
from hanse_fabric.messages.models import ModelVersion
from hanse_schemas.http.models import ModelView

_QUESTIONS = (
    ("Intended use", "Who shall use the model, for what decision, and with which person's review?"),
    ("Out of scope", "For whom, and for which uses, was it never tested?"),
    ("Limitations and fairness", "Where is it known to be wrong, and for which groups of people was that looked at?"),
    ("Contact", "Who answers questions, and whom does one tell of a fault?"),
)
_COLUMNS_SHOWN = 200


def card_of(
    version: ModelVersion | ModelView, run: RunView | None, curves: Mapping[str, Any] | None = None
) -> str:  # fmt: skip
    """The card, as Markdown.

    Args:
        version: the record that the registry signed.
        run: that made it; None where the hub does not have it any more, and then job and privacy are not told.
        curves: what its evaluation has beside metrics (`History.curves`), where there is something.
    """
    parts = [f"# {version.project}, version {version.version}", _facts(version, run)]
    parts += [f"## {title}\n\n*To fill in: {question}*" for title, question in _QUESTIONS[:2]]
    parts += [
        _data(version),
        _metrics(version),
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
        ("model", _inline(problem.get("model", version.architecture))),
        ("run", f"{lineage.run}, round {lineage.round}" + (f" of {run.rounds}" if run else "")),
        ("workflow", lineage.workflow),
        ("sites", f"{len(lineage.participants)}: {', '.join(lineage.participants)}"),
        ("examples", f"{lineage.examples:,}" if lineage.examples else "not told"),
        ("strategy", _inline(lineage.strategy)),
        ("starts from", lineage.parent or "a model that the run has initialised"),
        ("SHA-256", version.digest),
        ("recorded by", f"the registry with the key {base64.b64encode(version.public_key).decode()}"),
    ]
    return table(("", ""), rows)


def _data(version: ModelVersion | ModelView) -> str:
    schema: Mapping[str, Any] = (version.problem or {}).get("schema") or {}
    kind = schema.get("kind")
    if kind == "tabular":
        columns = schema["features"]
        rows = [
            (column["name"], column.get("kind", "number"), column.get("unit") or "", _bounds(column))
            for column in columns[:_COLUMNS_SHOWN]
        ]
        more = [("...", f"{len(columns) - len(rows)} more", "", "")] if len(columns) > len(rows) else []
        told = f"Rows with the column {cell(schema['target'])}, which the model tells ({_task(schema)})."
        if weight := schema.get("weight"):
            told += f" A job with `train.sample_weights` counts a row as much as its column {cell(weight)} says."
        return "## Data\n\n" + told + "\n\n" + table(("column", "kind", "unit", "values"), rows + more)
    if kind == "array":
        return f"## Data\n\nArrays of shape {list(schema['shape'])} ({_task(schema)})."
    return "## Data\n\nThe project declares no form of its data; the sites' code knows it."


def _task(schema: Mapping[str, Any]) -> str:
    classes = schema.get("classes")
    named = ", ".join(
        cell(label["name"] if isinstance(label, Mapping) else label) for label in schema.get("labels", ())
    )
    told = f"{schema['task']}, {classes} classes" if classes else str(schema["task"])
    return f"{told}: {named}" if named else told


def _bounds(column: Mapping[str, Any]) -> str:
    if column.get("values"):
        return ", ".join(map(str, column["values"]))
    low, high = column.get("minimum"), column.get("maximum")
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return "" if low is None and high is None else f"at least {low:g}" if high is None else f"at most {high:g}"


def _metrics(version: ModelVersion | ModelView) -> str:
    rows = [(name, f"{value:.6g}") for name, value in sorted(version.metrics.items())]
    told = "By the sites' own test data, after the round."
    return f"## Metrics\n\n{told}\n\n" + table(("metric", "value"), rows) if rows else "## Metrics\n\nNone were taken."


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


def _inline(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
