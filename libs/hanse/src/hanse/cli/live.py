"""What the displays of runs and of studies share: a live picture in a terminal, and what each site said last."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live

from hanse.views import Event, answer

TOLD = frozenset({"state", "late-result", "refused", "note"})
"""Kinds of events that are always told in a line."""


class LiveDisplay(ABC):
    """Live in a terminal only."""

    def __init__(self, *, console: Console | None = None) -> None:
        self._console = console or Console()
        self._state = "waiting"
        self._sites: dict[str, str] = {}
        self._live = Live(console=self._console, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    @abstractmethod
    def show(self, event: Event) -> None:
        """Take in one event."""

    @abstractmethod
    def picture(self) -> RenderableType:
        """How it stands now."""

    def _hear(self, event: Event) -> None:
        """Note the run's state, and what a site says of itself."""
        data = event.data
        match event.kind:
            case "state":
                self._state = str(data.get("state", ""))
            case "task-answered":
                self._sites[str(data.get("participant"))] = answer(data)
            case "refused" | "late-result":
                self._sites[str(data.get("participant"))] = event.kind
            case "progress":
                self._sites[str(data.get("participant"))] = f"{100 * float(data.get('fraction', 0)):.0f} %"
            case _:
                pass
