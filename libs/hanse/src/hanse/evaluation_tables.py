"""Tables of what an evaluation has beside its metrics: by class, who was taken for whom, calibration, points of curves,
groups of examples. For the terminal, and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Curves = Mapping[str, Any]
MOST_CLASSES = 20
"""Of which a table of who was taken for whom can be read."""
_POINTS = 11


@dataclass(frozen=True, slots=True)
class CurvesTable:
    """A table of an evaluation.

    Attributes:
        note: what is said below it.
    """

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def curves_tables(curves: Curves, labels: Sequence[str] = ()) -> Iterator[CurvesTable]:
    """The tables that there are.

    Args:
        curves: of `History.curves`.
        labels: what the classes are called, in their order; none: by their numbers.
    """
    for make in _TABLES:
        found = make(curves, labels)
        if found is not None:
            yield found


def curves_section(curves: Curves, problem: Mapping[str, Any]) -> str:
    """The section of a model card; empty where there is nothing.

    Args:
        curves: of `History.curves`.
        problem: of the version's record, whose schema may name the classes.
    """
    schema = problem.get("schema") or {}
    labels = [
        str(label["name"] if isinstance(label, Mapping) else label) for label in schema.get("labels") or ()
    ]  # fmt: skip
    parts = []
    for made in (make(curves, labels) for make in _OF_CARDS):
        if made is not None:
            told = table(made.head, made.rows) if made.rows else ""
            parts.append("\n\n".join(part for part in (told, cell(made.note)) if part))
    if not parts:
        return ""
    told = "\n\n".join(parts)
    return f"## Evaluation\n\n{of_whom(curves)}\n\n{told}"


def of_whom(curves: Curves) -> str:
    """Whose examples an evaluation is of, in words."""
    noise = curves.get("noise") or {}
    said = f"Of {curves.get('examples', '?')} test examples of {curves.get('sites', '?')} sites together."
    if not noise:
        return said
    errors = ", ".join(f"{name} {error:.2g}" for name, error in (noise.get("standard_error") or {}).items())
    return f"{said} All counts have noise, which moves the metrics by about (standard error): {errors or '?'}."


def _by_class(curves: Curves, labels: Sequence[str]) -> CurvesTable | None:
    by_class: Mapping[str, Mapping[str, float | None]] = curves.get("by_class") or {}
    names = list(dict.fromkeys(name for found in by_class.values() for name in found))
    rows = [
        (_named(at, labels), *("" if (value := found.get(name)) is None else f"{value:.4f}" for name in names))
        for at, found in by_class.items()
    ]
    return CurvesTable("By class", ("class", *names), rows) if rows else None


def confusion_table(curves: Curves, labels: Sequence[str]) -> CurvesTable | None:
    """Who was taken for whom, by the classes' names; None where it is not there, or is of too many classes."""
    rows = curves.get("confusion")
    if not rows or len(rows) > MOST_CLASSES:
        return None
    head = ("true \\ predicted", *(_named(at, labels) for at in range(len(rows))))
    told = [(_named(at, labels), *map(str, row)) for at, row in enumerate(rows)]
    return CurvesTable("Confusion matrix", head, told)


def _calibration(curves: Curves, _labels: Sequence[str]) -> CurvesTable | None:
    rows = [
        (
            f"{row['from']:.2f} to {row['to']:.2f}",
            str(row["examples"]),
            f"{row['predicted']:.3f}",
            f"{row['observed']:.3f}",
        )
        for row in curves.get("calibration") or ()
    ]
    return CurvesTable("Calibration", ("probability", "examples", "predicted", "observed"), rows) if rows else None


def _concordance(curves: Curves, _labels: Sequence[str]) -> CurvesTable | None:
    between = curves.get("concordance_between")
    if not between:
        return None
    row = tuple(f"{value:.4f}" for value in between)
    return CurvesTable("Concordance", ("concordance of all examples: at least", "at most"), [row])


_ABOUT = ("examples", "standard_error")
"""Of a group: no metrics."""


def _with_error(group: Mapping[str, Any], name: str) -> str:
    error = (group.get("standard_error") or {}).get(name)
    return (f"{group[name]:.4f}" + (f" ± {error:.2g}" if error else "")) if name in group else ""


def _by_group(curves: Curves, _labels: Sequence[str]) -> CurvesTable | None:
    found: Mapping[str, Any] = curves.get("subgroups") or {}
    if not found:
        return None
    groups: dict[str, Mapping[str, Any]] = dict(found["groups"])
    if "others" in found:
        groups["all others"] = found["others"]
    names = list(dict.fromkeys(name for group in groups.values() for name in group if name not in _ABOUT))
    rows = [
        (label, str(group["examples"]), *(_with_error(group, name) for name in names))
        for label, group in groups.items()
    ]
    kept = ", ".join(found["kept_back"])
    why = f"Not told alone: {kept}, so that no group follows with fewer than {found['smallest']} examples of a class."
    return CurvesTable("By group", (str(found["column"]), "examples", *names), rows, why if kept else "")


def _points(
    key: str, title: str, axes: tuple[str, str]
) -> Callable[[Curves, Sequence[str]], CurvesTable | None]:  # fmt: skip
    """A table of some points of the curves of a kind."""

    def made(curves: Curves, labels: Sequence[str]) -> CurvesTable | None:
        rows = []
        for at, points in (curves.get(key) or {}).items():
            step = max(1, (len(points) - 1) // (_POINTS - 1))
            shown = [*points[:-1:step], points[-1]] if points else []
            rows += [(_named(at, labels), f"{x:.3f}", f"{y:.3f}") for x, y in shown]
        return CurvesTable(title, ("class", *axes), rows) if rows else None

    return made


_OF_CARDS = (_by_class, confusion_table, _calibration, _concordance, _by_group)
_TABLES = (
    *_OF_CARDS,
    _points("roc", "ROC", ("false positive rate", "true positive rate")),
    _points("precision_recall", "Precision by recall", ("recall", "precision")),
)


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
