"""A deployed job's twin in memory: the same job by the same workflow, at sites of this process with the same files."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from hanse_coordinator.runs.journal import JournalEntry
from hanse_lab.meetings import Meetings
from hanse_lab.sent_counts import SentCounts
from hanse_lab.site import LabSite, Setting
from hanse_learning.config import FedTanConfig, check_model, check_train
from hanse_learning.server.config import check_strategy
from hanse_learning.site.examples import Examples, pose
from hanse_schemas.job import check_job
from hanse_schemas.schema import DataSchema
from hanse_workflows.attendance import sample
from hanse_workflows.memory import conduct


def digest_in_memory(*given: Any, **more: Any) -> str | None:
    """The last version's digest; as `models_in_memory`."""
    found = models_in_memory(*given, **more)
    return found[-1] if found else None


def models_in_memory(
    description: Mapping[str, Any], schema: Mapping[str, Any], files: Mapping[str, Path],
    site: Callable[[str, Setting, Examples], LabSite] = LabSite, secret: Callable[[int], bytes] = secrets.token_bytes,
) -> list[str]:  # fmt: skip
    """The models' digests after each round.

    Args:
        files: training data (NPZ) by site.
        site: makes a site of its name, the setting and its data.
        secret: what the hub has drawn, draw for draw. Sites draw by `hanse_lab.privacy.noise_source`.
    """
    job = check_job({**description, "evaluate": {"every": 0}})
    train = check_train(job.train)
    meetings = (
        Meetings(partial(sample, tuple(sorted(files)), job)) if isinstance(train.algorithm, FedTanConfig) else None
    )
    setting = Setting(
        check_model(job.model), train, pose(TypeAdapter(DataSchema).validate_python(dict(schema)), None), job.seed,
        frozenset(check_strategy(job.strategy).reduction.needs()) & {"first_loss"}, SentCounts(None), meetings,
    )  # fmt: skip
    sites = {name: site(name, setting, examples(path)) for name, path in files.items()}
    models: list[str] = []

    def told(kind: str, _round: int, data: Mapping[str, Any]) -> None:
        if kind == "round-finished":
            models.append(data["digest"])

    last = conduct(job, sites, secret=secret, sites_add_noise=True, told=told).digest
    assert models[-1:] == [last], "the last version is the model of the last round"
    return models


def named_as(monkeypatch: pytest.MonkeyPatch, project: str, run: str) -> None:
    """Have runs in memory the names of a run of a hub: the hub's noise belongs to one reduction, by its names."""
    monkeypatch.setattr("hanse_workflows.memory.verbs.PROJECT", project)
    monkeypatch.setattr("hanse_workflows.memory.verbs.RUN", run)


def draws_of(entries: Iterable[JournalEntry]) -> Callable[[int], bytes]:
    """The hub's draws as a run's journal has them, one after the other; as `secret`."""
    drawn = (bytes.fromhex(each.body["seed"]) for each in entries if each.kind == "closed" and "seed" in each.body)

    def draw(count: int) -> bytes:
        found = next(drawn)
        assert len(found) == count
        return found

    return draw


def examples(path: Path) -> Examples:
    with np.load(path) as arrays:
        return Examples(arrays["x"].astype(np.float32), arrays["y"].astype(np.int64))
