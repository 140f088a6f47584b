"""Tables of an experiment: Markdown for people, CSV for programs."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence

from hanse_lab.experiment import Experiment
from hanse_lab.summary import Held, Spread, Summary

_PERCENT = frozenset({"accuracy"})


def shown(spread: Spread, metric: str) -> str:
    """`95.1 ± 0.4` (accuracy in percent), with how many runs failed."""
    if not spread.count:
        return "failed"
    scale, digits = (100.0, 1) if metric in _PERCENT else (1.0, 3)
    text = f"{spread.mean * scale:.{digits}f} ± {spread.deviation * scale:.{digits}f}"
    return f"{text} ({spread.failed} failed)" if spread.failed else text


def outcome_table(summary: Summary) -> str:
    """Rows are algorithms, columns partitions and attacks: the mean over the seeds, and the deviation."""
    columns, titles = column_titles(summary.experiment)
    metric = summary.experiment.metric

    def cell(name: str, partition: str, attack: str) -> str:
        text = shown(summary.spread(name, partition, attack, metric), metric)
        of_paper = summary.experiment.algorithms[name].paper.get(partition)
        return text if of_paper is None else f"{text} (paper: {of_paper:g})"

    rows = [[name, *(cell(name, *column) for column in columns)] for name in summary.experiment.algorithms]
    return markdown(["", *titles], rows)


def agreement_table(summary: Summary) -> str:
    """Of rows with a sign mask: how far signs agree, and how many parameters it leaves whole; empty without masks."""
    columns, titles = column_titles(summary.experiment)
    rows = []
    for name in summary.experiment.algorithms:
        spreads = [
            [summary.spread(name, *column, metric) for metric in ("agreement", "unmasked")] for column in columns
        ]
        if any(spread.count for pair in spreads for spread in pair):
            rows.append([name, *(f"{100 * one.mean:.1f}, {100 * other.mean:.1f}" for one, other in spreads)])
    return markdown(["signs agree; parameters left whole, %", *titles], rows) if rows else ""


def pruned_table(summary: Summary) -> str:
    """Of rows whose sites prune: what share of weights is gone after how many rounds, and MiB sent in all, both ways,
    of all rows; empty where none prunes."""
    columns, titles = column_titles(summary.experiment)
    rows, prunes = [], False
    for name in summary.experiment.algorithms:
        row = [name]
        for column in columns:
            found = [each for each in summary.outcomes(name, *column) if each.rounds]
            sent = statistics.mean(sum(each.sent) for each in found) / 2**20 if found else 0.0
            shares = [each.metrics["pruned"] for each in found if "pruned" in each.metrics]
            prunes = prunes or bool(shares)
            least = min((len(each) for each in shares), default=0)
            after = sorted({least // 5 - 1, 2 * least // 5 - 1, least - 1} - {-1})
            told = [f"{100 * statistics.mean(each[at] for each in shares):.0f} after {found[0].rounds[at]}"
                    for at in after]  # fmt: skip
            row.append("; ".join([*told, f"{sent:.1f} MiB"]))
        rows.append(row)
    return markdown(["pruned, % after rounds; sent", *titles], rows) if prunes else ""


def privacy_table(summary: Summary) -> str:
    """Of rows with privacy: the most epsilon that a site has spent, over the seeds; empty without."""
    columns, titles = column_titles(summary.experiment)
    rows = []
    for name in summary.experiment.algorithms:
        spent = [[each.epsilon for each in summary.outcomes(name, *column) if each.epsilon] for column in columns]
        if any(spent):
            rows.append([name, *(f"{max(values):.3g}" if values else "none" for values in spent)])
    return markdown(["epsilon spent", *titles], rows) if rows else ""


def worst_table(summary: Summary) -> str:
    """The same for the site that is worst off, of rows whose sites differ; empty where none do."""
    columns, titles = column_titles(summary.experiment)
    metric = summary.experiment.metric
    differing = [
        name for name in summary.experiment.algorithms
        if any(outcome.worst for column in columns for outcome in summary.outcomes(name, *column))
    ]  # fmt: skip
    if not differing:
        return ""
    rows = [
        [name, *(shown(summary.spread(name, *column, metric, worst=True), metric) for column in columns)]
        for name in differing
    ]
    return markdown(["worst site", *titles], rows)


def target_table(summary: Summary) -> str:
    """Rounds, and bytes up and down, to the target: medians of the seeds that reached it; empty without a target."""
    if summary.experiment.target is None:
        return ""
    columns, titles = column_titles(summary.experiment)
    rows = []
    for name in summary.experiment.algorithms:
        row = [name]
        for column in columns:
            seeds = summary.to_target(name, *column)
            there = [found for found in seeds if found is not None]
            if not there:
                row.append("not reached")
                continue
            rounds = statistics.median(found.round for found in there)
            text = f"{rounds:g} rounds, {statistics.median(found.bytes for found in there) / 2**20:.1f} MiB"
            if (messages := statistics.median(summary.messages_to_target(name, *column))) != rounds:
                text = f"{messages:g} rounds of messages in {text}"
            row.append(text if len(there) == len(seeds) else f"{text} ({len(there)} of {len(seeds)} seeds)")
        rows.append(row)
    return markdown(["to the target", *titles], rows)


def claims_table(held: Sequence[Held], metric: str) -> str:
    """Each claim, the paired difference, and whether it appears."""
    rows = [
        [
            each.claim.says,
            each.compared + (f", round {each.claim.after}" if each.claim.after else ""),
            column_title(each.partition, each.attack),
            shown(each.difference, metric),
            each.claim.paper,
            f"{each.wins} of {each.difference.count}",
            f"**{each.verdict}**",
        ]
        for each in held
    ]
    return markdown(["claim", "difference", "where", "mean", "paper", "seeds", ""], rows)


def as_csv(summary: Summary) -> str:
    """Every cell's outcome: row, column, seed, each metric at the end, bytes, seconds, failure."""
    names = sorted(
        {
            name
            for algorithm in summary.experiment.algorithms
            for column in column_titles(summary.experiment)[0]
            for outcome in summary.outcomes(algorithm, *column)
            for name in outcome.metrics
        }
    )
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["algorithm", "partition", "attack", "seed", *names, "bytes", "seconds", "failed"])
    for algorithm in summary.experiment.algorithms:
        for column in column_titles(summary.experiment)[0]:
            found = summary.outcomes(algorithm, *column)
            for seed, outcome in zip(summary.experiment.seeds, found, strict=True):
                last = [outcome.metrics[name][-1] if name in outcome.metrics else "" for name in names]
                row = [algorithm, *column, seed, *last, sum(outcome.sent), round(outcome.seconds, 3), outcome.failed]
                table.writerow(row)
    return out.getvalue()


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def in_units(metric: str) -> str:
    """The metric's name with its unit, for an axis."""
    return f"{metric}, %" if metric in _PERCENT else metric


def column_titles(experiment: Experiment) -> tuple[list[tuple[str, str]], list[str]]:
    """The tables' columns, (partition, attack), and their titles."""
    columns = [(partition, attack) for partition in experiment.partitions for attack in experiment.attacks]
    return columns, [column_title(*column) for column in columns]


def column_title(partition: str, attack: str) -> str:
    """Of the column; nobody attacks in `none`."""
    return partition if attack == "none" else f"{partition}, {attack}"
