"""What it costs a site that its requests are bound and its works remembered: in rounds of the true agents, over a bus.

Four sites and a compensator in one process, beside a real nats-server. What grows with the model is the sketch that a
site makes of its update: it is measured on a large one, and added.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from adversary.lying_hub import lying_hub
from adversary.stage import Regression, Stage, staged
from hanse_datapod.agent import admission
from hanse_datapod.home.works import FILE
from hanse_datapod.masking import answer
from hanse_datapod.masking.remembered import Remembered
from hanse_datapod.worker.port import WorkOutcome, WorkRequest
from hanse_fabric.messages import Result, Task
from hanse_fabric.tensors.file import layout_like, write_tensors
from hanse_privacy.works.near import sketch
from servers import NatsServer

SITES, ROUNDS, BEFORE = 4, 40, 10
"""Rounds that are played, and those of them after which a site's files have their least size."""
SMALL, LARGE = 10_000, 10_000_000
"""Parameters: of an update that fits in a message, and of a large one."""
PARTS: tuple[tuple[Any, str], ...] = (
    (admission, "check_binding"),
    (answer, "asked_of"),
    *((Remembered, name) for name in ("check", "tag", "check_people", "claim", "leave")),
)
"""All that a site does for binding and memory."""


class Untrained(Regression):
    """A worker whose update is random."""

    async def work(self, request: WorkRequest, on_progress: Callable[[float, str], None]) -> WorkOutcome:  # noqa: ARG002
        draw = np.random.default_rng([request.round, len(self.x)])
        arrays = {"weight": draw.normal(scale=0.01, size=SMALL).astype(np.float32)}
        write_tensors(request.output, layout_like(arrays), arrays)
        return WorkOutcome(request.output, len(self.x), {}, 0.0)


@contextmanager
def timed(spent: list[float]) -> Iterator[None]:
    """Adds to `spent` what each call of the parts takes."""
    patches = []
    for owner, name in PARTS:
        real = getattr(owner, name)

        def part(*arguments: Any, _real: Callable[..., Any] = real, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return _real(*arguments, **named)
            finally:
                spent.append(time.perf_counter() - began)

        patches.append(patch.object(owner, name, part))
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


async def measure_binding(folder: Path) -> dict[str, float]:
    """Of one answer of 10 million parameters, masked by seeds.

    Returns:
        `site_ms`: what binding and memory take a site; `site_bytes`: what it keeps and sends more for them.
    """
    spent: list[float] = []
    for name in ("nats", "stage"):
        (folder / name).mkdir()
    server = NatsServer(folder / "nats")
    server.start()
    try:
        await server.provision()
        with timed(spent):
            task, result, kept = await _rounds(server, folder / "stage")
    finally:
        server.kill()
    seed = result.seed
    if seed is None:
        raise RuntimeError(f"{result.participant}: {result.reason}")
    sent = len(task.encode()) - len(task.model_copy(update={"bound": None}).encode())
    sent += len(seed.model_dump_json()) - len(seed.model_copy(update={"request": None}).model_dump_json())
    site = sum(spent) / SITES / ROUNDS + _sketch_seconds(folder / "update") - _sketch_seconds(folder / "small", SMALL)
    return {"site_ms": round(1000 * site, 1), "site_bytes": round(kept + sent)}


def _sketch_seconds(path: Path, parameters: int = LARGE) -> float:
    arrays = {"weight": np.random.default_rng(1).normal(size=parameters).astype(np.float32)}
    write_tensors(path, layout_like(arrays), arrays)
    began = time.perf_counter()
    sketch(path, bytes(32))
    return time.perf_counter() - began


async def _rounds(server: NatsServer, folder: Path) -> tuple[Task, Result, float]:
    """(a task, its answer, bytes that a site has kept for each)."""
    async with staged(server, folder, sites=SITES, worker=Untrained) as stage, lying_hub(stage) as hub:
        for number in range(1, ROUNDS + 1):
            session = f"r{number}-train"
            model = np.full(8, float(number))
            tasks = [hub.task(name, session, model=model, round=number) for name in stage.names]
            results = await hub.ask(*tasks)
            await hub.ask_masks(results, session)
            if number == BEFORE:
                least = _kept(stage)
        kept = (_kept(stage) - least) / SITES / (ROUNDS - BEFORE)
        return tasks[0], results[tasks[0].participant], kept


def _kept(stage: Stage) -> int:
    """Bytes of what all sites remember."""
    return sum((site.home / FILE).stat().st_size for site in stage.sites.values())
