"""A run that a site is away from for some rounds, and its twin in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hanse.embedded.deployment import Deployment
from hanse.hub import Run
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task
from hanse_lab.site import LabSite

REJOINED: dict[str, Any] = {
    "rounds": 8,
    "participants": {"minimum": 1, "quorum": 0.6, "grace": 1.5, "retries": 0, "deadline": 120},
    "model": {"name": "cnn", "channels": [2, 4], "hidden": 8, "normalization": "kernel"},
    "train": {
        "algorithm": "scaffold", "steps": 3, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.1},
        "schedule": {"name": "cosine", "length": 8, "warm_up": 2}, "augmentation": {"crop": 1},
    },
    "evaluate": {"every": 0},
    "checkpoint_every": 0,
    "seed": 5,
}  # fmt: skip
"""Dropout, batches and augmentation are drawn in each round, and control variates stay at the sites between rounds."""


class Absent(LabSite):
    """Does not answer in the rounds in which the deployed site did not count."""

    def __init__(self, *given: Any, counted: list[list[str]]) -> None:
        super().__init__(*given)
        self._counted = counted

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Any:
        if task.step.endswith("-train") and self.name not in self._counted[task.round - 1]:
            raise HanseError(ErrorCode.UNAVAILABLE, f"{self.name} was away in round {task.round}")
        return super().work(task, objects)


async def last_seen(deployment: Deployment) -> Any:
    """When the hub last saw a sign of life of the site."""
    views = await asyncio.to_thread(deployment.project.participants)
    return next(view.last_seen for view in views if view.participant == "south")


def participants(run: Run) -> list[list[str]]:
    """Of each round, those whose updates counted."""
    return [event.data["participants"] for event in run.watch() if event.kind == "round-finished"]


async def paused_after(run: Run, rounds: int) -> None:
    """Return when the run rests after so many rounds, or soon after that."""
    async with asyncio.timeout(120):
        while (await asyncio.to_thread(run.refresh)).view.round < rounds:  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.02)
        await asyncio.to_thread(run.pause)
        while (await asyncio.to_thread(run.refresh)).state != "paused":  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.05)
