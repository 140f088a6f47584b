"""What of a job violates a rule of noise: its field and value in words, or None. The rules are in
`hanse_privacy.rules.noise_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping

from hanse_fabric.errors import HanseError
from hanse_fabric.messages.privacy import BufferedMatrix, Privacy
from hanse_privacy.correlated.optimum import matrix_of
from hanse_privacy.noise.aggregate import OBLIVIOUS, WHOLE
from hanse_privacy.rules.sections import (
    APART,
    GAUSSIAN,
    LAYERS,
    SUMMING,
    algorithm_of,
    batch_statistics,
    reduction_of,
    section,
    sign_mask_of,
    stay,
)
from hanse_schemas.job import Job
from hanse_schemas.metrics import METRICS, counted_for

AVERAGING = "federated_averaging"
MECHANISMS: Mapping[str, frozenset[str]] = {
    "local": GAUSSIAN | {"dp_sgd", "laplace", "discrete_laplace", "staircase"},
    "distributed": GAUSSIAN | {"laplace", "discrete_laplace", "dp_ftrl"},
    "central": frozenset({"gaussian", "laplace", "dp_ftrl"}),
}
"""Which mechanisms a placement has."""
_NORMAL = GAUSSIAN | {"dp_ftrl"}
"""Mechanisms whose shares of noise are Gaussian."""
LARGEST_EPSILON = 1e6
"""As of `privacy.epsilon`."""
MEANS = frozenset(name for name, metric in METRICS.items() if metric.mean)
"""Metrics that are means over examples."""
_PLAIN = frozenset({"fedavg", "fedsgd", "fedfgd", "fedsmb", "fedcmb"})
"""Local training as DP-SGD does it, by its name and its presets."""
_TELLING = frozenset({APART, SUMMING})
"""Algorithms whose sites say more than an update: control variates, statistics of batches."""


def noisy_signs(job: Job, privacy: Privacy) -> str | None:
    return sign_mask_of(job) if privacy.placement == "distributed" else None


def mechanism(_job: Job, privacy: Privacy) -> str | None:
    if privacy.mechanism in MECHANISMS[privacy.placement]:
        return None
    return f"privacy.mechanism: {privacy.mechanism} with placement {privacy.placement}"


def no_delta(_job: Job, privacy: Privacy) -> str | None:
    normal = privacy.mechanism in GAUSSIAN | {"dp_sgd", "dp_ftrl"}
    return f"privacy.delta: 0 with {privacy.mechanism}" if normal and privacy.delta == 0 else None


def unmasked_shares(job: Job, privacy: Privacy) -> str | None:
    mode = job.secure_aggregation.mode if job.secure_aggregation is not None else None
    if privacy.placement != "distributed" or mode in ("compensator", "pairwise"):
        return None
    return f"privacy.placement: distributed with secure_aggregation {'absent' if mode is None else 'mode ' + mode}"


def central_masked(job: Job, privacy: Privacy) -> str | None:
    if privacy.placement != "central" or job.secure_aggregation is None:
        return None
    return f"privacy.placement: central with secure_aggregation mode {job.secure_aggregation.mode}"


def central_robust(job: Job, privacy: Privacy) -> str | None:
    name = reduction_of(job)
    return None if privacy.placement != "central" or name == "weighted_mean" else f"strategy.reduction.name: {name}"


def central_sign_mask(job: Job, privacy: Privacy) -> str | None:
    return sign_mask_of(job) if privacy.placement == "central" else None


def unpaid_messages(job: Job, privacy: Privacy) -> str | None:
    name = algorithm_of(job)
    told = name in _TELLING and not (name == APART and privacy.mechanism == "dp_sgd")
    return f"train.algorithm: {name}" if told else None


def unpaid_variates(job: Job, privacy: Privacy) -> str | None:
    if privacy.mechanism != "dp_sgd" or algorithm_of(job) != APART:
        return None
    if (option := section(job.train, "algorithm").get("option", "drift")) != "drift":
        return f"train.algorithm.option: {option} with dp_sgd"
    if momentum := section(job.train, "optimizer").get("momentum"):
        return f"train.optimizer.momentum: {momentum} with dp_sgd and scaffold"
    average = job.train.get("weights_average")
    return f"train.weights_average: {average} with scaffold" if average is not None else None


def unpaid_numbers(job: Job, _privacy: Privacy) -> str | None:
    name = reduction_of(job)
    return f"strategy.reduction.name: {name}" if name in ("fednova", "qfedavg") else None


def other_training(job: Job, privacy: Privacy) -> str | None:
    if privacy.mechanism != "dp_sgd":
        return None
    if (name := algorithm_of(job)) not in (*_PLAIN, APART):
        return f"train.algorithm: {name} with dp_sgd"
    optimizer = job.train.get("optimizer")
    if isinstance(optimizer, Mapping) and optimizer.get("across_rounds"):
        return "train.optimizer.across_rounds with dp_sgd"
    return None


def of_single_examples(job: Job) -> str | None:
    """What only training by single examples' gradients has."""
    if job.code is not None or (job.privacy is not None and job.privacy.mechanism == "dp_sgd"):
        return None
    for name in ("clipping", "weights_average"):
        if job.train.get(name) is not None:
            return f"train.{name} without dp_sgd"
    copies = section(job.train, "augmentation").get("copies", 1)
    return f"train.augmentation.copies: {copies} without dp_sgd" if copies != 1 else None


def weighted(job: Job, privacy: Privacy) -> str | None:
    sums = privacy.placement in ("distributed", "central")
    return f"weighting: examples with placement {privacy.placement}" if sums and job.weighting != "uniform" else None


def batches(job: Job, privacy: Privacy) -> str | None:
    return batch_statistics(job) if privacy.mechanism == "dp_sgd" else None


def buffers(job: Job, privacy: Privacy) -> str | None:
    found = batch_statistics(job)
    if privacy.mechanism == "dp_sgd" or found is None:
        return None
    return None if any(stay(job, layer) for layer in LAYERS) else found


def own_code(job: Job, privacy: Privacy) -> str | None:
    return f"code: {job.code.title} with dp_sgd" if privacy.mechanism == "dp_sgd" and job.code is not None else None


def two_clips(job: Job, privacy: Privacy) -> str | None:
    clip = job.train.get("clip_norm")
    return f"train.clip_norm: {clip} with dp_sgd" if privacy.mechanism == "dp_sgd" and clip is not None else None


def weights_of_rows(job: Job, privacy: Privacy) -> str | None:
    given = privacy.mechanism == "dp_sgd" and job.train.get("sample_weights")
    return "train.sample_weights with dp_sgd" if given else None


def central_metrics(_job: Job, privacy: Privacy) -> str | None:
    asked = privacy.metrics is not None and privacy.placement == "central"
    return "privacy.metrics: given with placement central" if asked else None


def metrics_of_groups(_job: Job, privacy: Privacy) -> str | None:
    others = sorted(_asked(privacy) - MEANS) if privacy.mechanism == "dp_sgd" else []
    return f"privacy.metrics.bounds: {', '.join(others)} with dp_sgd" if others else None


def untold_metric(job: Job, privacy: Privacy) -> str | None:
    metric = job.stop.metric if job.stop is not None and privacy.metrics is not None else None
    if metric is None or metric in _asked(privacy) or counted_for(metric) in job.evaluate.named:
        return None
    return f"stop.metric: {metric}"


def _asked(privacy: Privacy) -> frozenset[str]:
    return frozenset() if privacy.metrics is None else frozenset(privacy.metrics.bounds)


def shares(_job: Job, privacy: Privacy) -> str | None:
    if privacy.noise is None or (privacy.placement == "distributed" and privacy.mechanism not in _NORMAL):
        return None
    return f"privacy.noise: {privacy.noise} with {privacy.mechanism}, {privacy.placement}"


def no_shares(_job: Job, privacy: Privacy) -> str | None:
    laplace = privacy.placement == "distributed" and privacy.mechanism not in _NORMAL
    return f"privacy.noise: none with {privacy.mechanism}" if laplace and privacy.noise is None else None


def dropouts(job: Job, privacy: Privacy) -> str | None:
    whole = privacy.placement != "distributed" or privacy.noise in WHOLE
    shares = privacy.noise in (None, "distributed-gamma") and privacy.mechanism != "dp_ftrl"
    tolerant = privacy.colluding > 0 and shares
    quorum = job.participants.quorum
    return (
        None
        if whole or tolerant or quorum == 1
        else f"participants.quorum: {quorum:g} with {privacy.noise or 'shares'}"
    )


def rounding(job: Job, privacy: Privacy) -> str | None:
    how = job.secure_aggregation.rounding if job.secure_aggregation is not None else "nearest"
    distributed = privacy.placement == "distributed"
    return f"secure_aggregation.rounding: {how}" if distributed and how != "nearest" else None


def third_party(job: Job, privacy: Privacy) -> str | None:
    mode = job.secure_aggregation.mode if job.secure_aggregation is not None else None
    if privacy.noise not in OBLIVIOUS or mode == "compensator":
        return None
    return f"privacy.noise: {privacy.noise} with secure_aggregation mode {mode}"


def shared_choice(job: Job, privacy: Privacy) -> str | None:
    sums = job.secure_aggregation
    if privacy.noise not in OBLIVIOUS or sums is None or sums.compensators is None:
        return None
    return f"privacy.noise: {privacy.noise} with {len(sums.compensators)} compensators"


def colluding(job: Job, privacy: Privacy) -> str | None:
    if privacy.colluding == 0:
        return None
    if privacy.placement != "distributed" or privacy.noise not in (None, "distributed-gamma"):
        return f"privacy.colluding: {privacy.colluding} with {privacy.noise or privacy.placement}"
    few = privacy.colluding > job.participants.minimum - 2
    return f"privacy.colluding: {privacy.colluding} of {job.participants.minimum} participants" if few else None


def literal(_job: Job, privacy: Privacy) -> str | None:
    fits = privacy.placement == "distributed" and privacy.mechanism not in _NORMAL
    return None if privacy.scale == "calibrated" or fits else f"privacy.scale: literal with {privacy.placement}"


def adaptive(_job: Job, privacy: Privacy) -> str | None:
    if privacy.adaptive_clip is None or (privacy.placement == "central" and privacy.mechanism == "gaussian"):
        return None
    return f"privacy.adaptive_clip: {privacy.adaptive_clip} with {privacy.mechanism}, {privacy.placement}"


def unfit_matrix(job: Job, privacy: Privacy) -> str | None:
    try:
        matrix_of(privacy, job.rounds)
    except HanseError as error:
        return error.message
    return None


def too_many(job: Job, privacy: Privacy) -> str | None:
    share = job.participants.fraction * (privacy.min_separation or 1)
    return f"participants.fraction: {job.participants.fraction:g}" if share > 1 + 1e-9 else None


def local_turns(_job: Job, privacy: Privacy) -> str | None:
    local = privacy.mechanism == "dp_ftrl" and privacy.placement == "local"
    return f"privacy.placement: {privacy.placement}" if local else None


def shared_buffers(_job: Job, privacy: Privacy) -> str | None:
    shared = privacy.mechanism == "dp_ftrl" and privacy.placement == "distributed"
    if not shared or not isinstance(privacy.matrix, BufferedMatrix):
        return None
    return f"privacy.matrix.name: {privacy.matrix.name} with placement distributed"


def metrics_of_turns(_job: Job, privacy: Privacy) -> str | None:
    return "privacy.metrics: given with dp_ftrl" if privacy.mechanism == "dp_ftrl" and privacy.metrics else None


def prepared_turns(_job: Job, privacy: Privacy) -> str | None:
    asked = privacy.mechanism == "dp_ftrl" and privacy.preparation is not None
    return "privacy.preparation: given with dp_ftrl" if asked else None


def unknown_turns(job: Job, privacy: Privacy) -> str | None:
    return None if privacy.mechanism != "dp_ftrl" or job.workflow == AVERAGING else f"workflow: {job.workflow}"


def per_site(_job: Job, privacy: Privacy) -> str | None:
    if not privacy.site_epsilon or privacy.placement == "local":
        return None
    return f"privacy.site_epsilon: {len(privacy.site_epsilon)} sites with placement {privacy.placement}"


def no_site_epsilon(_job: Job, privacy: Privacy) -> str | None:
    # Here and not in the section's own form, for jobs of release 0.1.0 that have it can be read.
    none = [(name, value) for name, value in sorted(privacy.site_epsilon.items()) if not 0 < value <= LARGEST_EPSILON]
    return f"privacy.site_epsilon.{none[0][0]}: {none[0][1]:g}" if none else None
