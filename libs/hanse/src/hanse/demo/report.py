"""The demonstration's last page: the table, where things are, what to try next."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from hanse.demo.scenario import DemoOutcome


def emit_report(outcome: DemoOutcome) -> None:
    """Print what was found."""
    console = Console()
    found = outcome.comparison
    table = Table(title="Accuracy", title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("trained on")
    for name in ("examples", "all digits", "its site"):
        table.add_column(name, justify="right")
    for name, accuracy in found.alone.items():
        own = _share(found.alone_on_own[name])
        table.add_row(f"{name} alone", str(outcome.examples.get(name, "")), _share(accuracy), own)
    table.add_row("mean of the sites alone", "", _share(found.local_mean), "")
    everything = str(sum(outcome.examples.values()))
    lowest = f"{_share(found.federated_min_site)} (lowest)"
    table.add_row("[bold]federated[/bold]", everything, f"[bold]{_share(found.federated)}[/bold]", lowest)
    lowest = f"{_share(min(found.pooled_by_site.values()))} (lowest)"
    table.add_row("pooled (the bound)", everything, _share(found.pooled), lowest)
    console.print()
    console.print(table)
    first, total = outcome.seconds_to_first_round, outcome.seconds_total
    console.print(f"\n{outcome.rounds} rounds; the first model after {first:.1f} s, all in {total:.1f} s.")
    console.print("No example left its site: what left is listed in each site's outbox log.\n")
    folder = outcome.folder
    site = folder / "sites" / next(iter(found.alone))
    for what, where in (("model", "model.safetensors"), ("audit", "audit.json"), ("logs", "hub/logs")):
        console.print(f"  {what.ljust(12)} {folder / where}", soft_wrap=True)
    console.print(f"  outbox logs  {folder / 'sites'}", soft_wrap=True)
    console.print("\nNext:")
    if (activate := _to_activate()) is not None:
        console.print(f"  . {activate}   # so that this shell finds hanse, and python with it", soft_wrap=True)
    console.print(f"  hanse model verify {folder / 'model.safetensors'}", soft_wrap=True)
    console.print(f"  python -m hanse_datapod verify-log --home {site}", soft_wrap=True)
    console.print("  hanse up   # a hub of your own; then docs/owner.md")


def _to_activate() -> Path | None:
    """The file by which a shell finds the commands of this environment; None where it finds them, or there is none."""
    programs = Path(sys.executable).parent
    found, activate = shutil.which("hanse"), programs / "activate"
    if not activate.exists() or (found is not None and Path(found).parent == programs):
        return None
    return activate.relative_to(Path.cwd()) if activate.is_relative_to(Path.cwd()) else activate


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"
