"""A thousand participants on one machine, a tenth of them silent at random in every round.

They are played by this process, each with its own identity, credentials and bus connection, as datapods have; the hub
is the real one. What is shown: no round is lost, and the coordinator's memory does not grow with the rounds.
"""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import numpy as np
import psutil
import pytest

from hanse.embedded.deployment import Deployment
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.tensors.file import encode_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_fabric.tensors.refs import ref_of_bytes
from hanse_site import SiteLink, enrol
from hanse_site.answering import result_for
from memory_disk import tmp_path, tmp_path_factory

__all__ = ["tmp_path", "tmp_path_factory"]

PARTICIPANTS = int(os.environ.get("HANSE_PARTICIPANTS", "1000"))
ROUNDS = 4
SILENT = 0.1
JOINING_AT_ONCE = 16
GROWTH_MIB = 8

SCHEMA = {"kind": "array", "shape": [8], "task": "classification", "classes": 3}
LAYOUT = Layout.of([Entry("output.weight", "F32", (3, 8)), Entry("output.bias", "F32", (3,))])


async def take_part(link: SiteLink) -> None:
    """Answer every task of a site, but be silent in a tenth of the rounds."""
    name = link.identity.participant
    async with link.tasks() as tasks:
        async for opened in tasks:
            task = opened.task
            if task.kind is TaskKind.TRAIN and random.Random(f"{name} {task.round}").random() < SILENT:
                continue
            await answer(link, task)


async def answer(link: SiteLink, task: Task) -> None:
    generator = np.random.default_rng(task.seed)
    arrays = {entry.name: generator.standard_normal(entry.shape, dtype=np.float32) * 0.01 for entry in LAYOUT}
    data = encode_tensors(LAYOUT, arrays)
    ref = ref_of_bytes(data)
    await link.send_update_bytes(task, ref, data)
    await link.answer(result_for(task, update=ref, examples=0 if task.kind is TaskKind.INITIALIZE else 10))


@pytest.mark.timeout(900)
async def test_a_thousand_participants_with_a_tenth_silent_lose_no_round(tmp_path: Path) -> None:
    async with Deployment(tmp_path, "crowd", {}, SCHEMA) as deployment:
        links = await joined(deployment)
        playing = asyncio.gather(*(take_part(link) for link in links))
        try:
            await asyncio.gather(*(link.presence() for link in links))
            running = asyncio.create_task(run_rounds(deployment))
            # A participant that fails ends the test with its error; without this, the run would wait for it.
            await asyncio.wait((playing, running), return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                playing.result()
            memory = await running
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            await asyncio.gather(*(link.close() for link in links))
    assert len(memory) == ROUNDS
    grown = memory[-1] - memory[ROUNDS // 4]
    assert grown < GROWTH_MIB, f"the coordinator's memory by round, MiB: {memory}"


async def joined(deployment: Deployment) -> list[SiteLink]:
    gate = asyncio.Semaphore(JOINING_AT_ONCE)

    async def join(index: int) -> SiteLink:
        async with gate:
            name = f"site-{index:04d}"
            token = await asyncio.to_thread(deployment.project.invite, name)
            return await SiteLink.connect(await enrol(deployment.hub.url, token, deployment.home(name)))

    return await asyncio.gather(*(join(index) for index in range(PARTICIPANTS)))


async def run_rounds(deployment: Deployment) -> list[int]:
    """Run the job; the coordinator's resident memory in MiB at the end of each round."""
    job = {
        "rounds": ROUNDS,
        "participants": {"minimum": PARTICIPANTS // 2, "quorum": 0.8, "grace": 1.0, "deadline": 120},
        "model": {"name": "logistic"},
        "evaluate": {"every": 0},
    }
    run = await asyncio.to_thread(deployment.project.run, job)
    coordinator = psutil.Process(deployment.hub.supervisor.pids()["coordinator"])

    def watch() -> list[int]:
        return [coordinator.memory_info().rss >> 20 for event in run.watch() if event.kind == "round-finished"]

    memory = await asyncio.to_thread(watch)
    assert run.state == "completed", run.view.reason
    return memory
