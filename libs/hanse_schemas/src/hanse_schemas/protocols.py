"""Protocols that ask many fine questions of a site's data, by name: each tells at most so many numbers, a site's policy
opens it or does not (`asking.protocols`), and a job that does without it asks something coarser.

A sum over all sites hides which of them has what. It does not hide the one person in it of whom a question that is fine
enough is: how often a rare value is there, or how many are below a bound.

One more protocol is one more entry of `PROTOCOLS`, and what asks for it. Loads no numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator

from hanse_fabric.errors import invalid
from hanse_fabric.messages.masking import MOST_COUNTS
from hanse_schemas.metrics import COARSE, FINEST, FINEST_CELLS, MOST_CLASSES, families
from hanse_schemas.prepare import CategoryRule, NumberRule, Prepare, Rule
from hanse_schemas.subgroups import MOST_GROUPS

if TYPE_CHECKING:
    from hanse_schemas.job import Job


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol.

    Attributes:
        tells: of which numbers, in words.
        most: so many of them of one column, or of one evaluation; more are refused wherever it is open, too.
        coarse: whether it is open where the policy is cautious and says nothing.
        instead: what a job says that is to do without it.
    """

    tells: str
    most: int
    coarse: bool
    instead: str


PROTOCOLS: Mapping[str, Protocol] = {
    "moments": Protocol(
        "rows, missing cells, mean and variance", 3, coarse=True,
        instead="scale: minmax (from the schema's minimum and maximum) or none, missing: constant, indicator: true or "
        "false, and of categories missing: own or unknown, need nothing from the sites",
    ),
    "category_counts": Protocol(
        "rows of each value that the schema names", 1001, coarse=False,
        instead="rare: 0 has a feature for each value that the schema names, however often it is there, and form: "
        "hashed needs no values; train.loss.class_weights are numbers instead of balanced",
    ),
    "score_histograms": Protocol(
        "test examples of each class by where the model's score is", MOST_COUNTS // 2, coarse=False,
        instead=f"evaluate.bins: {COARSE} of two classes, and of more a power of two that times the classes is at most "
        f"{COARSE}, makes auroc and average_precision of coarse histograms, and the other metrics need no score",
    ),
    "calibration": Protocol(
        "test examples, their mean probability and how many are so, by 15 bins of the model's probability", 46,
        coarse=False, instead="evaluate.metrics without brier and ece; loss is measured without bins",
    ),
    "confusion": Protocol(
        "test examples of each class by the class that is predicted, of many classes", MOST_CLASSES, coarse=False,
        instead="evaluate.metrics without those that are made of the confusion matrix, which needs no protocol where "
        f"there are {COARSE} classes or fewer; accuracy needs none",
    ),
    "concordance": Protocol(
        "test examples by where their value and the model's are, and how many pairs of a site's own the model ranks "
        "rightly", FINEST_CELLS, coarse=False,
        instead=f"evaluate.bins: {COARSE} makes concordance of {COARSE} cells, up to 0.1 off; mae, rmse, r2 and "
        "concordance_correlation need no cells",
    ),
    "subgroup_counts": Protocol(
        "what is counted of test examples, by each value of a category or band of a number", MOST_GROUPS, coarse=False,
        instead="without evaluate.subgroups metrics are of all test examples together",
    ),
    "quantiles": Protocol(
        "quartiles, exactly: how many cells begin with which bits, in 8 or 16 steps", 12288, coarse=False,
        instead="scale: standard and missing: mean need moments alone",
    ),
}  # fmt: skip
"""All there are."""


def asked_by(rules: Iterable[Rule], classes: int = 0) -> dict[str, int]:
    """The protocols that a preparation needs, with the most numbers that each asks of one column.

    Args:
        classes: of the target, whose rows are counted; 0: they are not.
    """
    asked = {"category_counts": classes} if classes else {}
    for rule in rules:
        if isinstance(rule, NumberRule | CategoryRule) and rule.asks_moments:
            asked["moments"] = PROTOCOLS["moments"].most
        if isinstance(rule, NumberRule) and rule.quantiles:
            asked["quantiles"] = PROTOCOLS["quantiles"].most
        if isinstance(rule, CategoryRule) and rule.counted:
            asked["category_counts"] = max(asked.get("category_counts", 0), len(rule.values) + 1)
    return asked


def asked_by_job(job: Job, *, trusted: bool = True) -> dict[str, int]:
    """The protocols that a submitted job needs, as `asked_by`; what it would only like to have is not among them.

    Args:
        trusted: whether noise stands in for caution; not where nobody says how little of it is too little.
    """
    prepare = job.prepare
    fits = isinstance(prepare, Prepare) and prepare.fitted is None
    asked = asked_by(prepare.rules, prepare.classes or 0) if isinstance(prepare, Prepare) and fits else {}
    counts = job.evaluate
    groups = 0 if counts.subgroups is None else len(counts.subgroups.labels)
    noisy = trusted and job.privacy is not None
    return asked if counts.optional else asked | asked_by_counts(
        counts.named, counts.bins, counts.classes, groups, noisy=noisy
    )  # fmt: skip


def asked_by_counts(
    metrics: Iterable[str], bins: int | None, classes: int | None, groups: int = 0, *, noisy: bool = False
) -> dict[str, int]:
    """The protocols that an evaluation needs, as `asked_by`.

    Coarse are histograms with a power of two of bins, which lie within each other (those of 31 and of 32 together would
    be finer than either), and at most COARSE of all classes together: each class has a score of its own, and a model
    may be made such that the bins of one go on where those of another end. So may the classes that it predicts.

    Args:
        bins: of each histogram; None: as many as fit.
        classes: None: not known, as of two.
        groups: of examples, each of which has its own counts; 0: all are together.
        noisy: whether each count has noise that hides whose it is: then none is fine, but by whom is counted.
    """
    if noisy:
        return {"subgroup_counts": groups} if groups else {}
    needed, asked, classes = families(metrics), dict[str, int](), classes or 2
    if "scores" in needed:
        questions = FINEST if bins is None else bins * (classes if classes > 2 else 1) * max(1, groups)
        if bins is None or questions > COARSE or bins & (bins - 1):
            asked["score_histograms"] = questions
    if "pairs" in needed:
        questions = FINEST_CELLS if bins is None else bins * max(1, groups)
        if bins is None or questions > COARSE or bins & (bins - 1):
            asked["concordance"] = questions
    if "probabilities" in needed:
        asked["calibration"] = PROTOCOLS["calibration"].most
    if "confusion" in needed and classes > COARSE:
        asked["confusion"] = classes
    if groups:
        asked["subgroup_counts"] = groups
    return asked


def coarse_bins(classes: int | None) -> int | None:
    """The most bins of each histogram that are coarse, of so many classes; None: there are none."""
    return next((bins for bins in (32, 16, 8, 4, 2) if not asked_by_counts(("auroc",), bins, classes)), None)


def protocol(name: str) -> Protocol:
    """The protocol of a name.

    Raises:
        HanseError: INVALID_INPUT for one that there is not.
    """
    if name not in PROTOCOLS:
        raise invalid("protocol", name, ", ".join(PROTOCOLS))
    return PROTOCOLS[name]


def _is_known(name: str) -> str:
    if name not in PROTOCOLS:
        raise ValueError(f"there is no protocol of this name; there are {', '.join(PROTOCOLS)}")
    return name


ProtocolName = Annotated[str, AfterValidator(_is_known)]
