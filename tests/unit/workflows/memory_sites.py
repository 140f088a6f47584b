"""Sites in memory for tests, and a small job: linear regression by gradient descent, in numpy, as the simulation's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.tensors.file import decode_tensors, encode_tensors, layout_like
from hanse_schemas.job import Job, check_job
from hanse_workflows.memory import Made
from simulation.trainer import EXAMPLES, FEATURES, RATE, STEPS, TRUE


class LinearSite:
    """A `MemorySite`. `done` counts its work by step."""

    def __init__(self, number: int) -> None:
        draw = np.random.default_rng(number)
        self._x = draw.normal(size=(EXAMPLES + number, FEATURES))  # (examples, features)
        self._y = self._x @ TRUE + draw.normal(scale=0.01, size=len(self._x))
        self.done: Counter[str] = Counter()

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        self.done[task.step] += 1
        if task.kind is TaskKind.INITIALIZE:
            return Made(encoded(np.random.default_rng(task.seed).normal(size=FEATURES)))
        received = decode_tensors(objects["model"])[1]["weight"].astype(np.float64)
        weight = received.copy()
        metrics = {"loss": float(np.mean((self._x @ weight - self._y) ** 2))}
        if task.kind is TaskKind.EVALUATE:
            return Made(None, len(self._x), metrics)
        for _ in range(STEPS):
            weight -= RATE * 2 * self._x.T @ (self._x @ weight - self._y) / len(self._x)
        return Made(encoded(weight - received), len(self._x), metrics, info={"steps": float(STEPS)})


def encoded(weight: np.ndarray) -> bytes:
    arrays = {"weight": weight.astype(np.float32)}
    return encode_tensors(layout_like(arrays), arrays)


SITES = 4
JOB: dict[str, Any] = {
    "rounds": 3, "model": {"name": "linear"}, "seed": 7, "participants": {"minimum": SITES, "deadline": 600.0},
}  # fmt: skip


def job_of(**changes: Any) -> Job:
    return check_job({**JOB, **changes})


def sites() -> dict[str, LinearSite]:
    return {f"site-{number}": LinearSite(number) for number in range(SITES)}
