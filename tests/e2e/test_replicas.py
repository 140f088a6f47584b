"""Two coordinators and two aggregators on one hub: one may die for good, and nobody loses a run."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from e2e.deployed import DeployedHub, completed, honest, site, start_job
from hanse.hub import Hub, Project, Run
from hanse.site import PlainTask
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.store.transfer import HttpTransfer
from hanse_fabric.tensors.file import read_tensors
from hanse_site import SiteLink, enrol

ROUNDS = 4


@pytest.fixture(scope="module")
def hub(new_hub: Callable[..., DeployedHub]) -> DeployedHub:
    return new_hub(coordinators=2, aggregators=2)


def seeded(
    reached: threading.Event | None = None, goes_on: threading.Event | None = None
) -> Callable[[PlainTask], None]:
    """Trains by its task's seed: any other round, site or order gives other bits. May stop in round 3 for a signal."""

    def answer(task: PlainTask) -> None:
        if task.kind == "train":
            if task.round == 3 and reached is not None and goes_on is not None:
                reached.set()
                assert goes_on.wait(60)
            chance, model = np.random.default_rng(task.seed), task.model()
            trained = {
                name: array + chance.normal(size=array.shape).astype(np.float32) for name, array in model.items()
            }
            task.push(trained, examples=1 + task.seed % 97)
        else:
            task.report(examples=1, metrics={"accuracy": 0.5})

    return answer


def holder(project: Project, run: Run) -> str:
    """The coordinator that took the run last, by the audit."""
    taken = [entry for entry in project.audit() if entry["action"] == "run.take" and run.id in str(entry)]
    return str(taken[-1]["actor"]).rpartition("/")[2]


def check_takeover(hub: DeployedHub, folder: Path, name: str, disturb: Callable[[str], None]) -> None:
    """The coordinator that works on a run is disturbed in round 3; the sibling ends the run with the same model."""
    with hub.client() as client:
        project = client.projects.create(name, schema={"kind": "open"})
        reached, goes_on = threading.Event(), threading.Event()
        with site(project, "north", folder, seeded(reached, goes_on)), site(project, "south", folder, seeded()):
            goes_on.set()
            undisturbed = completed(project.run(start_job(project, rounds=ROUNDS))).view.model_digest
            reached.clear()
            goes_on.clear()
            # Longer than the bus gives requests to a member that hangs: till then an answer may be sent there in vain.
            run = project.run(start_job(project, rounds=ROUNDS, participants={"deadline": 120.0}))
            assert reached.wait(60)
            first = holder(project, run)
            disturb(first)
            goes_on.set()
            with hub.sibling_client(first) as survivor:
                there = survivor.projects.get(name)
                assert completed(there.get_run(run.id)).view.model_digest == undisturbed
                until = time.monotonic() + 20  # what is told of a run is delivered beside it
                while holder(there, run) == first and time.monotonic() < until:
                    time.sleep(0.2)
                assert holder(there, run) != first, [(one["actor"], one["action"]) for one in there.audit()]


def test_a_run_goes_on_at_the_sibling_of_a_coordinator_that_hangs(hub: DeployedHub, tmp_path: Path) -> None:
    stopped: list[int] = []

    def hang(name: str) -> None:
        stopped.append(hub.hub.supervisor.pids()[name])
        os.kill(stopped[0], signal.SIGSTOP)

    try:
        check_takeover(hub, tmp_path, "hanging", hang)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(400)
def test_a_coordinator_that_hangs_hides_no_sites_signs_of_life(hub: DeployedHub, client: Hub, tmp_path: Path) -> None:
    """Each coordinator follows signs of life by a consumer of its own; a site whose request fell to the one that hangs
    asks again. That one has missed nothing once it goes on."""
    project = client.projects.create("alive", schema={"kind": "open"})
    names = [f"site-{index}" for index in range(6)]
    tokens = {name: project.invite(name) for name in names}
    pid = hub.hub.supervisor.pids()["coordinator-2"]

    def seen_since(view: Project, moment: datetime) -> set[str]:
        return {one.participant for one in view.participants() if one.last_seen is not None and one.last_seen > moment}

    async def shown_by(folder: Path) -> datetime:
        """All show life, one coordinator hangs, and all do again; returns when it hung."""
        async with AsyncExitStack() as stack:
            links = []
            for name, token in tokens.items():
                identity = await enrol(client.url, token, folder / name)
                bus = await NatsBus.connect(
                    hub.hub.bus_url, f"alive.{name}", creds=identity.creds, inbox_prefix=identity.inbox_prefix,
                    timeout=60,
                )  # fmt: skip
                stack.push_async_callback(bus.close)
                links.append(SiteLink(bus, identity, HttpTransfer()))
            await asyncio.gather(*(confirmed(link) for link in links))
            os.kill(pid, signal.SIGSTOP)
            moment = datetime.now(UTC)
            await asyncio.gather(*(confirmed(link) for link in links))
            return moment

    try:
        moment = asyncio.run(shown_by(tmp_path))
        assert seen_since(project, moment) == set(names)
    finally:
        os.kill(pid, signal.SIGCONT)
    with hub.sibling_client("coordinator") as woken:
        there, until = woken.projects.get("alive"), time.monotonic() + 90
        while seen_since(there, moment) != set(names):
            assert time.monotonic() < until, "what it had missed comes to it"
            time.sleep(0.2)


async def confirmed(link: SiteLink) -> None:
    """Show life until a coordinator has confirmed it, as a datapod does, though at once."""
    async with asyncio.timeout(150):
        while True:
            try:
                return await link.presence()
            except HanseError as error:
                if error.code not in (ErrorCode.TIMEOUT, ErrorCode.UNAVAILABLE):
                    raise


def test_two_runs_of_one_project_at_once_do_not_disturb_each_other(
    hub: DeployedHub, client: Hub, tmp_path: Path
) -> None:
    project = client.projects.create("busy", schema={"kind": "open"})
    with site(project, "north", tmp_path, seeded()), site(project, "south", tmp_path, seeded()):
        alone = [
            completed(project.run(start_job(project, rounds=ROUNDS, seed=seed))).view.model_digest for seed in (1, 2)
        ]
        runs = [project.run(start_job(project, rounds=ROUNDS, seed=seed)) for seed in (1, 2)]
        together = [completed(run).view.model_digest for run in runs]
    assert together == alone
    assert alone[0] != alone[1]


def test_two_projects_with_sites_of_one_name_do_not_meet(hub: DeployedHub, client: Hub, tmp_path: Path) -> None:
    answers = {"one": honest(step=1.0), "two": honest(step=5.0)}
    projects = {name: client.projects.create(f"apart-{name}", schema={"kind": "open"}) for name in answers}
    with (
        site(projects["one"], "north", tmp_path / "1", answers["one"]),
        site(projects["one"], "south", tmp_path / "1", answers["one"]),
        site(projects["two"], "north", tmp_path / "2", answers["two"]),
        site(projects["two"], "south", tmp_path / "2", answers["two"]),
    ):
        runs = {name: project.run(start_job(project)) for name, project in projects.items()}
        for name, run in runs.items():
            completed(run)
            _, arrays = read_tensors(run.model.download(tmp_path / f"{name}.safetensors"))
            assert np.all(arrays["bias"] == (1.0 if name == "one" else 5.0))


def test_an_aggregator_that_hangs_is_not_missed(hub: DeployedHub, client: Hub, tmp_path: Path) -> None:
    project = client.projects.create("halved", schema={"kind": "open"})
    large = {"weight": np.zeros((256, 256), np.float32)}
    pid = hub.hub.supervisor.pids()["aggregator"]
    with site(project, "north", tmp_path, honest(1, 1.0)), site(project, "south", tmp_path, honest(3, 5.0)):
        os.kill(pid, signal.SIGSTOP)
        try:
            run = completed(project.run(start_job(project, large, rounds=3)))
        finally:
            os.kill(pid, signal.SIGCONT)
    _, arrays = read_tensors(run.model.download(tmp_path / "model.safetensors"))
    assert np.all(arrays["weight"] == 12.0)


def test_a_run_goes_on_at_the_sibling_of_a_coordinator_that_is_gone(hub: DeployedHub, tmp_path: Path) -> None:
    """The last test of this hub, which has one coordinator less from here on."""
    check_takeover(hub, tmp_path, "lasting", hub.kill_for_good)
