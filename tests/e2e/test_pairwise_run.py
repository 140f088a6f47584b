"""Pairwise runs by real processes: sites killed between the protocol's steps, and the bits of ring arithmetic, which
a run in memory of the same code makes without masks.

The sites' code waits at gates (files) that the tests open, so that who is killed when does not depend on any speed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import runpy
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from e2e.deployed import tensors
from e2e.sites_online import wait_online
from hanse.embedded.deployment import Deployment, SiteFiles
from hanse.hub import Run
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.tensors.file import decode_tensors
from hanse_schemas.job import check_job
from hanse_workflows.memory import Made, conduct

SITES = ["east", "north", "south", "west"]
EXAMPLES = {site: 20 + 5 * index for index, site in enumerate(SITES)}
SCHEMA = {"kind": "array", "shape": [4], "task": "classification", "classes": 2}
CODE = """
import time
from pathlib import Path

import numpy as np


def train(model, data, config):
    at = f"{int(data.x[0, 0])}-{config['round']}"
    gates = Path(config["train"]["gates"])
    (gates / f"begun-{at}").touch()
    while (gates / f"hold-{at}").exists():
        time.sleep(0.02)
    rng = np.random.default_rng(config["seed"])
    change = rng.uniform(-1, 1, model["weight"].shape)
    return {"weight": (model["weight"] + change).astype(np.float32)}, len(data.x), {"loss": float(change[0])}


def test(model, data, config):
    return len(data.x), {"accuracy": float(np.mean(model["weight"][: len(data.x)] > 0))}


def initialize(config):
    return {"weight": np.zeros(5000, np.float32)}
"""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@dataclass
class Scene:
    """A deployment whose sites run the code above."""

    deployment: Deployment
    folder: Path
    code: Path
    runs: int = 0

    def job(self, gates: Path, *, quorum: float, grace: float | None, evaluate: int, seed: int) -> dict[str, Any]:
        return {
            "rounds": 5,
            "evaluate": {"every": evaluate},
            "participants": {"minimum": 3, "quorum": quorum, "grace": grace, "deadline": 120},
            "model": {"name": "own"},
            "code": {"name": "code", "digest": hashlib.sha256(self.code.read_bytes()).hexdigest()},
            "train": {"gates": str(gates)},
            "checkpoint_every": 0,
            "seed": seed,
            "secure_aggregation": {"mode": "pairwise"},
        }

    def in_memory(self, away: Mapping[str, set[int]], **terms: Any) -> str | None:
        """The final model's digest of a run without masks, in which sites do not answer in some rounds."""
        gates = self.folder / "no-gates"
        gates.mkdir(exist_ok=True)
        job = check_job(self.job(gates, **terms) | {"evaluate": {"every": 0}})
        sites = {site: InMemory(site, self.code, away.get(site, set())) for site in SITES}
        return conduct(job, sites).digest

    async def run(
        self, script: Callable[[Run, Gates], Awaitable[None]], **terms: Any
    ) -> tuple[str, dict[str, list[str]]]:
        """A run with something done to it: (the final model's digest, who is in which round's sum)."""
        self.runs += 1
        gates = Gates(self.folder / f"gates-{self.runs}")
        run = await asyncio.to_thread(self.deployment.project.run, self.job(gates.folder, **terms))
        acting = asyncio.ensure_future(script(run, gates))
        # A run that fails would leave the script waiting for steps that never come.
        waiting = asyncio.ensure_future(asyncio.to_thread(run.wait))
        await asyncio.wait({acting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done() and not acting.done():
            acting.cancel()
            await asyncio.wait({acting})
            pytest.fail(f"the run was {run.state} before all was done to it: {run.view.reason}")
        await acting
        await waiting
        assert run.state == "completed", f"{run.state}: {run.view.reason}"
        events = await asyncio.to_thread(lambda: list(run.watch()))
        sums = {f"r{e.round}": e.data["participants"] for e in events if e.kind == "round-finished"}
        return str(run.view.model_digest), sums

    def pid(self, site: str) -> int:
        pid = self.deployment.datapods[site].pid
        assert pid is not None
        return pid

    async def kill(self, site: str) -> None:
        """SIGKILL, and wait until the supervisor has started another."""
        pid = self.pid(site)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            while self.deployment.datapods[site].pid in (pid, None):  # noqa: ASYNC110 - another process has no event
                await asyncio.sleep(0.02)

    async def kill_for_good(self, site: str) -> None:
        """SIGKILL, and no other is started."""
        child = self.deployment.datapods[site]
        os.kill(self.pid(site), signal.SIGKILL)
        await child.stop()

    async def restart(self, site: str) -> None:
        """Start a site that was killed for good, and wait until it can answer at once."""
        before = self.ready(site)
        child = self.deployment.datapods[site]
        self.deployment.datapods[site] = self.deployment.hub.supervisor.start(child.spec, self.deployment._nursery)
        async with asyncio.timeout(90):
            while any(now == then for now, then in zip(self.ready(site), before, strict=True)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def ready(self, site: str) -> tuple[int, int]:
        """How often it has given a sign of life, and has checked its data."""
        outbox = (self.deployment.home(site) / "outbox.jsonl").read_text()
        log = self.deployment.datapods[site].log.read_text()
        return outbox.count('"what":"presence"'), log.count("data checked")


class InMemory:
    """A site in memory that runs the code above. A `hanse_workflows.memory.MemorySite`."""

    def __init__(self, name: str, code: Path, away: set[int]) -> None:
        self._digest = hashlib.sha256(code.read_bytes()).hexdigest()
        self._code, self._data, self._away = runpy.run_path(str(code)), SimpleNamespace(x=data_of(name)), away

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        config = {**task.config, "seed": task.seed, "round": task.round}
        if task.kind is TaskKind.INITIALIZE:
            return Made(tensors(self._code["initialize"](config)), code_digest=self._digest)
        if task.round in self._away:
            raise HanseError(ErrorCode.UNAVAILABLE, f"away in round {task.round}")
        _, model = decode_tensors(objects["model"])
        trained, examples, metrics = self._code["train"](model, self._data, config)
        update = {name: array - model[name] for name, array in trained.items()}
        return Made(tensors(update), examples, metrics, code_digest=self._digest)


def data_of(site: str) -> np.ndarray:
    """Each row says which site's it is."""
    return np.full((EXAMPLES[site], 4), SITES.index(site), np.float32)


@dataclass
class Gates:
    """Where sites wait in their training: `hold` before, `begun` tells, `release` after."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir()
        # Who waits in which round until it may answer.
        for site, number in (("west", 2), ("east", 3), ("east", 4)):
            self.path("hold", site, number).touch()

    def path(self, what: str, site: str, number: int) -> Path:
        return self.folder / f"{what}-{SITES.index(site)}-{number}"

    async def begun(self, site: str, number: int) -> None:
        async with asyncio.timeout(120):
            while not self.path("begun", site, number).exists():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def release(self, site: str, number: int) -> None:
        self.path("hold", site, number).unlink()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("pairwise")
    code = folder / "code.py"
    code.write_text(CODE)
    files = {}
    for site, count in EXAMPLES.items():
        path = folder / f"{site}.npz"
        np.savez(path, x=data_of(site), y=np.arange(count) % 2)
        files[site] = SiteFiles(path, path)
    # The code tells this test what it does by files of its own, which a sandbox would not let it write.
    policy = {"site_code": {"digests": [hashlib.sha256(code.read_bytes()).hexdigest()]}, "sandbox": {"mode": "none"}}
    async with Deployment(folder, "pairs", {}, SCHEMA, policy=policy, nursery=True) as deployment:
        for site, data in files.items():
            child = await deployment.add_site(site, data)
            child.spec = replace(child.spec, argv=[*child.spec.argv, "--code", str(code)])
        await asyncio.to_thread(wait_online, deployment.project, len(SITES))
        yield Scene(deployment, folder, code)


async def answered(run: Run, step: str, site: str) -> None:
    """Return when the site's answer to the step is in."""

    def wait() -> bool:
        return any(
            event.kind == "task-answered" and (event.data["step"], event.data["participant"]) == (step, site)
            for event in run.watch()
        )

    assert await asyncio.to_thread(wait), f"{site} has not answered {step}"


async def paused(run: Run) -> None:
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(run.refresh)).state != "paused":  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_killed_sites_that_come_back_continue_their_session(scene: Scene) -> None:
    """West dies after its shares, before its update; south after its update, before it reveals shares."""

    async def disturbed(run: Run, gates: Gates) -> None:
        await gates.begun("west", 2)
        await scene.kill("west")
        gates.release("west", 2)
        gates.release("east", 3)
        await answered(run, "r4-train", "south")
        await scene.kill("south")
        gates.release("east", 4)

    terms = {"quorum": 1.0, "grace": None, "evaluate": 1, "seed": 7}
    found, sums = await scene.run(disturbed, **terms)
    assert sums == {f"r{number}": SITES for number in range(1, 6)}
    assert found == await asyncio.to_thread(scene.in_memory, {}, **terms)
    check_what_left(scene)


async def test_a_pairwise_run_survives_the_loss_of_a_site_before_and_after_its_update(scene: Scene) -> None:
    """West is lost between SHARE and its update and comes back; south between its update and UNMASK."""

    async def script(run: Run, gates: Gates) -> None:
        await gates.begun("west", 2)
        await scene.kill_for_good("west")
        # West comes back between two rounds: the third is open until east answers, and then the run pauses.
        await gates.begun("east", 3)
        await asyncio.to_thread(run.pause)
        gates.release("east", 3)
        await paused(run)
        await scene.restart("west")
        await asyncio.to_thread(run.resume)
        await answered(run, "r4-train", "west")
        await answered(run, "r4-train", "south")
        await scene.kill_for_good("south")
        gates.release("east", 4)

    # With the seed of the run above, these would be its updates again, by one site fewer: sites refuse that.
    terms = {"quorum": 0.75, "grace": 3.0, "evaluate": 0, "seed": 8}
    found, sums = await scene.run(script, **terms)
    three, four = ["east", "north", "south"], SITES
    assert sums == {"r1": four, "r2": three, "r3": three, "r4": four, "r5": ["east", "north", "west"]}
    assert found == await asyncio.to_thread(scene.in_memory, {"west": {2, 3}, "south": {5}}, **terms)
    assert found != await asyncio.to_thread(scene.in_memory, {"west": {2, 3}}, **terms), "who is away tells nothing"


def check_what_left(scene: Scene) -> None:
    """By the sites' own logs: of training and evaluation in mode pairwise, masked updates and tallies alone."""
    for site in SITES:
        home = scene.deployment.home(site)
        entries = [json.loads(line) for line in (home / "outbox.jsonl").read_text().splitlines()]
        assert sum(entry["what"] == "masked-update" for entry in entries) >= 5
        assert not list((home / "work").glob("*.plain*"))
