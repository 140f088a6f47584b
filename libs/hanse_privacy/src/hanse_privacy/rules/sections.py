"""What a job's sections say that the rules ask about, in words where it is a field and its value. Forms are checked
elsewhere; here they are read only.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from hanse_schemas.job import Job

APART, SUMMING = "scaffold", "fedtan"
"""Algorithms that send control variates, and that add up statistics of batches."""
GAUSSIAN = frozenset({"gaussian", "discrete_gaussian"})
_BATCH_BY_DEFAULT = ("resnet", "preact_resnet", "densenet")
_PRUNING = ("fedltn", "lotteryfl")
"""Algorithms whose sites keep a part of the model's weights."""
LAYERS = ("norm0", "features.1")
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def reduction_of(job: Job) -> str:
    """The name of the job's reduction."""
    return str(section(job.strategy, "reduction").get("name", "weighted_mean"))


def algorithm_of(job: Job) -> str:
    """The name of the sites' algorithm."""
    given = job.train.get("algorithm", "fedavg")
    return str(given.get("name", "fedavg") if isinstance(given, Mapping) else given)


def unsaid_by(job: Job) -> str | None:
    """The algorithm, where its sites prune and leave unsaid what they have pruned; with `zeros` they say it."""
    name = algorithm_of(job)
    whole = name == "fedltn" and section(job.train, "algorithm").get("zeros") is True
    return f"train.algorithm: {name}" if name in _PRUNING and not whole else None


def batch_statistics(job: Job) -> str | None:
    """What in the model section normalizes by batches, whether written there or by default (a test compares with
    hanse_learning)."""
    model = job.model
    if model.get("batch_norm"):
        return "model.batch_norm: true"
    by_default = str(model.get("name", "")).startswith(_BATCH_BY_DEFAULT)
    kind = model.get("normalization", "batch" if by_default else "none")
    return f"model.normalization: {kind}" if kind == "batch" else None


def stay(job: Job, layer: str) -> bool:
    """Whether a layer's batch statistics are kept at the site. (The site refuses where others travel after all.)"""
    groups = job.model.get("state") or ()
    kept = [group for group in groups if isinstance(group, Mapping) and group.get("keep") == "local"]
    if any(group.get("layers") in ("batch_norm", "statistics") for group in kept):
        return True
    rules = dict(section(job.model, "buffers")) | {str(group.get("match")): "keep_local" for group in kept}
    for buffer in _BUFFERS:
        first = next((rule for pattern, rule in rules.items() if fnmatchcase(f"{layer}.{buffer}", pattern)), None)
        if first != "keep_local":
            return False
    return True


def sign_mask_of(job: Job) -> str | None:
    """Whether a mask of the updates' signs is applied."""
    mask = job.strategy.get("sign_mask")
    return None if mask is None else f"strategy.sign_mask: {mask}"


def sums_signs(job: Job) -> bool:
    """Whether sites sum the signs of their updates beside these, under masks."""
    return job.secure_aggregation is not None and sign_mask_of(job) is not None


def section(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a section; empty where it is none."""
    section = body.get(name)
    return section if isinstance(section, Mapping) else {}
