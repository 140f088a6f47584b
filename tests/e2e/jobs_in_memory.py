"""A deployed job's twin in memory: the same job by the same workflow, at sites of this process with the same files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

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


def digest_in_memory(
    description: Mapping[str, Any], schema: Mapping[str, Any], files: Mapping[str, Path],
    site: Callable[[str, Setting, Examples], LabSite] = LabSite,
) -> str | None:  # fmt: skip
    """The last version's digest.

    Args:
        files: training data (NPZ) by site.
        site: makes a site of its name, the setting and its data.
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
    return conduct(job, {name: site(name, setting, examples(path)) for name, path in files.items()}).digest


def examples(path: Path) -> Examples:
    with np.load(path) as arrays:
        return Examples(arrays["x"].astype(np.float32), arrays["y"].astype(np.int64))
