"""What a task does: initialize, train or evaluate, by a built-in trainer or by site code."""

from __future__ import annotations

import numpy as np

from hanse_datapod.worker.port import TRAINING_KINDS
from hanse_datapod.worker.work import built_in
from hanse_datapod.worker.work.by_site_code import by_code
from hanse_datapod.worker.work.context import WorkContext, WorkReport
from hanse_datapod.worker.work.site_code import load_code, seed_generators
from hanse_fabric.errors import invalid
from hanse_fabric.messages import TaskKind
from hanse_learning.config import BUILT_IN
from hanse_learning.site.training import make_repeatable

__all__ = ["WorkContext", "WorkReport", "execute"]


def execute(work: WorkContext) -> WorkReport:
    """Do the work.

    Raises:
        HanseError: see `Worker.work`.
    """
    if work.kind not in TRAINING_KINDS:
        raise invalid("task.kind", work.kind.value, "work for a worker: initialize, train or evaluate")
    if work.config.get("code"):
        seed_generators(work.seed)
    else:
        make_repeatable(work.seed % 2**63)
        np.random.seed(work.seed % 2**32)
    code = load_code(work.code, work.config["code"]) if work.config.get("code") else None
    if code is not None:
        return by_code(work, code, built_in=dict(work.config.get("model") or {}).get("name") in BUILT_IN)
    if work.kind is TaskKind.INITIALIZE:
        return built_in.initialize(work)
    if work.kind is TaskKind.EVALUATE:
        return built_in.evaluate(work)
    return built_in.train(work)
