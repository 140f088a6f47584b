"""The metrics that built-in evaluation reports: for which task, which of two values is the better one, and which are
made of counts over all sites, so that they are those of the pooled examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Better = Literal["max", "min"]
Task = Literal["classification", "regression"]
Family = Literal["confusion", "scores", "probabilities", "moments", "agreement", "pairs"]
"""What sites count together: examples by true and predicted class; by score; by probability; sums of errors; sums of
values and of what is said of them; examples by both, and pairs that a site ranks itself."""

_WORST = "_min"
MOST_CLASSES = 64
"""Of which sites can count together."""
FINEST, COARSE = 5888, 32
"""Bins of the histograms of scores of all classes together: the most, and so few that no policy needs to open them."""
FINEST_CELLS = 8192
"""Of values by what is said of them: 64 by 128."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What is known of a metric.

    Attributes:
        better: whether the larger or the smaller value is better.
        tasks: of which it is reported.
        mean: whether it is the mean of a value that each example has.
    """

    name: str
    better: Better
    tasks: tuple[Task, ...]
    mean: bool = False


METRICS: Mapping[str, Metric] = MappingProxyType({
    metric.name: metric
    for metric in (
        Metric("loss", "min", ("classification", "regression"), mean=True),
        Metric("accuracy", "max", ("classification",), mean=True),
        Metric("matthews", "max", ("classification",)),
        Metric("mse", "min", ("regression",), mean=True),
        Metric("r2", "max", ("regression",)),
    )
})  # fmt: skip
"""By name, in the order in which tables show them."""


@dataclass(frozen=True, slots=True)
class CountedMetric:
    """A metric that is made of the sum of all sites' counts, where a job's `evaluate.metrics` names it.

    Attributes:
        family: of the counts that it needs.
    """

    name: str
    better: Better
    task: Task
    family: Family


COUNTED: Mapping[str, CountedMetric] = MappingProxyType({
    metric.name: metric
    for metric in (
        CountedMetric("auroc", "max", "classification", "scores"),
        CountedMetric("average_precision", "max", "classification", "scores"),
        CountedMetric("sensitivity", "max", "classification", "confusion"),
        CountedMetric("specificity", "max", "classification", "confusion"),
        CountedMetric("precision", "max", "classification", "confusion"),
        CountedMetric("f1", "max", "classification", "confusion"),
        CountedMetric("balanced_accuracy", "max", "classification", "confusion"),
        CountedMetric("matthews", "max", "classification", "confusion"),
        CountedMetric("dice", "max", "classification", "confusion"),
        CountedMetric("iou", "max", "classification", "confusion"),
        CountedMetric("brier", "min", "classification", "probabilities"),
        CountedMetric("ece", "min", "classification", "probabilities"),
        CountedMetric("mae", "min", "regression", "moments"),
        CountedMetric("rmse", "min", "regression", "moments"),
        CountedMetric("r2", "max", "regression", "moments"),
        CountedMetric("concordance", "max", "regression", "pairs"),
        CountedMetric("concordance_correlation", "max", "regression", "agreement"),
    )
})  # fmt: skip
"""By name, in the order in which tables show them. `matthews` and `r2`, where a job names them, are those of all
examples together instead of the means of the sites'."""


def known(name: str) -> Metric | CountedMetric | None:
    """The metric of that name, or of which the name is a site's smallest value (`accuracy_min`); None: unknown here."""
    for each in (name, name.removesuffix(_WORST)):
        if found := METRICS.get(each) or COUNTED.get(each):
            return found
    return None


_CURVES = "it comes with the others, and `hanse run curves` shows it (run.curves())"
_CONCORDANCE = "of regression it is called concordance; of two classes it is auroc"
_AGREEMENT = "here it is called concordance_correlation"
ELSEWHERE: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("confusion", "confusion_matrix", "calibration", "calibration_curve", "roc", "roc_curve"), _CURVES)
    | dict.fromkeys(("concordance_index", "c_index", "cindex", "c-index", "harrell", "harrell_c"), _CONCORDANCE)
    | dict.fromkeys(("ccc", "lin", "lins_ccc", "concordance_corrcoef", "concordancecorrcoef"), _AGREEMENT)
    | dict.fromkeys(("auc", "roc_auc", "aucroc"), "here it is called auroc")
    | {"recall": "here it is called sensitivity", "mcc": "here it is called matthews"}
    | {"auprc": "here it is called average_precision", "ppv": "here it is called precision"}
)
"""What people look for under names that are no metric's, and where it is."""


def of_task(task: Task) -> tuple[str, ...]:
    """The metrics that a job of that task may name in `evaluate.metrics`."""
    every = {name for name, metric in METRICS.items() if task in metric.tasks}
    every |= {name for name, metric in COUNTED.items() if task == metric.task}
    return tuple(name for name in {**METRICS, **COUNTED} if name in every)


def by_default(task: Task, classes: int, *, noisy: bool = False) -> tuple[str, ...]:
    """What is counted for a job of a table that says nothing about it.

    Args:
        classes: 0 for regression.
        noisy: whether counts have noise: those are given of which an example is in one count.
    """
    if noisy and classes != 2:
        return ("balanced_accuracy", "f1") if 0 < classes <= MOST_CLASSES else ()
    if task == "regression":
        return ("mae", "rmse", "r2")
    if classes == 2:
        return ("auroc", "average_precision", "sensitivity", "specificity", "f1", "brier")
    return ("auroc", "balanced_accuracy", "f1") if classes <= MOST_CLASSES else ()


def counted_for(name: str) -> str | None:
    """The metric of counts that a run needs to have one of this name (`auroc_min` needs `auroc`); None: it has it
    without counts, or never."""
    bare = name if name in COUNTED else name.removesuffix(_WORST)
    return bare if bare in COUNTED and bare not in METRICS else None


def families(names: Iterable[str]) -> tuple[Family, ...]:
    """What is counted for these metrics, sorted; nothing for means that sites report anyway."""
    return tuple(sorted({COUNTED[name].family for name in names if name in COUNTED}))


def reported(task: Task, *, by_site: bool, named: Iterable[str] = ()) -> tuple[str, ...]:
    """What a run of that task reports of each evaluation.

    Args:
        by_site: whether sites report for themselves, so that the smallest value of one is known; not in masked runs.
        named: the job's `evaluate.metrics`.
    """
    names = tuple(name for name, metric in METRICS.items() if task in metric.tasks)
    names += tuple(name for name in named if name in COUNTED and name not in names)
    return names + tuple(f"{name}{_WORST}" for name in names if by_site)
