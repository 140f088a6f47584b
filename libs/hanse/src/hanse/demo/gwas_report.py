"""The study demonstration's last page: federated beside pooled and meta-analysis, and where things are."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from hanse.demo.gwas import GwasOutcome
from hanse.history import size_text

_COLUMNS = ("correlation", "max. difference", "hits", "found", "missed", "false")


def emit_report(outcome: GwasOutcome, *, console: Console | None = None) -> None:
    """Print what was found."""
    shown = console or Console()
    for dataset in outcome.datasets:
        shares = ", ".join(
            f"{name} {cases} cases of {cases + controls}" for name, (cases, controls) in dataset["shares"].items()
        )
        shown.print(f"\n[bold]{dataset['name']}[/bold]: {shares}", soft_wrap=True)
        for one in (one for one in outcome.compared if one["dataset"] == dataset["name"]):
            key = one["dataset"], one["test"]
            _emit_study(shown, one, outcome.seconds[key], outcome.sent[key])
    shown.print(
        "\nCorrelation and max. difference compare -log10 p with the pooled analysis. Hits are SNPs whose p is below "
        "0.05 / SNPs in the pooled analysis. Found: how many of these the study has, too; missed: how many it has not; "
        "false: how many it has that the pooled analysis has not. No genotype left its cohort."
    )
    folder = outcome.folder
    shown.print(f"\nAll in {outcome.seconds_total:.1f} s. Tables and reports:")
    for one in outcome.compared:
        shown.print(f"  {folder / 'results' / one['dataset'] / one['test'] / 'report.html'}", soft_wrap=True)
    shown.print("\nNext: docs/gwas.md, for a study of your own.")


def _emit_study(console: Console, one: dict[str, Any], seconds: float, sent: int) -> None:
    took = f"{seconds:.1f} s" + (f", {size_text(sent)} sent" if sent else "")
    title = f"{one['test'].replace('_', '-')}, {one['snps']} SNPs ({took}), beside the pooled data ({one['reference']})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    for name, (_, family) in one["analyses"].items():
        style = "bold" if name == "federated" else None
        numbers = [str(family[key]) for key in ("significant", "found", "missed", "false")]
        table.add_row(name, _number(family["pearson"]), _number(family["largest"]), *numbers, style=style)
    console.print()
    console.print(table)
    console.print(_printed_text(one), style="dim")


def _printed_text(one: dict[str, Any]) -> str:
    """How the printed tables differ, in words."""
    found = one["printed"]
    if not found["snps"]:
        return "Every number is printed alike."
    if found["largest"] is None:
        return f"{found['snps']} SNPs are told otherwise: another allele, or no number."
    some = "1 SNP has" if found["snps"] == 1 else f"{found['snps']} SNPs have"
    text = f"{some} a number that is printed otherwise, at most by {100 * found['largest']:.2g} %"
    if one["test"] == "logistic" and one["reference"].startswith("PLINK"):
        text += ": PLINK 1.9 computes logistic regression in single precision"
    return text + "."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
