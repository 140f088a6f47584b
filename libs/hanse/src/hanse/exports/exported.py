"""What leaves of a run: its settings, its metrics by round, and a model of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hanse.settings import flat_settings

if TYPE_CHECKING:
    from hanse.history import History
    from hanse.views import RunView
    from hanse_schemas.http.models import ModelView


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A version that goes along.

    Attributes:
        view: as the registry signed it.
        file: verified, with its signed record beside it.
        card: Markdown.
    """

    view: ModelView
    file: Path
    card: str


@dataclass(frozen=True, slots=True)
class Point:
    """What a finished round has measured."""

    round: int
    at: datetime
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run that has ended.

    Attributes:
        sites: whether metrics of single sites go, too, as `<metric>/<site>`.
        model: None where none is wanted.
    """

    view: RunView
    history: History
    sites: bool = False
    model: ExportedModel | None = None

    @property
    def called(self) -> str:
        """The name that people gave it, else its id."""
        return self.view.name or self.view.run

    @property
    def settings(self) -> dict[str, Any]:
        """By dotted name."""
        return flat_settings(self.view.job)

    @property
    def origin(self) -> dict[str, str]:
        """Where it comes from, for a tracker's tags."""
        tags = {"hanse.project": self.view.project, "hanse.run": self.view.run, "hanse.state": self.view.state}
        if self.view.tags:
            tags["hanse.tags"] = ", ".join(self.view.tags)
        if self.view.reason:
            tags["hanse.reason"] = self.view.reason
        return tags

    def points(self) -> Iterator[Point]:
        """The finished rounds, in order."""
        for item in self.history.rounds:
            found = _numbers(item.get("metrics"))
            found |= {f"bytes_{way}": float(size) for way, size in (item.get("bytes") or {}).items()}
            for site, measured in sorted((item.get("sites") or {}).items()) if self.sites else ():
                found |= {f"{name}/{site}": value for name, value in _numbers(measured).items()}
            yield Point(int(item["round"]), _time(item.get("at"), self.view.updated_at), found)


def _numbers(values: Any) -> dict[str, float]:
    there = (values or {}).items()
    return {name: float(value) for name, value in sorted(there) if isinstance(value, int | float)}


def _time(text: Any, otherwise: datetime) -> datetime:
    return datetime.fromisoformat(text) if isinstance(text, str) else otherwise
