"""The section of a model card about the data: the columns, and what all sites' rows together were found to be."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from hanse.evaluation_tables import cell, table

_COLUMNS_SHOWN = 200
_SINCE = date(1970, 1, 1)


def data_section(problem: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    """In Markdown.

    Args:
        problem: of the version's record: the project's schema, and the preparation where there is one.
        job: the run's, whose `prepare` says what the numbers of the preparation are; empty: it is gone.
    """
    schema: Mapping[str, Any] = problem.get("schema") or {}
    kind = schema.get("kind")
    if kind == "tabular":
        columns = schema["features"]
        found = _found(problem, job)
        rows = [
            (
                column["name"], column.get("kind", "number"), column.get("unit") or "", _bounds(column),
                *((found.get(column["name"], ""),) if found else ()),
            )
            for column in columns[:_COLUMNS_SHOWN]
        ]  # fmt: skip
        head = ("column", "kind", "unit", "values", *(("over all sites",) if found else ()))
        empty = [""] * (len(head) - 2)
        more = [("...", f"{len(columns) - len(rows)} more", *empty)] if len(columns) > len(rows) else []
        told = f"Rows with the column {cell(schema['target'])}, which the model tells ({_task(schema)})."
        if weight := schema.get("weight"):
            told += f" A job with `train.sample_weights` counts a row as much as its column {cell(weight)} says."
        return "## Data\n\n" + told + "\n\n" + table(head, [*rows, *more])
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


def _found(problem: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, str]:
    """What was found of each column before the first round, of all sites' training rows together."""
    prepare = job.get("prepare")
    rules = {} if not isinstance(prepare, Mapping) else {rule["name"]: rule for rule in prepare.get("columns") or ()}
    columns = (problem.get("preparation") or {}).get("columns") or ()
    told = {column["name"]: _of_column(column, rules[column["name"]]) for column in columns if column["name"] in rules}
    return told if any(told.values()) else {}


def _of_column(column: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    kind, said = column.get("kind"), []
    if kind == "category":
        gone = sorted(set(rule.get("values") or ()) - set(column.get("values") or ()))
        if rule.get("rare") and gone:
            said.append(f"rare: {', '.join(gone)}")
        if rule.get("missing", "auto") == "auto" and column.get("missing") == "own":
            said.append("some cells are missing")
        return "; ".join(said)
    if kind == "text":
        return "not seen by the model"
    centre, scale = float(column.get("centre", 0)), float(column.get("scale", 1))
    of_log = " of the logarithm" if column.get("log") else ""
    middle, width = str(_SINCE + timedelta(days=round(centre))) if kind == "date" else f"{centre:.4g}", f"{scale:.4g}"
    width += " days" if kind == "date" else ""
    if rule.get("scale", "standard") == "standard":
        said.append(f"mean{of_log} {middle}, standard deviation {width}")
    elif rule.get("scale") == "robust":
        said.append(f"median{of_log} {middle}, quartiles {width} apart")
    if rule.get("indicator", "auto") == "auto" and column.get("indicator"):
        said.append("some cells are missing")
    return "; ".join(said)
