"""Where each count lies in the one vector of an evaluation: 64-bit words that are added word by word over the sites.

No numpy here: the hub chooses rings by it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.base import explain
from hanse_fabric.messages.masking import MOST_COUNTS
from hanse_schemas.job import Job
from hanse_schemas.metrics import COARSE, COUNTED, FINEST, METRICS, MOST_CLASSES, Family, Task, families, of_task

MOST_WORDS = MOST_COUNTS
"""Of one evaluation, so that the file of a masked one fits on the bus."""
MOST_EXAMPLES = 1 << 24
"""Of all sites together: a word holds so many of a kind, and sums of 16-bit places or of 32-bit fractions of them."""
CALIBRATION_BINS = 15
MOMENT_LIMBS = 7
"""Limbs of 40 bits (`hanse_privacy.ring.limbs`) of each sum that regression needs."""
MOMENTS = ("absolute", "squared", "value", "value_squared")
_HEAD = 2
"""Words before the families': the number of sites, and that of their examples."""


@dataclass(frozen=True)
class Counts:
    """What an evaluation counts.

    Attributes:
        names: of the metrics that are wanted.
        classes: number of classes; 0 for regression.
        bins: of each histogram of scores.
    """

    names: tuple[str, ...]
    task: Task
    classes: int
    bins: int = FINEST

    @cached_property
    def parts(self) -> Mapping[Family, slice]:
        """The words of each family."""
        sizes: dict[Family, int] = {
            "confusion": self.classes**2,
            "scores": 2 * self.curves * self.bins,
            "probabilities": 3 * CALIBRATION_BINS + 1,
            "moments": MOMENT_LIMBS * len(MOMENTS),
        }
        found, at = dict[Family, slice](), _HEAD
        for family in families(self.names):
            found[family] = slice(at, at + sizes[family])
            at += sizes[family]
        return MappingProxyType(found)

    @property
    def curves(self) -> int:
        """Histograms of scores: one of two classes, else one for each class against the others."""
        return 1 if self.classes == 2 else self.classes

    @property
    def words(self) -> int:
        """The vector's length; 0 where nothing is counted."""
        return max((part.stop for part in self.parts.values()), default=0)


def finest(classes: int, names: Iterable[str]) -> int:
    """The most bins of so many classes' histograms that leave room for everything else."""
    others = Counts(tuple(name for name in names if name in COUNTED and COUNTED[name].family != "scores"),
                    "classification", classes).words + _HEAD  # fmt: skip
    curves = classes if classes > 2 else 1
    return max(COARSE, min(FINEST, (MOST_WORDS - others) // (2 * curves)))


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
    bins = finest(asked.classes, asked.named) if asked.bins is None else asked.bins
    return Counts(asked.named, task, asked.classes, bins)


def check_counts(job: Job) -> None:
    """Refuse counts that no evaluation of this job can have.

    Raises:
        HanseError: INVALID_INPUT naming the field.
    """
    counts = counts_of_job(job)
    if counts is None:
        return
    field, named = "evaluate.metrics", ", ".join(name for name in counts.names if name in COUNTED)
    check_metrics(counts.names, counts.task)
    if job.code is not None:
        raise invalid(field, named, "none of these with site code, whose test() reports what it likes")
    if job.privacy is not None:
        raise invalid(
            field, named, "none of these with a section privacy, for counts have no noise",
            hint="privacy.metrics gives loss, accuracy and mse noise that is charged",
        )  # fmt: skip
    if counts.classes > MOST_CLASSES:
        raise invalid("evaluate.classes", counts.classes, f"at most {MOST_CLASSES}, of which sites can count together")
    most = finest(counts.classes, counts.names)
    if counts.bins > most:
        raise invalid("evaluate.bins", counts.bins, f"at most {most} with {counts.classes} classes")


def counts_in(config: Mapping[str, Any]) -> Counts | None:
    """What a task's config asks a site to count; None: nothing.

    Raises:
        HanseError: INVALID_INPUT for a section that cannot be read.
    """
    told = (config.get("evaluate") or {}).get("counts")
    if told is None:
        return None
    try:
        asked = _Asked.model_validate(told)
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"task.config.evaluate.counts: {explain(error)}") from None
    check_metrics(asked.names, asked.task)
    counts = Counts(asked.names, asked.task, asked.classes, asked.bins)
    if counts.words > MOST_WORDS or (asked.task == "classification") != (asked.classes > 1):
        raise invalid("task.config.evaluate.counts", told, f"at most {MOST_WORDS} words of classes, or of values")
    return counts


def is_optional(config: Mapping[str, Any]) -> bool:
    """Whether a site that may not count what a task's config asks takes part all the same."""
    return (config.get("evaluate") or {}).get("optional") is True


def told_of(counts: Counts) -> dict[str, Any]:
    """As a task's config has it."""
    return {"names": list(counts.names), "task": counts.task, "classes": counts.classes, "bins": counts.bins}


class _Asked(Frozen):
    names: tuple[str, ...] = Field(max_length=32)
    task: Task
    classes: int = Field(ge=0, le=MOST_CLASSES)
    bins: int = Field(ge=2, le=FINEST)


def check_metrics(names: Iterable[str], task: Task, *, field: str = "evaluate.metrics") -> None:
    """Refuse what no evaluation of that task can have.

    Raises:
        HanseError: INVALID_INPUT naming the metric, and those that there are.
    """
    can = of_task(task)
    for name in names:
        if name not in can:
            other = f" ({name} is of {_other(task)})" if name in COUNTED or name in METRICS else ""
            raise invalid(field, name, f"a metric of {task}: {', '.join(can)}{other}")


def _other(task: Task) -> Task:
    return "regression" if task == "classification" else "classification"
