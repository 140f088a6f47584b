"""An experiment's files: table, CSV, curves; and several experiments' page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hanse_lab.curves import curves
from hanse_lab.summary import Held, Summary
from hanse_lab.tables import as_csv, claims_table, outcome_table, shown, target_table, worst_table

_LEAD = """# Results

Written by `hanse lab run`, from the outcomes of its experiments. Each number is the mean over the seeds, ± their sample
standard deviation; accuracies are in percent.
"""
_VERDICTS = """A claim **appears** where at least three quarters of the seeds agree (of three seeds, all) and the mean
of the paired differences exceeds their deviation; **the reverse appears** where as many say the opposite as clearly;
otherwise it **does not appear**, and where a run failed it **cannot be told**.
"""


def write_files(summary: Summary, folder: Path) -> None:
    """`table.md`, `outcomes.csv` and a curve for each column, into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(section(summary, level=1))
    (folder / "outcomes.csv").write_text(as_csv(summary))
    write_curves(summary, folder)


def write_curves(summary: Summary, folder: Path) -> list[Path]:
    """The curves, one file a column."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for partition in summary.experiment.partitions:
        for attack in summary.experiment.attacks:
            column = partition if attack == "none" else f"{partition}, {attack}"
            path = folder / f"{summary.experiment.name}-{_slug(column)}.svg"
            path.write_text(curves(summary, partition, attack, f"{summary.experiment.title}; {column}"))
            made.append(path)
    return made


def write_page(summaries: Sequence[Summary], page: Path, *, lead: str = _LEAD) -> None:
    """One page of all experiments under `lead`, with curves of those without attacks in a folder beside it."""
    parts = [lead, _overview(summaries)]
    for summary in summaries:
        parts.append(section(summary, level=2))
        if [*summary.experiment.attacks] == ["none"]:
            drawn = write_curves(summary, page.with_suffix(""))
            parts.append("\n".join(f"![{path.stem}]({page.stem}/{path.name})" for path in drawn) + "\n")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(parts))


def section(summary: Summary, *, level: int) -> str:
    """Title, what was asked, what was run, the tables, the claims."""
    experiment = summary.experiment
    goal = "" if experiment.target is None else f"; target: {experiment.metric} {experiment.target:g}"
    test = "the same held-out examples for all" if experiment.test == "common" else "each site's own held-out examples"
    facts = (
        f"*{experiment.sites} sites, {experiment.rounds} rounds, seeds {', '.join(map(str, experiment.seeds))}; "
        f"{experiment.metric} on {test}{goal}.*"
    )
    parts = [f"{'#' * level} {experiment.title}\n", experiment.about.strip() + "\n", facts + "\n"]
    parts += [table for table in (outcome_table(summary), worst_table(summary), target_table(summary)) if table]
    if experiment.claims:
        parts.append(claims_table(summary.claims(), experiment.metric))
    return "\n".join(parts)


def _overview(summaries: Sequence[Summary]) -> str:
    parts = ["## What appears, and what does not\n", _VERDICTS]
    for summary in summaries:
        claims = summary.claims()
        if not claims:
            continue
        verdicts = [held.verdict for held in claims]
        counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in dict.fromkeys(sorted(verdicts)))
        parts.append(f"**{summary.experiment.title}**, {len(claims)} comparisons: {counts}.\n")
        missing = [_told(held, summary.experiment.metric) for held in claims if held.verdict != "appears"]
        if missing:
            parts.append("\n".join(missing) + "\n")
    return "\n".join(parts)


def _told(held: Held, metric: str) -> str:
    column = held.partition if held.attack == "none" else f"{held.partition}, {held.attack}"
    early = f" after {held.claim.after} round{'s' if held.claim.after > 1 else ''}" if held.claim.after else ""
    rows = f"{held.better} less {held.worse}{early}, {column}: {shown(held.difference, metric)}"
    return f"- {held.claim.says} ({rows}): {held.verdict}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "all"
