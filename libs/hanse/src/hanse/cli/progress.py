"""A run as a person would watch it: rounds, each site's state, metrics as they come."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hanse.cli.live import TOLD, LiveDisplay
from hanse.display import harmless
from hanse.history import History, Values, size_text, sparkline
from hanse.views import Event, describe, metrics_text, note_of


class RunDisplay(LiveDisplay):
    """Live in a terminal, one line per finished round elsewhere."""

    def __init__(self, rounds: int | None, *, console: Console | None = None) -> None:
        super().__init__(console=console)
        self._rounds = rounds
        self._round = 0
        self._done = ""
        self._noted: set[tuple[str, str]] = set()
        self._history = History(())

    def show(self, event: Event) -> None:
        """Take in one event."""
        self._take(event)
        if self._console.is_terminal:
            self._live.update(self.picture())
        if event.kind in (TOLD if self._console.is_terminal else TOLD | {"round-finished"}):
            self._console.print(Text(harmless(describe(event))))  # no markup: sites write into it
        if event.kind == "task-answered" and (said := note_of(event.data)):
            told = (str(event.data.get("participant")), said)
            if told not in self._noted:  # a site says the same in every round
                self._noted.add(told)
                self._console.print(Text(harmless(f"{told[0]}: {said}")))

    def _take(self, event: Event) -> None:
        data = event.data
        self._round = max(self._round, event.round)
        match event.kind:
            case "round-started":
                for name in data.get("participants") or ():
                    self._sites[name] = "working"
            case "progress" if "done" in data:
                self._done = describe(event)
            case "round-finished":
                self._history.rounds.append({**data, "round": event.round})
            case _:
                self._hear(event)

    def picture(self) -> RenderableType:
        """The run as it stands now."""
        at = self._done or f"round {self._round}" + (f" of {self._rounds}" if self._rounds else "")
        head = Text(f"{self._state}, {at}", "bold")
        bar = Table.grid()  # a bar by itself does not end its line
        bar.add_row(ProgressBar(total=float(self._rounds or 1), completed=float(self._round), width=40))
        history, metric = self._history, self._history.metric
        latest = history.rounds[-1] if len(history) else {}
        sent = history.down + history.up
        metrics = Text(metrics_text(latest.get("metrics") or {}) + (f"; {size_text(sent)} sent" if sent else ""))
        sites = Table(box=None, pad_edge=False)
        for column in ("site", "state", metric, ""):
            sites.add_column(column)
        by_site = history.sites(metric)
        for name, state in sorted(self._sites.items()):
            sites.add_row(Text(harmless(name)), Text(harmless(state)), *_curve(by_site.get(name, [])))
        if metric:
            sites.add_row("mean", "", *_curve(history.mean(metric)), style="bold")
            sites.add_row("minimum", "", *_curve(history.minimum(metric)), style="bold")
        return Group(head, bar, metrics, sites)


def _curve(values: Values) -> tuple[str, str]:
    """The newest value, and the small curve of those until then."""
    there = [value for value in values if value is not None]
    return (f"{there[-1]:.3f}", sparkline(values)) if there else ("", "")
