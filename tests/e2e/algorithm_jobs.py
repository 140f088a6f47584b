"""A small job for every algorithm, state policy and strategy there is."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from hanse_learning.digits import write_shares

SITES = ["north", "east", "south"]
SCHEMA = {"kind": "array", "shape": [8, 8], "task": "classification", "classes": 10, "minimum": 0, "maximum": 1}
ROUNDS = 3
MLP = {"name": "mlp", "hidden": [16]}
NORMALIZED = {"name": "mlp", "hidden": [16], "batch_norm": True}


def write_images(folder: Path, part: float = 1.0) -> None:
    """The sites' digits, as 8 x 8 for convolutions.

    Args:
        part: of each site's training data, from the first on.
    """
    write_shares(folder, SITES, seed=3)
    for path in folder.glob("*/*.npz"):
        with np.load(path) as given:
            kept = slice(int(part * len(given["y"])) if path.stem == "train" else None)
            np.savez(path, x=given["x"][kept].reshape(-1, 8, 8), y=given["y"][kept])


def job(algorithm: Any = "fedavg", *, strategy: Any = None, model: Any = None, **train: Any) -> dict[str, Any]:
    return {
        "rounds": ROUNDS,
        "participants": {"minimum": len(SITES), "deadline": 240, "patience": 60},
        "model": model or MLP,
        "train": {"algorithm": algorithm, "optimizer": {"name": "sgd", "lr": 0.1}, **({"batch_size": 64} | train)},
        "strategy": strategy or {},
        "checkpoint_every": 0,
        "seed": 5,
    }


def _one_step(name: str) -> dict[str, Any]:
    made = job(name)
    if name != "fedsmb":
        del made["train"]["batch_size"]
    return made


def _kept(*rules: dict[str, Any]) -> dict[str, Any]:
    return job(model={**NORMALIZED, "state": list(rules)})


def _reduced(name: str, **parameters: Any) -> dict[str, Any]:
    return job(strategy={"reduction": {"name": name, **parameters}})


def _optimized(name: str, **parameters: Any) -> dict[str, Any]:
    return job(strategy={"optimizer": {"name": name, **parameters}})


def _coded(*up: dict[str, Any], feedback: bool = False, body: dict[str, Any] | None = None) -> dict[str, Any]:
    return (body or job()) | {"codec": {"up": list(up), "error_feedback": feedback}}


AT_SITES: dict[str, dict[str, Any]] = {
    "fedavg": job(),
    "fedsgd": _one_step("fedsgd"),
    "fedfgd": _one_step("fedfgd"),
    "fedsmb": _one_step("fedsmb"),
    "fedcmb": job("fedcmb", steps=4),
    "fedprox": job({"name": "fedprox", "mu": 0.5}),
    "scaffold": job("scaffold"),
    "feddyn": job({"name": "feddyn", "alpha": 0.1}, strategy={"optimizer": {"name": "feddyn", "alpha": 0.1}}),
    "moon": job({"name": "moon", "mu": 1.0}),
    "ditto": job({"name": "ditto", "pull": 0.5}),
    "fedrep": job("fedrep"),
    "per_fedavg": job({"name": "per_fedavg", "alpha": 0.05}),
    "fedltn": job(
        {"name": "fedltn", "threshold": 0.1, "align": 0.1},
        model=NORMALIZED,
        strategy={"reduction": {"name": "overlap_mean"}, "optimizer": {"name": "look_ahead"}},
    ),
    "lotteryfl": job({"name": "lotteryfl", "threshold": 0.05}, strategy={"reduction": {"name": "overlap_mean"}}),
    "weighted_accumulation": job("weighted_accumulation"),
    "fedtan": job("fedtan", model=NORMALIZED, batch_size="all"),
}
"""By the algorithm's name."""

VARIANTS: dict[str, dict[str, Any]] = {
    "scaffold by gradients": job({"name": "scaffold", "option": "gradient"}),
    # Too large for messages: model, updates and controls go through the object store.
    "scaffold in the store": job("scaffold", model={"name": "mlp", "hidden": [384, 128]}),
    "scaffold with masked signs": job("scaffold", strategy={"sign_mask": {"tau": 0.4}}),
    "per_fedavg with hessians": job({"name": "per_fedavg", "alpha": 0.05, "variant": "hf"}),
    "momentum across rounds": job(optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.9, "across_rounds": True}),
    "fedtan without backward sums": job({"name": "fedtan", "backward": False}, model=NORMALIZED, batch_size="all"),
    "batch norm": job(model=NORMALIZED),
    "batch norm of whole sites": job(model=NORMALIZED, batch_size="all"),
    "fedbn": _kept({"layers": "batch_norm", "keep": "local"}),
    "silobn": _kept({"layers": "statistics", "keep": "local"}),
    "frozen statistics": _kept({"layers": "statistics", "keep": "frozen", "from_round": 3}),
    "fedtan, then frozen statistics": job(
        "fedtan",
        model={**NORMALIZED, "state": [{"layers": "statistics", "keep": "frozen", "from_round": 3}]},
        batch_size="all",
    ),
    "fedper": _kept({"layers": "output", "keep": "local"}),
    "alone": _kept({"match": "*", "keep": "local"}),
    "kernel norm": job(
        model={"name": "cnn", "channels": [4, 8], "hidden": 16, "normalization": "kernel"},
        schedule={"name": "cosine", "length": ROUNDS, "warm_up": 1},
        augmentation={"crop": 1, "color": 0.1, "cutout": 2},
    ),
}

REDUCTIONS: dict[str, dict[str, Any]] = {
    "weighted_mean": job(strategy={"reduction": {"name": "weighted_mean"}, "optimizer": {"name": "none"}}),
    "median": _reduced("median"),
    "trimmed_mean": _reduced("trimmed_mean", fraction=0.34),
    "geometric_median": _reduced("geometric_median"),
    "krum": _reduced("krum", byzantine=0),
    "multi_krum": _reduced("multi_krum", byzantine=0, keep=2),
    "bulyan": _reduced("bulyan", byzantine=0),
    "norm_clipping": _reduced("norm_clipping", norm=0.2),
    "fednova": _reduced("fednova"),
    "overlap_mean": _coded({"name": "top_k", "fraction": 0.2}, body=_reduced("overlap_mean")),
    "qfedavg": _reduced("qfedavg", q=1.0, lr=0.1),
}
"""By the reduction's name."""

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "none": REDUCTIONS["weighted_mean"],
    "sgd": _optimized("sgd", momentum=0.9),
    "look_ahead": _optimized("look_ahead", tau=0.7, momentum=0.9),
    "adam": _optimized("adam", lr=0.02),
    "yogi": _optimized("yogi", lr=0.02),
    "adagrad": _optimized("adagrad", lr=0.02),
    "feddyn": AT_SITES["feddyn"],
}
"""By the server optimizer's name."""

WRAPPED: dict[str, dict[str, Any]] = {
    "masked signs": job(strategy={"sign_mask": {"tau": 0.4}}),
    "masked signs of medians under adam": job(
        strategy={
            "reduction": {"name": "median"},
            "sign_mask": {"tau": 0.4},
            "optimizer": {"name": "adam", "lr": 0.02},
        }
    ),
}

SAMPLED: dict[str, dict[str, Any]] = {
    f"{name} of two in three": body | {"participants": {**body["participants"], "minimum": 2, "fraction": 0.6}}
    for name, body in AT_SITES.items()
    if name in ("scaffold", "feddyn", "moon")
}

MASKED: dict[str, dict[str, Any]] = {
    f"masked {name}": body | {"secure_aggregation": {"mode": "compensator"}}
    for name, body in {"feddyn": AT_SITES["feddyn"], "fedbn": VARIANTS["fedbn"], "moon": AT_SITES["moon"]}.items()
}
MASKED["masked fedavg, pairwise"] = job() | {"secure_aggregation": {"mode": "pairwise"}, "seed": 7}
MASKED["masked fedavg in 8 bits"] = job() | {
    "weighting": "uniform",
    "secure_aggregation": {"mode": "compensator", "bits": 8, "bound": 0.5},
    "seed": 6,  # with the seed of the others its answers are near to theirs, which are cut to another bound
}
MASKED["masked fedavg in 16 bits, rotated"] = job() | {
    "weighting": "uniform",
    "secure_aggregation": {"mode": "compensator", "bits": 16, "bound": 0.5, "rotate": True},
    "seed": 8,
}
MASKED["masked fedavg in 8 bits, one parameter in ten"] = job() | {
    "weighting": "uniform",
    "secure_aggregation": {"mode": "compensator", "bits": 8, "bound": 0.5},
    "codec": {"up": [{"name": "random_k", "fraction": 0.1}]},
    "seed": 9,
}
for _mode in ("compensator", "pairwise"):
    MASKED[f"masked signs, {_mode}"] = job(strategy={"sign_mask": {"tau": 0.9}}) | {
        "weighting": "uniform",
        "secure_aggregation": {"mode": _mode, "bits": 16, "bound": 0.5},
        "seed": {"compensator": 10, "pairwise": 11}[_mode],
    }


def _noisy(**privacy: Any) -> dict[str, Any]:
    """With noise of a multiplier, which no accountant chooses."""
    return job() | {"weighting": "uniform", "privacy": {"noise_multiplier": 0.1, **privacy}}


NOISE_OF_HUB: dict[str, dict[str, Any]] = {
    "central noise": _noisy(placement="central", mechanism="gaussian"),
    "central noise of an adaptive norm": _noisy(placement="central", mechanism="gaussian", adaptive_clip=0.5),
    "central noise, correlated": _noisy(
        placement="central", mechanism="dp_ftrl", min_separation=1, matrix={"name": "blt", "buffers": 1}
    ),
}
"""The hub draws a secret seed for it, which its journal keeps: the same draws in memory make the same bits."""

NOISE_OF_SITES: dict[str, dict[str, Any]] = {
    "noise at sites": _noisy(placement="local", mechanism="gaussian"),
    "laplace noise at sites": _noisy(placement="local", mechanism="laplace", noise_multiplier=1.0),
    "noise in training": _noisy(placement="local", mechanism="dp_sgd"),
}
"""Each site draws it, from what nobody else sees."""

JUMP: dict[str, Any] = {"name": "fedltn", "threshold": 0.05, "jump_start": {"rounds": 2, "target": 0.2}}
LEAPING = {
    "reduction": {"name": "overlap_mean", "jump_start": True},
    "optimizer": {"name": "look_ahead", "jump_start": True},
}

CODED: dict[str, dict[str, Any]] = {
    "tickets with a jump-start": _coded({"name": "nonzero"}, {"name": "float16"},
                                        body=job(JUMP, model=NORMALIZED, strategy=LEAPING)),
    "half precision": _coded({"name": "float16"}),
    "few values with feedback": _coded({"name": "top_k", "fraction": 0.05}, {"name": "float16"}, {"name": "zstd"},
                                       feedback=True),
    "products with feedback": _coded({"name": "low_rank", "rank": 2}, {"name": "float16"}, feedback=True),
    "both ways": job() | {"codec": {"down": [{"name": "bfloat16"}], "up": [{"name": "integers", "bits": 8}]}},
    "both ways in the store": VARIANTS["scaffold in the store"] | {
        "codec": {"down": [{"name": "float16"}, {"name": "zstd"}], "up": [{"name": "top_k", "fraction": 0.1}]},
    },
    "medians of percentiles": _coded({"name": "percentile", "p": 50}, {"name": "ternary"}, body=REDUCTIONS["median"]),
    "scaffold of few values in the store": _coded(
        {"name": "random_k", "fraction": 0.1}, {"name": "integers", "bits": 4}, feedback=True,
        body=VARIANTS["scaffold in the store"],
    ),
}  # fmt: skip
"""Updates in fewer bytes."""

OTHERWISE: dict[str, dict[str, Any]] = {"cyclic transfer": job() | {"workflow": "cyclic_weight_transfer"}}
"""Other workflows than federated averaging."""

OF_OTHERS = (REDUCTIONS["weighted_mean"], AT_SITES["feddyn"])
"""Jobs of two names of `REDUCTIONS` and `AT_SITES` that name a server optimizer, too."""

JOBS: dict[str, dict[str, Any]] = {
    **{f"algorithm {name}": body for name, body in AT_SITES.items()},
    **VARIANTS,
    **{f"reduction {name}": body for name, body in REDUCTIONS.items()},
    **{f"optimizer {name}": body for name, body in OPTIMIZERS.items() if body not in OF_OTHERS},
    **WRAPPED,
    **SAMPLED,
    **MASKED,
    **CODED,
    **OTHERWISE,
}

SAME = [
    {"algorithm fedavg", "reduction weighted_mean", "algorithm ditto"},
    {"algorithm fedsgd", "algorithm fedfgd"},
    {"reduction median", "reduction trimmed_mean"},  # of three, all but the middle one are trimmed
]
"""Jobs that make the same model: Ditto's personal models are beside the shared one. All others differ from each
other, so that none is silently something else."""

STATEFUL = [
    "algorithm scaffold", "algorithm moon", "algorithm ditto", "algorithm fedltn", "tickets with a jump-start",
    "algorithm fedtan", "momentum across rounds", "fedbn", "optimizer sgd", "optimizer look_ahead", "kernel norm",
    "optimizer adam", "scaffold of two in three", "feddyn of two in three", "masked feddyn", "masked fedavg, pairwise",
    "masked fedavg in 8 bits", "masked fedavg in 16 bits, rotated", "masked fedavg in 8 bits, one parameter in ten",
    "masked signs, compensator", "masked signs, pairwise", "few values with feedback", "products with feedback",
    "scaffold of few values in the store", *OTHERWISE,
]  # fmt: skip
"""One job for each thing beside the model that is carried from round to round, at the sites or at the hub, and each way
of it; one in which the model goes from site to site; one in which much is drawn anew in each step. All jobs lose every
process in virtual time (`tests/simulation/test_algorithms_in_virtual_time.py`)."""

TOGETHER: list[tuple[str, ...]] = [
    ("algorithm fedsgd", "reduction median", "optimizer yogi"),
    ("algorithm fedfgd", "reduction trimmed_mean", "half precision"),
    ("algorithm fedsmb", "reduction geometric_median", "optimizer adagrad"),
    ("algorithm fedcmb", "reduction krum", "silobn"),
    ("algorithm fedprox", "reduction multi_krum", "both ways"),
    ("algorithm weighted_accumulation", "reduction qfedavg"),
    ("algorithm per_fedavg", "reduction bulyan", "fedper"),
    ("per_fedavg with hessians", "batch norm of whole sites"),
    ("scaffold by gradients", "masked signs"),
    ("momentum across rounds", "fedbn", "reduction fednova", "optimizer sgd"),
    ("masked fedbn", "masked moon"),
    ("algorithm moon", "reduction norm_clipping", "optimizer look_ahead"),
    ("algorithm ditto", "optimizer adam"),
    ("algorithm fedrep", "reduction overlap_mean"),
    ("algorithm scaffold", "kernel norm"),
    ("few values with feedback", "batch norm"),
    ("products with feedback", "frozen statistics"),
]
"""Jobs that say different things, which one run of a hub does at once (`together`)."""


def together(names: Sequence[str]) -> dict[str, Any]:
    """One job that says all that differs in these from `job()`.

    Raises:
        ValueError: where two of them say different things of the same.
    """
    made: dict[str, Any] = deepcopy(job())
    for name in names:
        _change(made, job(), JOBS[name])
    return made


def _change(made: dict[str, Any], base: dict[str, Any], body: dict[str, Any]) -> None:
    for key in base.keys() | body.keys():
        before, now = base.get(key), body.get(key)
        if before == now:
            continue
        if isinstance(now, dict) and isinstance(before or {}, dict):
            _change(made.setdefault(key, {}), before or {}, now)
        elif made.get(key) not in (before, now):
            raise ValueError(f"{key}: {now!r}, where another says {made[key]!r}")
        elif key in body:
            made[key] = now
        else:
            made.pop(key, None)


IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "more byzantine sites than krum can bear": (_reduced("krum", byzantine=1), "krum takes 5 updates at least"),
    "more than bulyan can": (_reduced("bulyan", byzantine=1), "bulyan takes 7 updates at least"),
    "everything trimmed": (_reduced("trimmed_mean", fraction=0.5), "reduction.fraction"),
    "a norm of nothing": (_reduced("norm_clipping", norm=0.0), "reduction.norm"),
    "an unknown reduction": (_reduced("mode"), "strategy: reduction.name: 'mode' is no strategy"),
    "an unknown server optimizer": (_optimized("lion"), "strategy: optimizer"),
    "signs that nobody can agree in": (job(strategy={"sign_mask": {"tau": 1.5}}), "sign_mask.tau"),
    "an unknown algorithm": (job("fedmagic"), "train: algorithm.name: 'fedmagic' is no algorithm"),
    "a pull away": (job({"name": "fedprox", "mu": -1}), "algorithm.mu"),
    "one half of feddyn": (job({"name": "feddyn", "alpha": 0.1}), "feddyn has two halves"),
    "two halves of two": (
        job({"name": "feddyn", "alpha": 0.1}, strategy={"optimizer": {"name": "feddyn", "alpha": 0.2}}),
        "the two halves of feddyn have one alpha",
    ),
    "a jump-start that nobody chooses of": (
        job(JUMP, strategy={"reduction": {"name": "overlap_mean"}}),
        "jump_start: given with strategy.reduction overlap_mean that does not choose",
    ),
    "the best of no jump-start": (job(strategy=LEAPING), "jump_start: none with strategy.reduction overlap_mean"),
    "a sparsity of one": (job({"name": "fedltn", "target": 1.0, "zeros": True}), "algorithm.target: .* less than 1"),
    "tickets in masked sums": (
        AT_SITES["lotteryfl"] | {"secure_aggregation": {"mode": "compensator"}},
        "reduction",
    ),
    "scaffold's mean of medians": (job("scaffold", strategy={"reduction": {"name": "median"}}), "takes the mean"),
    "one step of many": (job("fedsgd", epochs=3, batch_size="all"), "fedsgd is one step a round"),
    "batch norm over one example": (job(model=NORMALIZED, batch_size=1), "no variance over one example"),
    "an unknown kind of layer": (
        _kept({"layers": "attention", "keep": "local"}),
        "state.0.layers: Input should be .batch_norm",
    ),
    "layers that the model has not": (
        job(model={**MLP, "state": [{"layers": "batch_norm", "keep": "local"}]}),
        "a kind of layer that this mlp has",
    ),
    "entries that would change between rounds": (
        _kept({"layers": "batch_norm", "keep": "local", "from_round": 2}),
        "what is local is so from the first round on",
    ),
    "nothing left to train in round 3": (
        job(model={**MLP, "state": [{"match": "*", "keep": "frozen", "from_round": 3}]}),
        "leave a parameter to train, from round 3 on",
    ),
    "batch norm where utility is preserved": (
        job("fedsgd", model=NORMALIZED, batch_size="all") | {"utility_preserving": True},
        "batch",
    ),
    "codecs in masked sums": (
        _coded({"name": "float16"}) | {"secure_aggregation": {"mode": "compensator"}},
        "codec.up: float16",
    ),
    "a model with holes": (
        job() | {"codec": {"down": [{"name": "top_k", "fraction": 0.5}]}},
        "codec.down: top_k leaves out what the model would then lack",
    ),
    "feedback of pruned weights": (
        AT_SITES["fedltn"] | {"codec": {"up": [{"name": "nonzero"}, {"name": "float16"}], "error_feedback": True}},
        "codec.error_feedback: true with train.algorithm: fedltn: what is pruned is left unsaid",
    ),
    "the mean of those who say nothing": (
        job("lotteryfl"),
        "strategy.reduction.name: weighted_mean with train.algorithm: lotteryfl",
    ),
    "former values in place of none": (
        _coded({"name": "percentile", "p": 90, "stale": "last"}),
        r"codec.up\[0\]: stale: 'last' is not offered",
    ),
    "no codec at all": (job() | {"codec": {"up": []}}, "give up, down, or both"),
    "an unknown codec": (_coded({"name": "gzip"}), r"codec.up\[0\]: name: 'gzip' is no codec"),
    "all of nothing": (_coded({"name": "top_k", "fraction": 1.0}), r"codec.up\[0\]: fraction: .* less than 1"),
    "codecs in another order": (
        _coded({"name": "zstd"}, {"name": "float16"}),
        "sparsify, factor, quantize, difference, pack, in this order",
    ),
    "signs of all values": (
        _coded({"name": "ternary"}),
        "ternary needs a codec before it that can sparsify; there is none among ternary",
    ),
    "feedback of what loses nothing": (_coded({"name": "zstd"}, feedback=True), "zstd leaves nothing out"),
    "few values where utility is preserved": (
        _coded({"name": "float16"}, body=AT_SITES["fedsgd"] | {"utility_preserving": True}),
        "codec float16",
    ),
    "scaffold in masked sums": (
        job("scaffold") | {"secure_aggregation": {"mode": "compensator"}},
        "scaffold",
    ),
}
"""Jobs that no run could do, and what the refusal says."""
