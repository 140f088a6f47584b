"""A request as the worker's process has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from hanse_datapod.data.load import SiteData
from hanse_datapod.data.settings import DataSettings
from hanse_datapod.data.tables import SiteTables
from hanse_datapod.worker.foreign.settings import ForeignSettings
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.messages import TaskKind
from hanse_learning.site.examples import Problem
from hanse_learning.site.ranks import Ranks
from hanse_learning.site.sums import Sums
from hanse_schemas.schema import LearnableSchema


@dataclass(frozen=True, slots=True)
class WorkContext:
    """A request, with `data` reading the site's data (once) when they are needed. See `WorkRequest`.

    Attributes:
        tables: reads the site's raw tables (once), where it has some.
        device: torch's name of the device that was chosen.
        blank: gives what `blank_module` makes, kept from task to task: drawing 25 million weights anew takes 0.3 s.
            None: each task makes its own, as it must where several are at work at once.
        divided: does the training in several processes instead; None: this process does it.
        ranks: the processes that train together, of which this is one; None: this one alone.
        memory: bytes that the task may use, of all its processes; None: as much as there is.
        foreign: the site's interpreters for code of other frameworks.
        settings: where the data lie, for code that reads them itself; None: in no file.
        fingerprint: of the data that `data` has read.
    """

    kind: TaskKind
    config: dict[str, Any]
    seed: int
    round: int
    model: Path | None
    output: Path
    state: Path
    schema: LearnableSchema
    code: Path | None
    data: Callable[[], SiteData]
    on_progress: Callable[[float, str], None]
    extras: Mapping[str, Path] = field(default_factory=dict)
    trained: int | None = None
    sums: Sums | None = None
    tables: Callable[[], SiteTables] | None = None
    device: str = "cpu"
    blank: Callable[[str, Problem], nn.Module] | None = None
    divided: Callable[[], WorkOutcome] | None = None
    ranks: Ranks | None = None
    memory: int | None = None
    foreign: ForeignSettings = field(default_factory=ForeignSettings)
    settings: DataSettings | None = None
    fingerprint: Callable[[], str] | None = None

    @property
    def speaks(self) -> bool:
        """Whether this process writes down what is made: of several, the first does."""
        return self.ranks is None or self.ranks.rank == 0
