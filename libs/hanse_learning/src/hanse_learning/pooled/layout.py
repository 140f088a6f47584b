"""Where each count lies in the one vector of an evaluation: 64-bit words that are added word by word over the sites.

No numpy here: the hub chooses rings by it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.explained import explain
from hanse_fabric.messages.masking import MOST_COUNTS
from hanse_fabric.messages.privacy import Privacy, PrivateMetrics
from hanse_schemas.job import Evaluation, Job
from hanse_schemas.metrics import (
    COARSE,
    COUNTED,
    FINEST,
    FINEST_CELLS,
    METRICS,
    MOST_CLASSES,
    Family,
    Task,
    families,
    of_task,
)
from hanse_schemas.prepare import Prepare
from hanse_schemas.schema import TargetBounds
from hanse_schemas.subgroups import Subgroups

MOST_WORDS = MOST_COUNTS
"""Of one evaluation, so that the file of a masked one fits on the bus."""
MOST_EXAMPLES = 1 << 24
"""Of all sites together: a word holds so many of a kind, and sums of 16-bit places or of 32-bit fractions of them."""
CALIBRATION_BINS = 15
MOMENT_LIMBS = 7
"""Limbs of 40 bits (`hanse_privacy.ring.limbs`) of each sum that regression needs."""
PRIVATE_BINS = 16
"""Of a histogram whose cells have noise: more are finer, and have more of it."""
MOMENTS = ("absolute", "squared", "value", "value_squared")
AGREEMENT = ("value", "value_squared", "said", "said_squared", "product")
STRATA = 3
"""Of pairs that cells do not rank: of one row, of one column, of one cell."""
RANKED = 3
"""Of each the words: a site's own pairs, those of different values, and those of them that are ranked rightly less
those that are wrongly."""
LEAST_CELLS = 4
HEAD = 2
"""Words before the families': the number of sites, and that of their examples."""


@dataclass(frozen=True)
class Counts:
    """What an evaluation counts.

    Attributes:
        names: of the metrics that are wanted.
        classes: number of classes; 0 for regression.
        bins: of each histogram of scores.
        subgroups: by which of the examples' groups it is counted; None: of all together.
        scale: of the Laplace noise that each site adds to each count, in examples; None: counts are exact.
        rows: with noise, of one unit of the project's schema so many examples are counted at most.
        bounds: of values, by which cells are made: the schema's.
    """

    names: tuple[str, ...]
    task: Task
    classes: int
    bins: int = FINEST
    subgroups: Subgroups | None = None
    scale: float | None = None
    rows: int = 1
    bounds: tuple[float, ...] = ()

    @property
    def groups(self) -> int:
        """Of examples, each with a block of words."""
        return 1 if self.subgroups is None else len(self.subgroups.labels)

    @cached_property
    def parts(self) -> Mapping[Family, slice]:
        """The words of each family in a block."""
        sizes: dict[Family, int] = {
            "confusion": self.classes**2,
            "scores": 2 * self.curves * self.bins,
            "probabilities": 3 * CALIBRATION_BINS + 1,
            "moments": MOMENT_LIMBS * len(MOMENTS),
            "agreement": MOMENT_LIMBS * len(AGREEMENT),
            "pairs": self.bins + (RANKED * STRATA if self.ranks else 0),
        }
        found, at = dict[Family, slice](), HEAD
        needed = set(families(self.names))
        if self.subgroups is not None and self.classes:
            needed.add("confusion")  # it says how many of each class a group has
        if needed and self.scale is not None and self.classes == 2:
            needed = {"scores"}  # from which all follows, so that an example is in one cell
        for family in sorted(needed):
            found[family] = slice(at, at + sizes[family])
            at += sizes[family]
        return MappingProxyType(found)

    @property
    def ranks(self) -> bool:
        """Whether a site tells of its own pairs, beside cells. These tell how one person ranks among others, so they
        belong to fine cells alone."""
        return self.scale is None and self.bins > COARSE

    @property
    def curves(self) -> int:
        """Histograms of scores: one of two classes, else one for each class against the others."""
        return 1 if self.classes == 2 else self.classes

    @property
    def cells(self) -> int:
        """To how many counts one example adds 1."""
        return ("confusion" in self.parts) + ("scores" in self.parts) * self.curves + ("pairs" in self.parts)

    @property
    def block(self) -> int:
        """Words of a group; 0 where nothing is counted."""
        return max((part.stop for part in self.parts.values()), default=0)

    @property
    def words(self) -> int:
        """The vector's length: the groups' blocks."""
        return self.groups * self.block


def finest(classes: int, names: Iterable[str], subgroups: Subgroups | None = None) -> int:
    """The most bins of so many classes' histograms that leave room for everything else; of regression the most cells,
    a power of two."""
    if "pairs" in families(names):
        return _finest_cells(names, subgroups)
    named = tuple(name for name in names if name in COUNTED and COUNTED[name].family != "scores")
    others = Counts(named, "classification", classes, subgroups=subgroups)
    curves = classes if classes > 2 else 1
    return max(COARSE, min(FINEST, (MOST_WORDS // others.groups - others.block - HEAD) // (2 * curves)))


def _finest_cells(names: Iterable[str], subgroups: Subgroups | None) -> int:
    cells = FINEST_CELLS
    while cells > COARSE and Counts(tuple(names), "regression", 0, cells, subgroups).words > MOST_WORDS:
        cells //= 2
    return cells


def with_noise(asked: Evaluation, metrics: PrivateMetrics) -> Counts:
    """What is counted with noise: coarse, for each cell has its own."""
    classes = asked.classes or 0
    bins = asked.bins or (PRIVATE_BINS if classes <= 2 else max(2, 1 << (COARSE // classes).bit_length() - 1))
    task: Task = "classification" if classes else "regression"
    counts = Counts(asked.named, task, classes, bins, asked.subgroups, 1.0, metrics.rows, asked.bounds)
    return replace(counts, scale=scale_of(counts, metrics))


def without_noise(counts: Counts) -> Counts:
    """The same metrics of exact counts."""
    bins = finest(counts.classes, counts.names, counts.subgroups)
    return replace(counts, bins=bins, scale=None, rows=1)


def scale_of(counts: Counts, metrics: PrivateMetrics) -> float:
    """The scale of Laplace noise, in examples, that hides a unit in all that an answer tells, for its epsilon: `rows`
    examples in `cells` counts each, and what means and their number take (`hanse_privacy.noise.metrics`)."""
    means = len(metrics.bounds) + 1 if metrics.bounds else 0
    return (means + counts.cells * counts.rows) / metrics.epsilon


def check_noise(counts: Counts, privacy: Privacy) -> None:
    """Refuse counts that would have no noise, or none that hides what the section hides.

    Raises:
        HanseError: INVALID_INPUT naming the field.
    """
    field, named = "evaluate.metrics", ", ".join(name for name in counts.names if name in COUNTED)
    if privacy.metrics is None:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{field}: {named} would be told without noise, for privacy.metrics is not there",
            hint="privacy.metrics: {epsilon: 1.0} lets each evaluation spend so much, on top of the updates' epsilon",
        )  # fmt: skip
    if privacy.mechanism != "dp_sgd" or privacy.placement != "local":
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{field}: {named} cannot be had with {privacy.mechanism}, {privacy.placement}: of counts that hide all of "
            "a site's examples nothing would be left",
            hint="with mechanism: dp_sgd one example is hidden, or all of one unit, and these can be had",
        )
    sums = [name for name in counts.names if name in COUNTED and COUNTED[name].family in ("moments", "agreement")]
    if sums:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{field}: {', '.join(sums)} cannot be had with a section privacy: errors of a regression have no bound",
            hint="privacy.metrics: {bounds: {mse: 4.0}} cuts them, and gives their mean noise; concordance is counted",
        )
    fine = [name for name in counts.names if name in COUNTED and COUNTED[name].family == "probabilities"]
    if fine and counts.classes > 2:
        raise HanseError(
            ErrorCode.INVALID_INPUT, f"{field}: {fine[0]} of more than two classes cannot be had with a section privacy"
        )
    if counts.bins & (counts.bins - 1) or counts.bins > COARSE:
        raise invalid("evaluate.bins", counts.bins, f"2, 4, 8, 16 or {COARSE} with a section privacy")
    if counts.scale != scale_of(counts, privacy.metrics) or counts.rows != privacy.metrics.rows:
        raise invalid("evaluate.counts.scale", counts.scale, f"{scale_of(counts, privacy.metrics):g}, as is charged")


def check_told(privacy: Privacy | None) -> None:
    """Refuse a charge for nothing.

    Raises:
        HanseError: INVALID_INPUT.
    """
    if privacy is not None and privacy.metrics is not None and not privacy.metrics.bounds:
        raise invalid("privacy.metrics.bounds", "none", "that of a metric, or evaluate.metrics of counts")


def counts_of_job(job: Job) -> Counts | None:
    """What a job's evaluations count; None: nothing.

    Raises:
        HanseError: INVALID_INPUT where it does not say of how many classes.
    """
    asked = job.evaluate
    if not families(asked.named):
        return None
    if asked.classes is None:
        raise invalid(
            "evaluate.classes", None, "the number of classes that metrics are counted of (0 for regression), which "
            "this project's schema does not tell",
        )  # fmt: skip
    task: Task = "classification" if asked.classes else "regression"
    if job.privacy is not None and job.privacy.metrics is not None:
        return with_noise(asked, job.privacy.metrics)
    bins = finest(asked.classes, asked.named, asked.subgroups) if asked.bins is None else asked.bins
    return Counts(asked.named, task, asked.classes, bins, asked.subgroups, bounds=asked.bounds)


def check_counts(job: Job) -> None:
    """Refuse counts that no evaluation of this job can have.

    Raises:
        HanseError: INVALID_INPUT naming the field.
    """
    counts = counts_of_job(job)
    if counts is None:
        check_told(job.privacy)
        return
    field, named = "evaluate.metrics", ", ".join(name for name in counts.names if name in COUNTED)
    check_metrics(counts.names, counts.task)
    if job.code is not None:
        raise HanseError(
            ErrorCode.INVALID_INPUT,
            f"{field}: {named} cannot be had with site code: its test() reports what it likes",
        )
    if job.privacy is not None:
        check_noise(counts, job.privacy)
    if counts.classes > MOST_CLASSES:
        raise invalid("evaluate.classes", counts.classes, f"at most {MOST_CLASSES}, of which sites can count together")
    most = finest(counts.classes, counts.names, counts.subgroups)
    if counts.bins > most:
        groups = f" in {counts.groups} groups" if counts.subgroups else ""
        raise invalid("evaluate.bins", counts.bins, f"at most {most} with {counts.classes} classes{groups}")
    if "pairs" in counts.parts:
        _check_cells(counts)
    if counts.subgroups is not None:
        _check_subgroups(job, counts, counts.subgroups)


def _check_cells(counts: Counts) -> None:
    if counts.bins & (counts.bins - 1) or counts.bins < LEAST_CELLS:
        raise invalid("evaluate.bins", counts.bins, f"{LEAST_CELLS}, 8, 16 or another power of two, for concordance")


def _check_subgroups(job: Job, counts: Counts, asked: Subgroups) -> None:
    field = "evaluate.subgroups"
    if counts.words > MOST_WORDS:
        raise invalid(
            field, f"{counts.groups} groups of {counts.classes} classes", f"at most {MOST_WORDS} counts in all",
            hint="leave auroc and average_precision out, or take a column of fewer values",
        )  # fmt: skip
    if not isinstance(job.prepare, Prepare) or asked.kind is None:
        raise invalid(field, asked.column, "a job that prepares the project's table, by a section prepare or none")
    wanted = job.participants
    if wanted.fraction != 1 or wanted.quorum != 1:
        raise invalid(
            field, f"fraction {wanted.fraction:g} and quorum {wanted.quorum:g}", "1 and 1 of participants: rounds of "
            "other sites would tell single sites' groups by their difference",
        )  # fmt: skip


def counts_in(config: Mapping[str, Any]) -> Counts | None:
    """What a task's config asks a site to count; None: nothing.

    Raises:
        HanseError: INVALID_INPUT for a section that cannot be read.
    """
    told = (config.get("evaluate") or {}).get("counts")
    if told is None:
        return None
    try:
        asked = _CountsForm.model_validate(told)
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"task.config.evaluate.counts: {explain(error)}") from None
    check_metrics(asked.names, asked.task)
    counts = Counts(
        asked.names, asked.task, asked.classes, asked.bins, asked.subgroups, asked.scale, asked.rows, asked.bounds
    )  # fmt: skip
    if "pairs" in counts.parts:
        _check_cells(counts)
        if not counts.bounds:
            raise invalid("task.config.evaluate.counts.bounds", [], "the target_bounds of the project's schema")
    if asked.subgroups is not None and asked.subgroups.kind is None:
        raise invalid("task.config.evaluate.counts.subgroups", told, "a column with its kind and values")
    if counts.words > MOST_WORDS or (asked.task == "classification") != (asked.classes > 1):
        raise invalid("task.config.evaluate.counts", told, f"at most {MOST_WORDS} words of classes, or of values")
    return counts


def is_optional(config: Mapping[str, Any]) -> bool:
    """Whether a site that may not count what a task's config asks takes part all the same."""
    return (config.get("evaluate") or {}).get("optional") is True


def told_of(counts: Counts) -> dict[str, Any]:
    """As a task's config has it."""
    told: dict[str, Any] = {
        "names": list(counts.names), "task": counts.task, "classes": counts.classes, "bins": counts.bins,
    }  # fmt: skip
    if counts.scale is not None:
        told |= {"scale": counts.scale, "rows": counts.rows}
    if counts.bounds:
        told["bounds"] = list(counts.bounds)
    if counts.subgroups is None:
        return told
    return told | {"subgroups": counts.subgroups.model_dump(mode="json")}


class _CountsForm(Frozen):
    names: tuple[str, ...] = Field(max_length=32)
    task: Task
    classes: int = Field(ge=0, le=MOST_CLASSES)
    bins: int = Field(ge=2, le=max(FINEST, FINEST_CELLS))
    subgroups: Subgroups | None = None
    scale: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    rows: int = Field(default=1, ge=1)
    bounds: TargetBounds = ()


def check_metrics(names: Iterable[str], task: Task, *, field: str = "evaluate.metrics") -> None:
    """Refuse what no evaluation of that task can have.

    Raises:
        HanseError: INVALID_INPUT naming the metric, and those that there are.
    """
    can = of_task(task)
    for name in names:
        if name not in can:
            other = f" ({name} is of {_other(task)})" if name in COUNTED or name in METRICS else ""
            raise invalid(field, name, f"a metric of {task}: {', '.join(can)}{other}", hint=_OTHERWISE.get(name, ""))


_OTHERWISE = {"concordance": "of two classes it is auroc"}


def _other(task: Task) -> Task:
    return "regression" if task == "classification" else "classification"
