"""A study as a person would watch it: chunks done, each site's last answer, what has crossed so far."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hanse.cli.live import TOLD, LiveDisplay
from hanse.display import harmless
from hanse.history import size_text
from hanse.studies import ArrayBytes
from hanse.views import Event, describe

_LINES = 10
"""Of progress, where there is no terminal: one at each tenth of the chunks, and at every tenth round."""


class StudyDisplay(LiveDisplay):
    """Live in a terminal, a line for each tenth of the chunks elsewhere."""

    def __init__(self, *, console: Console | None = None) -> None:
        super().__init__(console=console)
        self.traffic = ArrayBytes()
        self._at: list[datetime] = []
        self._step = ""
        self._bars: dict[str, tuple[int, int]] = {}
        self._said: dict[str, int] = {}

    @property
    def seconds(self) -> float:
        """From the study's beginning to what happened last."""
        return (self._at[-1] - self._at[0]).total_seconds() if self._at else 0.0

    def show(self, event: Event) -> None:
        """Take in one event."""
        lines = self._take(event)
        if self._console.is_terminal:
            self._live.update(self.picture())
            lines = []
        if event.kind in TOLD:
            lines.append(describe(event).removeprefix("round 0: "))
        for line in lines:
            self._console.print(Text(harmless(line)))  # no markup: sites write into it

    def _take(self, event: Event) -> list[str]:
        """What is to be said where no picture is shown."""
        data = event.data
        self.traffic.take(event)
        if self._state == "running" or data.get("state") == "running":
            self._at = [*self._at[:1], event.at]
        match event.kind:
            case "progress" if "of" in data:
                return self._progress(str(data.get("what", "chunks")), int(data["done"]), int(data["of"]))
            case "structure":
                self._step = structure_text(data)
                return [self._step] if int(data.get("done") or 0) % _LINES == 0 else []
            case _:
                self._hear(event)
        return []

    def _progress(self, what: str, done: int, of: int) -> list[str]:
        done = max(done, self._bars.get(what, (0, 0))[0])
        self._bars[what] = done, of
        tenth = _LINES * done // max(of, 1)
        if tenth <= self._said.get(what, 0):
            return []
        self._said[what] = tenth
        return [f"{done} of {of} {what} are done"]

    def picture(self) -> RenderableType:
        """The study as it stands now."""
        sent = f"; {size_text(self.traffic.total)} sent" if self.traffic.total else ""
        head = Text(f"{self._state}{sent}", "bold")
        bars = Table.grid(padding=(0, 1))
        for what, (done, of) in self._bars.items():
            bars.add_row(what, ProgressBar(total=float(of), completed=float(done), width=40), f"{done} of {of}")
        sites = Table(box=None, pad_edge=False)
        sites.add_column("cohort")
        sites.add_column("last answer")
        for name, state in sorted(self._sites.items()):
            sites.add_row(Text(harmless(name)), Text(harmless(state)))
        return Group(head, *([Text(self._step)] if self._step else []), bars, sites)


def structure_text(data: Mapping[str, Any]) -> str:
    """News of population structure, in words."""
    match data.get("what"):
        case "panel":
            return f"principal components: {data.get('snps')} of {data.get('candidates')} SNPs are left by LD pruning"
        case "components":
            return f"principal components: round {data.get('done')}, angle below {float(data.get('angle') or 0):.2g}"
        case _:
            return f"principal components: {dict(data)}"
