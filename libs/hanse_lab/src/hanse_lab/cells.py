"""The cells of an experiment: a job, a partition, an attack and a seed each. All are checked before any is played."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hanse_fabric.errors import ErrorCode, HanseError, invalid
from hanse_fabric.frozen import Frozen
from hanse_fabric.messages.explained import explain
from hanse_lab.experiment import AttackConfig, DataConfig, Experiment
from hanse_learning.server.config.foreign import plugins_of
from hanse_schemas.job import Job, Participation
from hanse_workflows.submission import check_submitted

_FORMAT = 3
"""Of outcomes: those of another are played anew."""


class Task(Frozen):
    """All that a cell's outcome depends on."""

    data: DataConfig
    file: str | None
    digest: str | None
    sites: int
    partition: dict[str, Any]
    attack: AttackConfig | None
    seed: int
    every: int
    participation: float
    absent: float = 0.0
    test: str
    job: Job
    plugins: dict[str, str] = {}
    """Digests of the packages that the job's strategy and algorithm are from; none of Hanse's own."""

    @property
    def key(self) -> str:
        """Names the outcome: equal for equal tasks, wherever the data file lies. What a setting is by default is left
        out: a release that has one more leaves the keys as they were."""
        body = {"format": _FORMAT, **self.model_dump(mode="json", exclude={"file"}, exclude_defaults=True)}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Cell:
    """A task, and where its outcome stands in the tables."""

    algorithm: str
    partition: str
    attack: str
    task: Task


def cells_of(experiment: Experiment, folder: Path) -> list[Cell]:
    """All cells, those of a seed together.

    Args:
        folder: that the path of an NPZ file is relative to.

    Raises:
        HanseError: INVALID_INPUT naming the row and what is wrong with it; NOT_FOUND for the data file.
    """
    split = {name: _sites_of(experiment, config) for name, config in experiment.partitions.items()}
    jobs = {
        (name, sites): _job(experiment, name, sites) for name in experiment.algorithms for sites, _ in split.values()
    }
    plugins = {place: plugins_of(job) for place, job in jobs.items()}
    file, digest = _data_file(experiment.data, folder)
    return [
        Cell(
            algorithm, partition, attack,
            Task(
                data=experiment.data, file=file, digest=digest,
                sites=1 if variant.pooled else sites,
                partition={"name": "iid"} if variant.pooled else shares,
                attack=against if against is not None and against.share and not variant.pooled else None,
                seed=seed, every=experiment.every, participation=experiment.participants.fraction,
                absent=experiment.participants.absent, test=experiment.test,
                job=jobs[algorithm, sites].model_copy(update={"seed": seed}), plugins=plugins[algorithm, sites],
            ),
        )
        for seed in experiment.seeds
        for partition, (sites, shares) in split.items()
        for attack, against in experiment.attacks.items()
        for algorithm, variant in experiment.algorithms.items()
    ]  # fmt: skip


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with what `over` says: mappings key by key unless they have different names, null takes a key out."""
    made = dict(base)
    for key, value in over.items():
        there = made.get(key)
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(there, Mapping) and _alike(there, value):
            made[key] = merged(there, value)
        else:
            made[key] = value
    return made


def _alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return "name" not in other or one.get("name") == other["name"]


def _sites_of(experiment: Experiment, partition: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The number of sites in a column, and its partition without it."""
    shares = dict(partition)
    sites = shares.pop("sites", experiment.sites)
    if type(sites) is not int or not 1 <= sites <= 10_000:
        raise invalid("partitions.sites", sites, "a whole number from 1 to 10,000")
    return sites, shares


def _job(experiment: Experiment, name: str, sites: int) -> Job:
    variant = experiment.algorithms[name]
    sites = 1 if variant.pooled else sites
    among = experiment.participants
    needed = Participation(minimum=1, quorum=among.quorum).needed(asked_of(sites, among.fraction))
    try:
        job = Job.model_validate(
            {
                "rounds": variant.rounds or experiment.rounds,
                "participants": {"minimum": needed, "fraction": among.fraction, "quorum": among.quorum},
                "model": merged(experiment.model, variant.model),
                "train": merged(experiment.train, variant.train),
                "strategy": merged(experiment.strategy, variant.strategy),
                "weighting": experiment.weighting,
                "privacy": _section(experiment.privacy, variant.privacy),
                "codec": _section(experiment.codec, variant.codec),
            }
        )
        if job.privacy is not None and job.privacy.placement == "distributed":
            raise invalid("privacy.placement", "distributed", "local or central, whose sum has the same noise")
        check_submitted(job)
    except ValidationError as error:
        raise HanseError(ErrorCode.INVALID_INPUT, f"algorithms.{name}: {explain(error)}") from None
    except HanseError as error:
        raise HanseError(error.code, f"algorithms.{name}: {error.message}", hint=error.hint) from None
    return job


def _section(base: Mapping[str, Any], over: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Of a job that may lack it."""
    return None if over is None else merged(base, over) or None


def asked_of(sites: int, fraction: float) -> int:
    """How many sites a round asks."""
    return max(1, round(fraction * sites))


def _data_file(data: DataConfig, folder: Path) -> tuple[str | None, str | None]:
    if data.path is None:
        return None, None
    path = (folder / data.path).resolve()
    try:
        with path.open("rb") as file:
            return str(path), hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise HanseError(ErrorCode.NOT_FOUND, f"data.path: {path}: {error.strerror}") from None
