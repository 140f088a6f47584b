"""A site of kernel-normalized networks hangs for rounds, is killed, and comes back, while processes of the hub die."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from e2e.algorithm_jobs import SCHEMA, SITES, write_images
from e2e.jobs_in_memory import digest_in_memory
from e2e.killed import kill
from e2e.sites_online import wait_online
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task
from hanse_lab.site import LabSite

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

JOB: dict[str, Any] = {
    "rounds": 10,
    "participants": {"minimum": 1, "quorum": 0.6, "grace": 1.5, "retries": 0, "deadline": 120},
    "model": {"name": "cnn", "channels": [4, 8], "hidden": 16, "normalization": "kernel"},
    "train": {
        "algorithm": "scaffold", "steps": 3, "batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.1},
        "schedule": {"name": "cosine", "length": 10, "warm_up": 2}, "augmentation": {"crop": 1},
    },
    "evaluate": {"every": 0},
    "checkpoint_every": 0,
    "seed": 5,
}  # fmt: skip
"""Dropout, batches and augmentation are drawn in each round, and control variates stay at the sites between rounds."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("rejoin")
    write_images(folder / "data")
    shares = {site: folder / "data" / site for site in SITES}
    files = {site: SiteFiles(share / "train.npz", share / "test.npz") for site, share in shares.items()}
    async with Deployment(folder, "digits", files, SCHEMA, nursery=True) as started:
        yield started


async def test_a_site_that_was_away_for_rounds_comes_back_and_every_bit_is_as_if_it_had_only_been_absent(
    deployment: Deployment,
) -> None:
    # A site that joins a round later is no absent one: SCAFFOLD's variate is then a mean of more than before.
    await asyncio.to_thread(wait_online, deployment.project, len(SITES))
    run = await asyncio.to_thread(deployment.project.run, JOB)
    await paused_after(run, 2)
    away = deployment.hub.supervisor.pids()["datapod-south"]
    os.kill(away, signal.SIGSTOP)
    await asyncio.to_thread(run.resume)
    await kill(deployment, "aggregator")
    await kill(deployment, "coordinator")
    await paused_after(run, 5)
    seen = await last_seen(deployment)
    await kill(deployment, "datapod-south")  # its successor knows what lies on the disk
    async with asyncio.timeout(90):
        while await last_seen(deployment) == seen:  # noqa: ASYNC110 - a sign of life has no event
            await asyncio.sleep(0.05)
    await asyncio.to_thread(run.resume)
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", run.view.reason
    counted = await asyncio.to_thread(participants, run)
    there = "".join("s" if "south" in names else "-" for names in counted)
    assert re.fullmatch("ss+--+s+", there), there
    files = {site: deployment.folder / "data" / site / "train.npz" for site in SITES}
    made = partial(Absent, counted=counted)
    twin = await asyncio.to_thread(digest_in_memory, JOB, SCHEMA, files, made)
    assert run.view.model_digest == twin
    present = await asyncio.to_thread(digest_in_memory, JOB, SCHEMA, files)
    assert present != twin, "whether the site is there makes no difference, so nothing was shown"


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
