"""`python -m hanse_fabric.telemetry.table`: the catalogue as the table of docs/metrics.md."""

from __future__ import annotations

from pathlib import Path

from hanse_fabric.telemetry import catalogue
from hanse_fabric.telemetry.metrics import Metric


def sections() -> list[tuple[str, list[Metric]]]:
    """The catalogue's metrics by the comments that head them, in the order of the source."""
    found: list[tuple[str, list[Metric]]] = []
    for line in Path(catalogue.__file__).read_text().splitlines():
        if line.startswith("# "):
            found.append((line[2:], []))
        metric = getattr(catalogue, line.partition(" = ")[0], None)
        if isinstance(metric, Metric):
            found[-1][1].append(metric)
    return found


def table() -> str:
    """A Markdown table for each section."""
    lines: list[str] = []
    for title, metrics in sections():
        lines += [f"### {title}", "", "| name | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
        lines += [
            f"| `{each.name}` | {each.kind} | {each.unit} | {', '.join(each.labels)} | {each.description} |"
            for each in metrics
        ]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(), end="")
