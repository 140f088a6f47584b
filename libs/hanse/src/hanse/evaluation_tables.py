"""Tables in Markdown of what an evaluation has beside its metrics: by class, who was taken for whom, calibration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def curves_section(curves: Mapping[str, Any], problem: Mapping[str, Any]) -> str:
    """The section of a model card; empty where there is nothing.

    Args:
        curves: of `History.curves`.
        problem: of the version's record, whose schema may name the classes.
    """
    schema = problem.get("schema") or {}
    labels = [
        str(label["name"] if isinstance(label, Mapping) else label) for label in schema.get("labels") or ()
    ]  # fmt: skip
    parts = [_by_class(curves, labels), _confusion(curves, labels), _calibration(curves), _by_group(curves)]
    told = "\n\n".join(part for part in parts if part)
    if not told:
        return ""
    examples, sites = curves.get("examples", "?"), curves.get("sites", "?")
    return f"## Evaluation\n\nOf {examples} test examples of {sites} sites together.\n\n{told}"


def _by_class(curves: Mapping[str, Any], labels: Sequence[str]) -> str:
    by_class: Mapping[str, Mapping[str, float | None]] = curves.get("by_class") or {}
    names = list(dict.fromkeys(name for found in by_class.values() for name in found))
    rows = [
        (_named(at, labels), *("" if (value := found.get(name)) is None else f"{value:.4f}" for name in names))
        for at, found in by_class.items()
    ]
    return table(("class", *names), rows) if rows else ""


def _confusion(curves: Mapping[str, Any], labels: Sequence[str]) -> str:
    rows = curves.get("confusion")
    if not rows or len(rows) > 20:
        return ""
    head = ("true \\ predicted", *(_named(at, labels) for at in range(len(rows))))
    return table(head, [(_named(at, labels), *map(str, row)) for at, row in enumerate(rows)])


def _calibration(curves: Mapping[str, Any]) -> str:
    rows = [
        (
            f"{row['from']:.2f} to {row['to']:.2f}",
            str(row["examples"]),
            f"{row['predicted']:.3f}",
            f"{row['observed']:.3f}",
        )
        for row in curves.get("calibration") or ()
    ]
    return table(("probability", "examples", "predicted", "observed"), rows) if rows else ""


def _by_group(curves: Mapping[str, Any]) -> str:
    head, rows, kept = groups_table(curves)
    if not head:
        return ""
    told = table(head, rows) if rows else ""
    return "\n\n".join(part for part in (told, cell(kept)) if part)


def groups_table(curves: Mapping[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]], str]:
    """(header, rows) of the metrics by group, and what is said of those that are kept back; empty without groups."""
    found: Mapping[str, Any] = curves.get("subgroups") or {}
    if not found:
        return (), [], ""
    groups: dict[str, Mapping[str, float]] = dict(found["groups"])
    if "others" in found:
        groups["all others"] = found["others"]
    names = list(dict.fromkeys(name for group in groups.values() for name in group if name != "examples"))
    rows = [
        (label, str(group["examples"]), *(f"{group[name]:.4f}" if name in group else "" for name in names))
        for label, group in groups.items()
    ]
    kept = ", ".join(found["kept_back"])
    why = f"Not told alone: {kept}, so that no group follows with fewer than {found['smallest']} examples of a class."
    return (str(found["column"]), "examples", *names), rows, why if kept else ""


def _named(at: int | str, labels: Sequence[str]) -> str:
    number = int(at)
    return f"{number} ({labels[number]})" if number < len(labels) else str(number)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(each) for each in line) + " |" for line in lines)


def cell(text: str) -> str:
    """Text that stays in its cell, and is text: names come from other people."""
    text = " ".join(str(text).split())
    return "".join("\\" + letter if letter in "\\`*[]<>|&" else letter for letter in text)
