"""What a site's step is: a function of the site's study and of what was given, that makes the arrays to be summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hanse_genomics.arrays import Arrays, Given
from hanse_genomics.files.cohort import Cohort
from hanse_privacy.joint import Settings
from hanse_schemas.study import Study


@dataclass(frozen=True, slots=True, eq=False)
class SiteStudy:
    """A study at a site.

    Attributes:
        cohort: the site's files.
        study: what is asked.
        state: a durable folder of the run, for what must survive the worker: principal components.
        cache: what lives as long as the worker process: nothing that could not be made again.
    """

    cohort: Cohort
    study: Study
    state: Path
    cache: dict[str, Any] = field(default_factory=dict)


SiteStep = Callable[[SiteStudy, Settings, Given], Arrays]
"""(site, settings, given) -> arrays by name, int64 or float64 where they are summed."""
