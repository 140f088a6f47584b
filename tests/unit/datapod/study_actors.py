"""Steps of a study as a hub asks for them, and a worker that computes arrays in no time."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.worker.port import STUDY_KINDS, WorkOutcome, WorkRequest
from hanse_fabric.messages import Masking, MaskingMode, Ring, RingPlan, Task, TaskKind
from hanse_fabric.tensors.file import layout_like, write_tensors
from hanse_schemas.study import Study
from unit.datapod.masked_actors import PUBLIC
from unit.datapod.site_actors import CountingWorker, task

RUN = "a" * 12
COUNTS = {"counts": np.arange(12, dtype=np.int64).reshape(3, 4), "sums": np.linspace(-1, 1, 6)}
RINGS = {"counts": Ring(bits=64, fraction=0, bound=2.0**40), "sums": Ring(bits=64, fraction=45, bound=4096.0)}


def study_policy(**rules: Any) -> Policy:
    """A policy that takes part in studies and pins the compensator's key."""
    masking = {"compensator": base64.b64encode(PUBLIC).decode()}
    return Policy.model_validate({"workflows": ["association_study"], "masking": masking} | rules)


def plan(**fields: Any) -> RingPlan:
    body = {"participants": 3, "default": RINGS["counts"], "entries": RINGS, "refuse_out_of_range": True}
    return RingPlan.model_validate(body | fields)


def masked_step(
    step: str = "c0001-counts", *, function: str = "counts", mode: MaskingMode = MaskingMode.COMPENSATOR,
    rings: RingPlan | None = None, session: str | None = None, **fields: Any,
) -> Task:  # fmt: skip
    key = base64.b64encode(PUBLIC) if mode is MaskingMode.COMPENSATOR else None
    masking = Masking(mode=mode, session=session or step, minimum=3, ring=rings or plan(), compensator=key)
    return study_step(step, function=function, masking=masking, **fields)


def study_step(step: str = "open", *, function: str = "open", study: Study | None = None, **fields: Any) -> Task:
    config = {"study": (study or Study(test="chi_square")).model_dump(mode="json"), "step": function, "settings": {}}
    body = {"workflow": "association_study", "kind": TaskKind.STUDY, "config": config, "model": None, "round": 0}
    return task(step, **(body | fields))


class Cohort(CountingWorker):
    """A worker whose arrays are always the same. A step waits until its event in `hold`, by name, is set."""

    def __init__(self, arrays: Mapping[str, np.ndarray] | None = None, *, count: Path | None = None) -> None:
        super().__init__(count=count)
        self.kinds = STUDY_KINDS
        self.arrays = dict(arrays or COUNTS)
        self.examples = 40
        self.metrics = {}
        self.at_once = self.most_at_once = 0
        self.both = asyncio.Event()

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if self.at_once == 2:
            self.both.set()
        try:
            outcome = await super().work(request, on_progress)
        finally:
            self.at_once -= 1
        assert outcome.update is not None
        (request.state / "components").write_text(str(len(self.requests)))
        write_tensors(outcome.update, layout_like(self.arrays), self.arrays)
        return outcome
