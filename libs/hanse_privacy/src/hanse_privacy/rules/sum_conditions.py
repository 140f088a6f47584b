"""What of a job violates a rule of masked sums, studies and codecs: its field and value in words, or None. The rules
are in `hanse_privacy.rules.sum_rules`.

The strategy's and the model's own forms are checked elsewhere; here they are read only.
"""

from __future__ import annotations

from hanse_fabric.messages.privacy import Privacy
from hanse_privacy.noise.aggregate import OBLIVIOUS
from hanse_privacy.rules.sections import (
    APART,
    GAUSSIAN,
    SUMMING,
    algorithm_of,
    reduction_of,
    sign_mask_of,
    unsaid_by,
)
from hanse_schemas.job import LEAST_COHORTS, Job
from hanse_schemas.metrics import COUNTED
from hanse_schemas.secure_aggregation import SecureAggregation

_RINGS = (
    "bits", "bound", "buffer_bound", "largest_weight", "metrics", "rounding", "rotate", "out_of_range", "threshold",
)  # fmt: skip
"""What of the section a study decides by itself."""
_SHARED_PLACES = "random_k"
"""The codec by which all sites send values at the same places."""
_PRODUCTS = "low_rank"
"""The codec that sends a matrix as a product of two narrow ones."""
_ZEROS = "nonzero"
"""The codec that leaves out zeros alone."""
_TO_MODEL = "delta"
"""The codec that leads from an older model to the one that is sent, to the bit."""
_OVERLAP = "overlap_mean"
COUNTING = frozenset({
    "weighted_mean", "median", "trimmed_mean", "geometric_median", "krum", "multi_krum", "bulyan", "norm_clipping",
    "fednova", "qfedavg",
})  # fmt: skip
"""Reductions in which a site that says nothing of a parameter counts as one that found no change (a test compares with
hanse_learning)."""


def narrow_by_examples(job: Job, sums: SecureAggregation) -> str | None:
    return f"weighting: {job.weighting}" if _narrow(sums) and job.weighting == "examples" else None


def narrow_noise(job: Job, sums: SecureAggregation) -> str | None:
    shared = job.privacy is not None and job.privacy.placement == "distributed"
    return f"secure_aggregation.bits: {sums.bits}" if _narrow(sums) and shared and not sums.rotate else None


def rotated_noise(job: Job, sums: SecureAggregation) -> str | None:
    privacy = job.privacy
    other = privacy is not None and privacy.placement == "distributed" and privacy.mechanism not in GAUSSIAN
    return "secure_aggregation.rotate: true" if sums.rotate and other else None


def _narrow(sums: SecureAggregation) -> bool:
    return sums.bits is not None and sums.bits < 32


def telling_refusal(job: Job, sums: SecureAggregation) -> str | None:
    told = sums.out_of_range == "refuse" and sums.mode != "ring" and job.study is None
    return "secure_aggregation.out_of_range: refuse" if told else None


def robust(job: Job, _sums: SecureAggregation) -> str | None:
    name = reduction_of(job)
    return None if name == "weighted_mean" else f"strategy.reduction.name: {name}"


def reserved(job: Job) -> str | None:
    name = reduction_of(job)
    return f"strategy.reduction.name: {name}" if name == "private_mean" else None


def chosen_signs(job: Job, _sums: SecureAggregation) -> str | None:
    mask = sign_mask_of(job)
    return f"{mask} with codec.up: {_SHARED_PLACES}" if mask and _SHARED_PLACES in _coded_by(job) else None


def told_apart(job: Job, _sums: SecureAggregation) -> str | None:
    return f"train.algorithm: {APART}" if algorithm_of(job) == APART else None


def coded(job: Job, _sums: SecureAggregation) -> str | None:
    others = [name for name in _coded_by(job) if name != _SHARED_PLACES]
    return f"codec.up: {', '.join(others)}" if others else None


def coded_model_of_sum(job: Job, _sums: SecureAggregation) -> str | None:
    return _other_model(job)


def remembered_choice(job: Job, _sums: SecureAggregation) -> str | None:
    return "codec.error_feedback: true" if job.codec is not None and job.codec.error_feedback else None


def chosen_noise(job: Job, _sums: SecureAggregation) -> str | None:
    privacy = job.privacy
    if _SHARED_PLACES not in _coded_by(job) or privacy is None or privacy.placement != "distributed":
        return None
    if privacy.mechanism == "dp_ftrl":
        return f"codec.up: {_SHARED_PLACES} with privacy.mechanism dp_ftrl"
    return f"codec.up: {_SHARED_PLACES} with privacy.noise {privacy.noise}" if privacy.noise in OBLIVIOUS else None


def _coded_by(job: Job) -> list[str]:
    return [] if job.codec is None else [str(each.get("name")) for each in job.codec.up]


def coded_model(job: Job, _privacy: Privacy) -> str | None:
    return _other_model(job)


def _other_model(job: Job) -> str | None:
    """What sites begin with in place of the model; a delta leads to the model itself."""
    names = [] if job.codec is None else [str(each.get("name")) for each in job.codec.down]
    others = names[: names.index(_TO_MODEL)] if _TO_MODEL in names else names
    return f"codec.down: {', '.join(others)}" if others else None


def remembered_pruning(job: Job) -> str | None:
    pruning = unsaid_by(job)
    remembered = job.codec is not None and job.codec.error_feedback
    return f"codec.error_feedback: true with {pruning}" if pruning and remembered else None


def whole_products(job: Job) -> str | None:
    pruning = unsaid_by(job)
    return f"codec.up: {_PRODUCTS} with {pruning}" if pruning and _PRODUCTS in _coded_by(job) else None


def counted_pruning(job: Job) -> str | None:
    """Masks and noise hide who keeps a weight: with them, there is no other mean. What a package's reduction makes of
    zeros, its author knows."""
    pruning, hidden = unsaid_by(job), job.secure_aggregation is not None or job.privacy is not None
    if pruning is None or hidden:
        return None
    if (name := reduction_of(job)) in COUNTING:
        return f"strategy.reduction.name: {name} with {pruning}"
    signs = sign_mask_of(job)
    return f"{signs} with {pruning}" if signs else None


def noise_on_pruned(job: Job, privacy: Privacy) -> str | None:
    pruning = unsaid_by(job)
    told = f"strategy.reduction.name: {_OVERLAP} with {pruning}"
    return told if pruning and privacy.placement == "local" and reduction_of(job) == _OVERLAP else None


def noise_on_zeros(job: Job, privacy: Privacy) -> str | None:
    return f"codec.up: {_ZEROS}" if privacy.placement == "local" and _ZEROS in _coded_by(job) else None


def summed_inside(job: Job, sums: SecureAggregation) -> str | None:
    if sums.mode != "compensator" or algorithm_of(job) != SUMMING:
        return None
    return f"train.algorithm: {SUMMING} with secure_aggregation.mode: {sums.mode}"


def private_study(job: Job) -> str | None:
    return None if job.privacy is None else f"privacy.mechanism: {job.privacy.mechanism}"


def plain_study(job: Job) -> str | None:
    return None if job.secure_aggregation is not None else "secure_aggregation: none"


def few_cohorts(job: Job) -> str | None:
    few = job.study is not None and not job.study.few_cohorts and job.participants.minimum < LEAST_COHORTS
    return f"participants.minimum: {job.participants.minimum}" if few else None


def own_rings(job: Job) -> str | None:
    sums = job.secure_aggregation
    for name in () if sums is None else _RINGS:
        value = getattr(sums, name)
        if value != SecureAggregation.model_fields[name].default:
            return f"secure_aggregation.{name}: {value}"
    return None


def few(job: Job, sums: SecureAggregation) -> str | None:
    least = job.participants.minimum
    if job.study is not None and job.study.few_cohorts:
        return None
    return None if least >= sums.minimum else f"participants.minimum: {least} with {sums.minimum} for a sum"


def unsummed(job: Job, sums: SecureAggregation) -> str | None:
    metric = job.stop.metric if job.stop is not None else None
    summed = {*sums.metrics, *(name for name in job.evaluate.named if name in COUNTED)}
    return None if metric is None or metric in summed else f"stop.metric: {metric}"


def threshold(job: Job, sums: SecureAggregation) -> str | None:
    needed = sums.threshold or 0
    return None if needed <= job.participants.minimum else f"secure_aggregation.threshold: {needed}"
