"""A run's metrics over its rounds, in columns and thinned, for pictures: a long run of many sites in one small page."""

from __future__ import annotations

from pydantic import Field

from hanse_fabric.messages.base import Frozen
from hanse_fabric.names import Slug
from hanse_schemas.http.runs import RoundMetrics


class CurvesQuery(Frozen):
    """What to draw.

    Attributes:
        metric: None: the one that the job stops by, or else the first.
        points: rounds at most.
        sites: whether each site's own curve is wanted, too.
        site: that of this one alone.
    """

    metric: str | None = Field(default=None, min_length=1, max_length=200)
    points: int = Field(default=300, ge=10, le=2000)
    sites: bool = True
    site: Slug | None = None


class RunEvaluation(Frozen):
    """The newest round whose evaluation has curves beside its metrics (confusion matrix, calibration, ROC, subgroups),
    without what single sites told; None: there is none."""

    newest: RoundMetrics | None


class RunCurves(Frozen):
    """One metric; all lists are as long as `rounds`. Numbers have six digits; null: none was told.

    Attributes:
        metrics: that there are.
        finished: rounds that have finished, of which `rounds` are some: first and last, and of each stretch between
            those with the lowest and the highest `overall`. What stands here has been so in a round; nothing is a mean
            of rounds, and no peak is lost.
        low, high: over all sites and all rounds since the one before in `rounds`.
        sites: by participant, where policies let the hub see single sites.
    """

    metric: str
    metrics: tuple[str, ...]
    finished: int
    rounds: tuple[int, ...]
    overall: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    sites: dict[str, tuple[float | None, ...]]
