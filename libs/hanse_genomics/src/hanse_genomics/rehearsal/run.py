"""A whole study in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hanse_genomics.arrays import Arrays
from hanse_genomics.files.cohort import Cohort
from hanse_genomics.rehearsal.verbs import RehearsalVerbs
from hanse_genomics.study import conduct
from hanse_schemas.study import Study


@dataclass(frozen=True, slots=True, eq=False)
class Rehearsed:
    """What a study made: the arrays of `results`, and `summary`."""

    results: Arrays
    summary: dict[str, Any]


def rehearse(study: Study, cohorts: Mapping[str, Cohort], state: Path) -> Rehearsed:
    """Run a study in this process; not from within an event loop.

    Args:
        cohorts: by name, opened for this study (`hanse_genomics.files.cohort.open_cohort`).
        state: a folder for what sites keep.

    Raises:
        HanseError: as `hanse_genomics.study.conduct`; a cohort's begins with its name.
    """
    made = asyncio.run(conduct(RehearsalVerbs(cohorts, study, state), study))
    return Rehearsed(made["results"], json.loads(made["summary"]["json"].tobytes()))
