"""What the hub's step is: a function of the cohorts' sums that makes objects of the study and a few facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hanse_genomics.arrays import Arrays, Given
from hanse_privacy.joint import Fact, Settings
from hanse_schemas.study import Study


@dataclass(frozen=True, slots=True, eq=False)
class Finished:
    """What a step made: objects (arrays by name, a tensor file each) and facts."""

    outputs: dict[str, Arrays] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)


HubStep = Callable[[Study, Settings, Any, Given], Finished]
"""(study, settings, total, given) -> what it made.

`total` has the sums in real units by array (int64 where the ring's fraction is 0, else float64); for a step that is not
masked it has the arrays of each cohort by the cohort's name.
"""
