"""The jobs that are recorded of a release, small ones: by the recording's name, and on which scene they are played."""

from __future__ import annotations

import copy
from typing import Any

SITES = ["east", "north", "south", "west"]
SCHEMA = {"kind": "array", "shape": [4], "task": "classification", "classes": 3}
MLP = {"name": "mlp", "hidden": [3]}
NORMALIZED = {"name": "mlp", "hidden": [3], "batch_norm": True}
TOGETHER = {"model": {**NORMALIZED, "dtype": "float64"}}
MASKED = {"secure_aggregation": {"mode": "compensator"}}
PAIRWISE = {"secure_aggregation": {"mode": "pairwise"}}

CODE = """
import time
from pathlib import Path

import numpy as np

GATES = Path({gates!r})
SITES = {{20: "east", 25: "north", 30: "south", 35: "west"}}


def fail_where_asked(at):
    once = GATES / f"once-{{at}}"
    if once.exists() or (GATES / f"fail-{{at}}").exists():
        once.unlink(missing_ok=True)
        raise ValueError("made to fail")


def train(model, data, config):
    at = f"{{config['train']['gate']}}-{{SITES[len(data.x)]}}-{{config['round']}}"
    (GATES / f"begun-{{at}}").touch()
    while (GATES / f"hold-{{at}}").exists():
        time.sleep(0.02)
    fail_where_asked(at)
    change = np.random.default_rng(config["seed"]).uniform(-1, 1, model["weight"].shape)
    return {{"weight": (model["weight"] + change).astype(np.float32)}}, len(data.x), {{"loss": float(change[0])}}


def test(model, data, config):
    return len(data.x), {{"accuracy": float(np.mean(model["weight"][: len(data.x)] > 0))}}


def initialize(config):
    fail_where_asked(f"{{config['train']['gate']}}-first")
    return {{"weight": np.zeros(40, np.float32)}}
"""
"""A site's own code, which waits at gates: files that the recorder makes and removes."""


def job(base: dict[str, Any] | None = None, *, algorithm: Any = "fedavg", train: Any = None, **more: Any) -> Any:
    """A job of two rounds for four sites."""
    section = {"algorithm": algorithm, "optimizer": {"name": "sgd", "lr": 0.1}, "batch_size": 8} | (train or {})
    body = {
        "rounds": 2, "participants": {"minimum": 3, "deadline": 240, "patience": 120}, "model": MLP, "train": section,
        "seed": 5,
    }  # fmt: skip
    body["participants"] |= more.pop("participants", {})
    return copy.deepcopy(body | (base or {}) | more)


def fedtan(mode: str | None, *, patience: float = 60.0, **more: Any) -> dict[str, Any]:
    """Batch statistics of all sites together, in the middle of each step."""
    masked = {"mode": mode, "bits": 64, "largest_weight": 64}
    return dict(
        job(TOGETHER, algorithm={"name": "fedtan", "patience": patience}, train={"steps": 1, "batch_size": "all"},
            evaluate={"every": 0}, **more),
        **({} if mode is None else {"secure_aggregation": masked}),
    )  # fmt: skip


def noisy(**privacy: Any) -> dict[str, Any]:
    """Noise spread over the sites of a masked sum."""
    asked = {"placement": "distributed", "mechanism": "discrete_laplace", "clip": 5.0, "noise_multiplier": 0.01}
    return dict(job(MASKED, weighting="uniform", privacy=asked | privacy, participants={"minimum": 4}))


PLAIN: dict[str, dict[str, Any]] = {
    "averaging": job(),
    # `initial_model` is the model of the first round of "averaging"; three of the four are sampled.
    "adam": job(participants={"fraction": 0.75}, strategy={"optimizer": {"name": "adam", "lr": 0.02}},
                evaluate={"every": 2}, checkpoint_every=2),
    "ring": job(secure_aggregation={"mode": "ring"}),
    "compensator": job(MASKED),
    "adaptive-clip": job(weighting="uniform", privacy={
        "placement": "central", "mechanism": "gaussian", "epsilon": 50.0, "adaptive_clip": 0.5}),
    "local-noise": job(privacy={"placement": "local", "mechanism": "dp_sgd", "epsilon": 8.0}),
    "distributed-noise": job(MASKED, weighting="uniform", privacy={
        "placement": "distributed", "mechanism": "discrete_gaussian", "epsilon": 50.0, "clip": 0.5}),
    "oblivious-noise": noisy(noise="oblivious"),
    "shuffled-noise": noisy(noise="oblivious-shuffled"),
    "fedtan": fedtan(None),
    "fedtan-pairwise": fedtan("pairwise"),
    "stopped": job(stop={"metric": "accuracy", "target": 0.0}),
    "scaffold": job(algorithm="scaffold", model={**NORMALIZED, "state": [{"layers": "batch_norm", "keep": "local"}]}),
}  # fmt: skip
"""By the built-in trainer, undisturbed."""


def own(name: str, digest: str, **more: Any) -> dict[str, Any]:
    """By the sites' own code."""
    return dict(
        job(model={"name": "own"}, code={"name": "code", "digest": digest}, **more), train={"gate": name}
    )  # fmt: skip


STUDY_SNPS = 270
COVARIATES = {"phenotype": "TRAIT", "covariates": ["AGE"]}
STUDIES: dict[str, tuple[dict[str, Any], str]] = {
    "study-compensator": ({"test": "linear", **COVARIATES, "chunk": 256, "in_flight": 2}, "compensator"),
    "study-pairwise": ({"test": "chi_square", "chunk": 256, "in_flight": 2}, "pairwise"),
    "study-ring": ({"test": "chi_square", "chunk": 256, "in_flight": 1}, "ring"),
}


def study(section: dict[str, Any], mode: str, *, deadline: float = 240.0) -> dict[str, Any]:
    """A study of three cohorts."""
    return {
        "workflow": "association_study", "study": section, "secure_aggregation": {"mode": mode},
        "participants": {"minimum": 3, "deadline": deadline},
    }  # fmt: skip
