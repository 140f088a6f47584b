"""The bus is lost with all that it held: from a backup that was made in the middle of a run, the run goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import hanse
from e2e.deployed import START, Answer, DeployedHub, completed, deployed, site
from hanse.hub import Hub, Project, Run
from hanse.site import PlainTask
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.subjects import Role
from hanse_fabric.tensors.file import read_tensors
from hanse_learning.digits import write_shares
from hanse_operations.__main__ import main
from hanse_operations.servers.nats import nats_program

SITES = {"north": 3, "south": 5}  # how many examples each says it has
ROUNDS = 4
BACKED_UP_IN = 2


def training(n: int, gate: threading.Event, arrived: threading.Semaphore) -> Answer:
    """A deterministic step. In the round of the backup each waits until the gate opens."""

    def answer(task: PlainTask) -> None:
        if task.kind != "train":
            return
        if task.round == BACKED_UP_IN:
            arrived.release()
            assert gate.wait(240)
        model = task.model()
        generator = np.random.default_rng(task.seed)
        task.push(
            {
                name: array * 0.9 + generator.normal(size=array.shape).astype(array.dtype)
                for name, array in model.items()
            },
            examples=n,
        )

    return answer


def job(project: Project) -> dict[str, object]:
    return {
        "rounds": ROUNDS,
        "model": {"name": "logistic"},
        "initial_model": project.upload_model(dict(START)),
        "evaluate": {"every": 0},
        "participants": {"minimum": 2, "deadline": 600},
        "seed": 7,
    }


@contextmanager
def back(url: str, home: Path, answer: Answer) -> Iterator[None]:
    """A site that was enrolled before the disaster, started again by its administrator."""
    joined = hanse.join(url, home=home)

    def work() -> None:
        for task in joined.tasks():
            answer(task)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        joined.close()
        thread.join(60)


class Bus:
    """The bus of a hub's folder, started by itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = json.loads((folder / "ports.json").read_text())["bus"]
        self.authority = BusAuthority(folder / "bus-authority")

    def deploy(self, role: Role, command: str, *argv: str) -> int:
        creds = self.authority.service_credentials(role)
        return main([command, "--url", f"nats://127.0.0.1:{self.port}", "--creds", str(creds), *argv])

    def restored(self, backup: Path) -> None:
        """Lose everything, and bring the backup back to an empty server."""
        shutil.rmtree(self.folder / "nats")
        (self.folder / "nats").mkdir()
        program = nats_program(self.folder / "nats", self.authority, port=self.port)
        server = subprocess.Popen(program.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 60
            while not program.answers():
                assert time.monotonic() < end
                time.sleep(0.01)
            assert self.deploy(Role.RESTORER, "restore", "--from", str(backup)) == 0
        finally:
            server.terminate()
            server.wait(60)


def weights(run: Run, path: Path) -> dict[str, bytes]:
    _, arrays = read_tensors(run.model.download(path))
    return {name: array.tobytes() for name, array in arrays.items()}


@contextmanager
def opening(gate: threading.Event) -> Iterator[None]:
    """However it ends, nobody waits at the gate after it."""
    try:
        yield
    finally:
        gate.set()


def running(client: Hub, project: str, run: Run) -> Run:
    """The run, which the hub that was restored has found under way."""
    again = client.projects.get(project).get_run(run.id)
    assert again.state == "running"
    return again


def test_runs_go_on_to_the_same_bits_from_a_backup_that_was_made_in_their_midst(tmp_path: Path) -> None:
    """One is plain. Of the other, which is masked, compensator and sites have summed rounds that the hub has forgotten:
    it asks them the same again, which they may answer."""
    folder, saved = tmp_path / "hub", tmp_path / "saved"
    gate, arrived = threading.Event(), threading.Semaphore(0)
    with deployed(folder) as first, first.client() as client:
        project = client.projects.create("p", schema={"kind": "open"})
        with (
            site(project, "north", tmp_path, training(SITES["north"], gate, arrived)),
            site(project, "south", tmp_path, training(SITES["south"], gate, arrived)),
            opening(gate),
        ):
            run = project.run(job(project))
            for _ in SITES:
                assert arrived.acquire(timeout=240)
            under_masks = masked_run(first, client, tmp_path)
            south = first.hub.supervisor.pids()["datapod-south"]
            os.kill(south, signal.SIGSTOP)  # or the run might be over before it is backed up
            try:
                assert Bus(folder).deploy(Role.BACKUP, "backup", "--to", str(saved)) == 0
            finally:
                os.kill(south, signal.SIGCONT)
            gate.set()
            undisturbed = weights(completed(run), tmp_path / "undisturbed.safetensors")
            undisturbed_masked = weights(completed(under_masks), tmp_path / "undisturbed-masked.safetensors")
    Bus(folder).restored(saved)
    with deployed(folder) as second, second.client() as client:
        again, masked_again = running(client, "p", run), running(client, "masked", under_masks)
        spare = threading.Semaphore(0)
        with (
            back(second.hub.url, tmp_path / "north", training(SITES["north"], gate, spare)),
            back(second.hub.url, tmp_path / "south", training(SITES["south"], gate, spare)),
        ):
            second.start_datapods_of(first)
            assert weights(completed(again), tmp_path / "again.safetensors") == undisturbed
            assert weights(completed(masked_again), tmp_path / "again-masked.safetensors") == undisturbed_masked


def masked_run(hub: DeployedHub, client: Hub, folder: Path) -> Run:
    """A masked run of datapods, whose second round is over."""
    names = ["east", "north", "south"]
    write_shares(folder / "shares", names, seed=3)
    schema = {"kind": "array", "shape": [64], "task": "classification", "classes": 10}
    project = client.projects.create("masked", schema=schema)
    for name in names:
        hub.start_datapod(
            project, name, home=folder / "datapods" / name, data=folder / "shares" / name / "train.npz"
        )  # fmt: skip
    run = project.run(
        {
            "rounds": 8,
            "model": {"name": "logistic"},
            "evaluate": {"every": 0},
            "participants": {"minimum": 3, "deadline": 120},
            "seed": 7,
            "secure_aggregation": {"mode": "compensator"},
        }
    )
    next(event for event in run.watch() if event.kind == "round-finished" and event.round == BACKED_UP_IN)
    return run
