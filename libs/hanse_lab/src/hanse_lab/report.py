"""An experiment's files: table, CSV, picture; and several experiments' page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hanse_lab.measured import Measured, measured_section
from hanse_lab.pictures import as_svg, picture
from hanse_lab.summary import Held, Summary
from hanse_lab.tables import (
    agreement_table,
    as_csv,
    claims_table,
    column_title,
    outcome_table,
    privacy_table,
    pruned_table,
    shown,
    target_table,
    worst_table,
)

_LEAD = """# Results

Written by `hanse lab run`, from the outcomes of its experiments. Each number is the mean over the seeds, ± their sample
standard deviation; accuracies are in percent.
"""
_VERDICTS = """A claim **appears** where at least three quarters of the seeds agree (of three seeds, all) and the mean
of the paired differences exceeds their deviation; **the reverse appears** where as many say the opposite as clearly;
otherwise it **does not appear**, and where a run failed it **cannot be told**.
"""


def write_files(summary: Summary, folder: Path) -> None:
    """`table.md`, `outcomes.csv` and the picture, into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(section(summary, level=1))
    (folder / "outcomes.csv").write_text(as_csv(summary))
    write_picture(summary, folder)


def write_picture(summary: Summary, folder: Path) -> Path:
    """The picture, as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{summary.experiment.name}.svg"
    path.write_bytes(as_svg(picture(summary)))
    return path


def write_page(
    summaries: Sequence[Summary], page: Path, *, lead: str = _LEAD, claims: str = "", measured: Iterable[Measured] = ()
) -> None:
    """One page of all experiments, with pictures in a folder beside it.

    Args:
        lead: what the page begins with.
        claims: the claims table of `claims_page`, which comes next.
        measured: records of benchmarks, which have the page's last sections; their pictures lie there already.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(page_text(summaries, page.stem, lead=lead, claims=claims, measured=measured))
    for summary in filter(pictured, summaries):
        write_picture(summary, page.with_suffix(""))


def page_text(
    summaries: Sequence[Summary], pictures: str, *, lead: str = _LEAD, claims: str = "",
    measured: Iterable[Measured] = (),
) -> str:  # fmt: skip
    """The page; `pictures` is the folder's name."""
    parts = [lead]
    if claims:
        parts += ["## The works' claims, one by one\n", claims]
    parts.append(_overview(summaries))
    for summary in summaries:
        name = summary.experiment.name
        parts.append(section(summary, level=2))
        if pictured(summary):
            parts.append(f"![{summary.experiment.title}, by round]({pictures}/{name}.svg)\n")
    return "\n".join([*parts, *(measured_section(record, pictures) for record in measured)])


def pictured(summary: Summary) -> bool:
    """Whether the page has the picture: of attacks the tables tell all."""
    return [*summary.experiment.attacks] == ["none"]


def section(summary: Summary, *, level: int) -> str:
    """Title, what was asked, what was run, the tables, the claims."""
    experiment = summary.experiment
    goal = "" if experiment.target is None else f"; target: {experiment.metric} {experiment.target:g}"
    test = "the same held-out examples for all" if experiment.test == "common" else "each site's own held-out examples"
    seeds = ", ".join(map(str, experiment.seeds))
    facts = (
        f"*`{experiment.name}`: {experiment.sites} sites, {experiment.rounds} rounds, seeds {seeds}; "
        f"{experiment.metric} on {test}{goal}.*"
    )
    parts = [f"{'#' * level} {experiment.title}\n", experiment.about.strip() + "\n", facts + "\n"]
    tables = (outcome_table, worst_table, target_table, agreement_table, pruned_table, privacy_table)
    made = [table(summary) for table in tables]
    parts += [table for table in made if table]
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
    column = column_title(held.partition, held.attack)
    early = f" after {held.claim.after} round{'s' if held.claim.after > 1 else ''}" if held.claim.after else ""
    rows = f"{held.compared}{early}, {column}: {shown(held.difference, metric)}"
    return f"- {held.claim.says} ({rows}): {held.verdict}"
