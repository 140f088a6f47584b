"""A site's worker without a process: linear regression by gradient descent, in numpy, that takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hanse_datapod.data.settings import Split
from hanse_datapod.worker.port import (
    DATA_KEY,
    TRAINING_KINDS,
    DataState,
    DataSummary,
    WorkOutcome,
    WorkRequest,
    extra_output,
)
from hanse_fabric.clock import Clock
from hanse_fabric.messages import END_KEY, TaskKind
from hanse_fabric.tensors.file import layout_like, read_tensors, write_tensors

FEATURES, EXAMPLES, STEPS, RATE = 8, 64, 5, 0.1
TRUE = np.linspace(-1, 1, FEATURES)
"""The weights that all sites' data were made from."""


class Trainer:
    """Behaves as `hanse_datapod.worker.port.Worker`.

    It takes part in one sum of each task that has sums, and gives `control` for SCAFFOLD each time.

    Args:
        site: number of the site, from which its data are drawn.
        seconds: of virtual time that a task takes.
    """

    kinds = TRAINING_KINDS
    device = "cpu"

    def __init__(self, clock: Clock, site: int, seconds: float = 5.0) -> None:
        self._clock, self._seconds = clock, seconds
        self.control = np.full(FEATURES, 3.0 * (site + 1))
        draw = np.random.default_rng(site)
        self._x = draw.normal(size=(EXAMPLES + site, FEATURES))  # (examples, features)
        self._y = self._x @ TRUE + draw.normal(scale=0.01, size=len(self._x))

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:
        on_progress(0.0, "begun")
        await self._clock.sleep(self._seconds)
        if request.exchange is not None and not _frozen(request):
            await request.exchange(DATA_KEY, DataState().told())
            await request.exchange("l0-mean", np.zeros(1).tobytes())
            await request.exchange(END_KEY, b"")
        return await asyncio.to_thread(self._work, request)

    def _work(self, request: WorkRequest) -> WorkOutcome:
        if request.kind is TaskKind.INITIALIZE:
            write(request, np.random.default_rng(request.seed).normal(size=FEATURES))
            return WorkOutcome(request.output, 0, {}, self._seconds)
        assert request.model is not None
        received = read_tensors(request.model)[1]["weight"].astype(np.float64)
        weight = received.copy()
        metrics = {"loss": float(np.mean((self._x @ weight - self._y) ** 2))}
        if request.kind is TaskKind.EVALUATE:
            return WorkOutcome(None, len(self._x), metrics, self._seconds)
        for _ in range(STEPS):
            weight -= RATE * 2 * self._x.T @ (self._x @ weight - self._y) / len(self._x)
        write(request, weight - received)
        info = {"steps": float(STEPS), "first_loss": metrics["loss"]}
        extras = {}
        if (request.config["train"].get("algorithm") or {}).get("name") == "scaffold":
            extras["control"] = extra_output(request.output, "control")
            write_to(extras["control"], self.control)
        return WorkOutcome(request.output, len(self._x), metrics, self._seconds, extras=extras, info=info)

    def require(self, config: Mapping[str, Any]) -> None:
        """Every task may be done here."""

    async def check_data(self, schema: object, split: Split = "shuffled") -> DataSummary:
        await self._clock.sleep(0.1)
        return DataSummary(len(self._x), len(self._x), "0" * 64)

    async def rest(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing to stop."""


def _frozen(request: WorkRequest) -> bool:
    """Whether there are no statistics to be summed any more."""
    state = request.config["model"].get("state") or []
    return any(entry["keep"] == "frozen" and entry["from_round"] <= request.round for entry in state)


def write(request: WorkRequest, weight: np.ndarray) -> None:
    write_to(request.output, weight)


def write_to(path: Path, weight: np.ndarray) -> None:
    arrays = {"weight": weight.astype(np.float32)}
    write_tensors(path, layout_like(arrays), arrays)
