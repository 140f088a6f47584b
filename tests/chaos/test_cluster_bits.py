"""A hub of two replicas of everything, on three nats-servers: it is disturbed in a run, and not a bit changes.

A server of the bus is killed while it leads a stream, and is away for rounds; every service and every server of the bus
is told to end (SIGTERM), one after another, as an upgrade does it. Rounds are held by a site only until the disturbance
has happened: what comes after happens beside them. What comes out is compared with an undisturbed run in memory. `make
chaos SEEDS=n` kills the leaders of n streams, and restarts all replicas instead of one of each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import hanse
from e2e.deployed import Arrays, DeployedHub, completed, site, start_job, tensors
from e2e.killed import restart_in
from hanse.embedded.nursery import Nursery, NurseryKind
from hanse.embedded.processes import Child
from hanse.hub import Project
from hanse.site import PlainTask
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.messages import Task
from hanse_fabric.subjects import JOB, JOURNAL, LEASES, REDUCED, RESULT, RUNS, TASK, UPDATE, Role, Stream
from hanse_fabric.tensors.file import decode_tensors
from hanse_schemas.job import check_job
from hanse_workflows.memory import Made, conduct

SEEDS = int(os.environ.get("HANSE_CHAOS_SEEDS", "1"))
STREAMS = [row.stream for row in (RESULT, JOURNAL, JOB, TASK, LEASES, REDUCED, UPDATE, RUNS) if row.stream is not None]
PATIENCE_S = 240.0
PROCESSES = 4 * 2 + 3
RESTARTED = 5 if SEEDS == 1 else PROCESSES
"""Where time is short, one of each."""
ROUNDS = RESTARTED + 2
REPLICAS = {"coordinators": 2, "aggregators": 2, "compensators": 2, "registries": 2, "bus_servers": 3}
LARGE: Arrays = {"weight": np.zeros((256, 256), np.float32)}  # through the object store


@pytest.fixture(scope="module")
def hub(successors: NurseryKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedHub]:
    # A busy machine is given time: whether a service ends in order is asked here, not how fast.
    settings = {"HANSE_BUS_HEARTBEAT": "1", "HANSE_GRACE": f"{PATIENCE_S:g}"}
    made = DeployedHub(tmp_path_factory.mktemp("cluster"), settings=settings, **REPLICAS)
    made._nursery = Nursery(successors, made.folder / "successors.log")
    try:
        made.start()
        made._in_loop(restart_in(made.hub, made._nursery))
        yield made
    finally:
        made.stop()


@dataclass
class Scene:
    """A project with two sites, one of which meets the hooks of a run."""

    hub: DeployedHub
    project: Project
    hooks: dict[int, Callable[[], None]] = field(default_factory=dict)

    @cached_property
    def job(self) -> dict[str, Any]:
        return start_job(self.project, LARGE, rounds=ROUNDS, participants={"quorum": 1.0, "deadline": PATIENCE_S})

    @cached_property
    def undisturbed(self) -> str | None:
        sites = {"north": InMemory(), "south": InMemory()}
        return conduct(check_job(self.job), sites, initial=tensors(LARGE)).digest

    def digest(self, hooks: Mapping[int, Callable[[], None]]) -> str:
        """The digest of a run's model."""
        self.hooks.clear()
        self.hooks.update(hooks)
        found = completed(self.project.run(self.job))
        assert found.view.model_digest is not None
        return found.view.model_digest


@pytest.fixture(scope="module")
def scene(hub: DeployedHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("sites")
    with hanse.connect(hub.hub.url, api_key=hub.hub.api_key, patience=PATIENCE_S) as client:
        project = client.projects.create("cluster", schema={"kind": "open"})
        scene = Scene(hub, project)
        with site(project, "north", folder, training(scene.hooks)), site(project, "south", folder, training({})):
            yield scene


def training(hooks: dict[int, Callable[[], None]]) -> Callable[[PlainTask], None]:
    """Trains. A round's hook comes first."""

    def answer(task: PlainTask) -> None:
        if task.round in hooks:
            hooks.pop(task.round)()  # once: a task may be given again
        task.push(trained(task.seed, task.model()), examples=1 + task.seed % 97)

    return answer


def trained(seed: int, model: Mapping[str, np.ndarray]) -> Arrays:
    """By a task's seed: any other round, site or order gives other bits."""
    chance = np.random.default_rng(seed)
    return {name: array + chance.normal(size=array.shape).astype(np.float32) for name, array in model.items()}


class InMemory:
    """The same site in memory. A `hanse_workflows.memory.MemorySite`."""

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        _, model = decode_tensors(objects["model"])
        update = {name: array - model[name] for name, array in trained(task.seed, model).items()}
        return Made(tensors(update), 1 + task.seed % 97)


def child(hub: DeployedHub, name: str) -> Child:
    (found,) = [child for child, _ in hub.hub.supervisor._children if child.spec.name == name]
    return found


def wait_until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def leader(hub: DeployedHub, stream: Stream) -> str:
    """The server that leads a stream, by the name of its process."""

    async def ask() -> str:
        ports = hub.hub.state.ports(None, ["bus-2", "bus-3"])
        url = ",".join(f"nats://127.0.0.1:{ports[name]}" for name in ("bus", "bus-2", "bus-3"))
        creds = hub.hub.state.authority / f"{Role.PROVISIONER.value}.creds"
        bus = await NatsBus.connect(url, Role.PROVISIONER.value, creds=creds, timeout=PATIENCE_S)
        try:
            end = asyncio.get_running_loop().time() + PATIENCE_S
            while True:
                answer = await bus._connection.call(f"$JS.API.STREAM.INFO.{stream.name}", b"", deadline=end)
                name = json.loads(answer.data).get("cluster", {}).get("leader")
                if name:
                    return str(name)
        finally:
            await bus.close()

    return asyncio.run(ask())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_server_that_leads_a_stream_is_killed_in_a_round_and_no_bit_changes(
    hub: DeployedHub, scene: Scene, seed: int
) -> None:
    expected = scene.undisturbed
    away: list[str] = []

    def kill() -> None:
        away.append(leader(hub, STREAMS[seed % len(STREAMS)]))
        process = child(hub, away[0])
        hub.hold_down(away[0])
        assert process.pid is None

    def bring_back() -> None:
        hub.let_up(away[0])

    assert scene.digest({2: kill, 5: bring_back}) == expected
    assert away, "nothing was killed"
    wait_until(lambda: child(hub, away[0]).pid is not None, f"{away[0]} is not back")


@pytest.mark.timeout(600)
def test_every_service_and_server_is_restarted_in_turn_and_no_bit_changes(hub: DeployedHub, scene: Scene) -> None:
    names = [name for name in hub.hub.supervisor.pids() if name != "object-store"]
    assert len(names) == PROCESSES
    if len(names) > RESTARTED:
        names = [name for name in names if not name.endswith(("-2", "-3"))]
    assert len(names) == RESTARTED
    expected = scene.undisturbed
    restarted: list[str] = []

    def restart(name: str) -> None:
        """Tell it to end once the one before is back; it ends by itself, within its grace, in order."""
        for other in restarted[-1:]:
            hub.wait_ready(other, PATIENCE_S)
        process = child(hub, name)._process
        assert process is not None
        os.kill(process.pid, signal.SIGTERM)
        wait_until(lambda: process.returncode is not None, f"{name} does not end")
        graceful = 0 if not name.startswith("nats-server") else 1  # nats-server says 1 when it is told to end
        assert process.returncode in (0, graceful), f"{name} ended with {process.returncode}"
        restarted.append(name)

    hooks = {number: lambda name=name: restart(name) for number, name in enumerate(names, start=2)}
    assert scene.digest(hooks) == expected
    assert restarted == names
    for name in names:
        assert "cut short" not in child(hub, name).log.read_text(errors="replace"), f"{name} took more than its grace"
