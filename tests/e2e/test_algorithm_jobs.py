"""Every algorithm from a job file over real processes; those that keep state end with the same bits whoever is killed.

One deployment serves all: first processes die in the middle of the runs that keep state, then the others are
undisturbed. Each test looks at one of the runs. Jobs that say different things are one run, which has the bits of the
same run in memory, where each of them alone is another.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from e2e.algorithm_jobs import (
    AT_SITES,
    IMPOSSIBLE,
    JOBS,
    MLP,
    NOISE_OF_HUB,
    OPTIMIZERS,
    REDUCTIONS,
    ROUNDS,
    SAME,
    SAMPLED,
    SCHEMA,
    SITES,
    STATEFUL,
    TOGETHER,
    job,
    together,
    write_images,
)
from e2e.digits_runs import files_of
from e2e.jobs_in_memory import digest_in_memory, draws_of, models_in_memory, named_as
from e2e.killed import kill
from e2e.one_site_more import online
from e2e.rejoining import REJOINED, Absent, last_seen, participants, paused_after
from e2e.sites_online import wait_online
from hanse.embedded.deployment import Deployment
from hanse.hub import Run
from hanse_coordinator.runs.journal import JournalEntry
from hanse_fabric.bus.authority import BusAuthority
from hanse_fabric.bus.nats import NatsBus
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.plugins import ALGORITHMS, SERVER_OPTIMIZERS, STRATEGIES, built_in
from hanse_fabric.subjects import JOURNAL, Role
from hanse_fabric.tensors.file import encode_tensors, layout_like, read_tensors

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

FEWER = 2
"""Rounds in which a job without state is another than the others."""


def is_long(name: str) -> bool:
    """Whether a job has state, or changes in its last round, or is compared with one that does."""
    like = set(STATEFUL).union(*(group for group in SAME if group & set(STATEFUL)), ["batch norm"])
    return name in like or "frozen statistics" in name


def as_run(body: dict[str, Any], *names: str) -> dict[str, Any]:
    """What is evaluated changes no bit; the examples are evaluated after each round."""
    rounds = ROUNDS if any(map(is_long, names)) else FEWER
    return body | {"rounds": rounds, "evaluate": {"every": rounds}}


ALONE = {name: as_run(body, name) for name, body in {**JOBS, **NOISE_OF_HUB}.items()}
RUN_OF = {name: " and ".join(names) for names in TOGETHER for name in names}
"""By job, the run that does it with others."""
RUNS = {
    **{" and ".join(names): as_run(together(names), *names) for names in TOGETHER},
    **{name: body for name, body in ALONE.items() if name not in RUN_OF},
}
STATEFUL_RUNS = list(dict.fromkeys(RUN_OF.get(name, name) for name in STATEFUL))
PART = 0.5
"""Of each site's data: as many steps of a round as show each job, and not as many at each site."""
KILLED = ("datapod-north", "aggregator", "coordinator")


@dataclass
class Scene:
    """The deployment, and the runs.

    Attributes:
        models: the models' digests after each round.
        twins: the same of runs in memory.
        going: how many of those that keep state were in their middle, by the process that was killed then.
        taken: all runs that the hub has taken.
    """

    deployment: Deployment
    data: Path
    runs: dict[str, Run] = field(default_factory=dict)
    models: dict[str, list[str]] = field(default_factory=dict)
    twins: dict[str, list[str]] = field(default_factory=dict)
    going: dict[str, int] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @property
    def training(self) -> dict[str, Path]:
        """The sites' training data."""
        return {site: self.data / site / "train.npz" for site in SITES}

    async def submit(self, description: dict[str, Any] | Path) -> Run:
        run = await asyncio.to_thread(self.deployment.project.run, description)
        self.taken.add(run.id)
        return run


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("algorithms")
    write_images(folder / "data", PART)
    files = files_of(folder / "data", SITES)
    policy = {"workflows": ["federated_averaging", "cyclic_weight_transfer"]}
    async with Deployment(folder, "digits", files, SCHEMA, nursery=True, policy=policy) as deployment:
        scene = Scene(deployment, folder / "data")
        async with asyncio.timeout(90):
            while len(await online(deployment)) < len(SITES):  # noqa: ASYNC110 - joining has no event
                await asyncio.sleep(0.05)
        await kill_in_the_middle(scene)
        # Those that wait for each other in the middle of a task come one after another: a site has one task at a time.
        for name in sorted(RUNS.keys() - set(STATEFUL_RUNS), key=lambda name: ("fedtan" in name, name)):
            scene.runs[name] = await scene.submit(RUNS[name])
            if "fedtan" in name:
                await asyncio.to_thread(scene.runs[name].wait)
        for name, run in scene.runs.items():
            scene.models[name] = await asyncio.to_thread(models_of, run)
        yield scene


def models_of(run: Run) -> list[str]:
    """To the run's end."""
    return [event.data["digest"] for event in run.watch() if event.kind == "round-finished"]


async def kill_in_the_middle(scene: Scene) -> None:
    """Run the jobs of each kind of state at once: each is somewhere in its middle when a process dies."""
    for name in STATEFUL_RUNS:
        scene.runs[name] = await scene.submit(RUNS[name])
    runs = dict(scene.runs)
    for name, victim in zip(STATEFUL_RUNS, KILLED, strict=False):
        await reached(runs[name], "round-finished")
        await kill(scene.deployment, victim)
        scene.going[victim] = sum([not await ended(run) for run in runs.values()])
    for run in runs.values():
        await asyncio.to_thread(run.wait)


async def test_there_is_a_job_for_every_name_that_a_job_file_can_have() -> None:
    assert AT_SITES.keys() == {plugin.name for plugin in built_in(ALGORITHMS)}
    assert REDUCTIONS.keys() == {plugin.name for plugin in built_in(STRATEGIES)} - {"private_mean"}
    assert OPTIMIZERS.keys() == {plugin.name for plugin in built_in(SERVER_OPTIMIZERS)}


@pytest.mark.parametrize("name", ALONE)
async def test_every_algorithm_runs_from_its_job_file(scene: Scene, name: str) -> None:
    made = RUN_OF.get(name, name)
    run = scene.runs[made]
    assert run.state == "completed", f"{run.state}: {run.view.reason}"
    assert run.view.round == len(scene.models[made]) == RUNS[made]["rounds"]
    assert run.view.model_digest == scene.models[made][-1]
    assert 0 <= run.view.metrics["accuracy"] <= 1
    assert len(run.model.view.lineage.participants) == (2 if name in SAMPLED else len(SITES))
    # Nothing is silently something else.
    same = next((group & RUNS.keys() for group in SAME if made in group), {made})
    assert found_same(made, scene.models) == same


def found_same(name: str, models: dict[str, list[str]]) -> set[str]:
    """Those whose models are the same after as many rounds as both have."""
    return {
        other for other, its in models.items()
        if any(mine == theirs for mine, theirs in list(zip(models[name], its, strict=False))[-1:])
    }  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
async def test_the_same_job_in_memory_ends_in_the_same_bits(scene: Scene, name: str) -> None:
    """Where the hub draws noise, by its draws; where state is kept, although processes were killed in the middle."""
    assert await in_memory(scene, name) == scene.models[name]


async def test_no_job_is_silently_another(scene: Scene) -> None:
    models = {name: await in_memory(scene, name) for name in ALONE}
    for name in ALONE:
        assert found_same(name, models) == next((group for group in SAME if name in group), {name})


@pytest.mark.parametrize("names", TOGETHER, ids=" and ".join)
async def test_a_run_of_several_jobs_would_be_another_without_each_of_them(
    scene: Scene, names: tuple[str, ...]
) -> None:
    every = await in_memory(scene, " and ".join(names))
    for name in names:
        others = [other for other in names if other != name]
        without = await in_memory(scene, " and ".join(others), as_run(together(others), *others))
        (*_, (one, other)) = zip(every, without, strict=False)
        # Ditto's personal models are beside the shared one.
        assert (one == other) == (name == "algorithm ditto"), name


async def in_memory(scene: Scene, name: str, body: dict[str, Any] | None = None) -> list[str]:
    """The models' digests of a run, or of a job alone, by sites of this process. They are made once."""
    if name not in scene.twins:
        with pytest.MonkeyPatch.context() as names:
            secret = secrets.token_bytes
            if name in NOISE_OF_HUB:
                named_as(names, "digits", scene.runs[name].id)
                secret = draws_of(await journal_of(scene, scene.runs[name]))
            scene.twins[name] = await asyncio.to_thread(
                models_in_memory, body or {**ALONE, **RUNS}[name], SCHEMA, scene.training, secret=secret
            )
    return scene.twins[name]


async def journal_of(scene: Scene, run: Run) -> list[JournalEntry]:
    """As a coordinator reads it."""
    hub = scene.deployment.hub
    creds = BusAuthority(hub.state.authority).service_credentials(Role.COORDINATOR)
    assert JOURNAL.stream is not None
    bus = await NatsBus.connect(hub.bus_url, "coordinator", creds=creds)
    try:
        records = await bus.snapshot(JOURNAL.stream, JOURNAL.of(project="digits", run=run.id))
    finally:
        await bus.close()
    return [JournalEntry.decode(record.data) for record in records]


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "jobs").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
async def test_the_examples_run_as_they_are(scene: Scene, path: Path) -> None:
    run = await scene.submit(path)
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", run.view.reason
    assert run.view.metrics["accuracy"] > 0.5


@pytest.mark.parametrize(("description", "words"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_jobs_that_cannot_work_are_refused_when_they_are_submitted(
    scene: Scene, description: dict[str, Any], words: str
) -> None:
    with pytest.raises(HanseError, match=words) as raised:
        await scene.submit(description)
    assert raised.value.code is ErrorCode.INVALID_INPUT


async def test_of_a_refused_job_there_is_no_run(scene: Scene) -> None:
    assert {run.id for run in await asyncio.to_thread(scene.deployment.project.runs)} == scene.taken


async def test_algorithms_that_keep_state_end_with_the_same_bits_after_any_process_is_killed(scene: Scene) -> None:
    """That they do, the tests of all jobs say; this one, that they were in their middle each time."""
    assert scene.going.keys() == set(KILLED)
    for victim, count in scene.going.items():
        assert count > len(STATEFUL_RUNS) // 2, f"the others were over before {victim} died"


async def test_lost_or_changed_state_at_a_site_is_refused_and_the_others_go_on(scene: Scene) -> None:
    """Of three sites with control variates one loses them, another finds other entries in them."""
    run = await scene.submit(long("scaffold"))
    async with paused(run):
        (kept,) = state_of(scene, "south", run)
        kept.unlink()
        (kept,) = state_of(scene, "east", run)
        _, arrays = read_tensors(kept)
        changed = {f"{name}.more": np.array(array) for name, array in arrays.items()}
        kept.write_bytes(encode_tensors(layout_like(changed), changed))
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", run.view.reason
    assert list(run.model.view.lineage.participants) == ["north"]
    south, east = await answers(run, "south"), await answers(run, "east")
    assert {data["code"] for data in south if data["outcome"] != "done"} == {"conflict"}
    assert "control variate of its former rounds of the run is not there any more" in south[-1]["reason"]
    assert east[-1]["code"] == "invalid-input"
    assert "the model has changed" in east[-1]["reason"]


async def test_a_site_that_has_lost_its_own_layers_begins_them_anew_and_says_so(scene: Scene) -> None:
    description = long("fedavg", model={**MLP, "state": [{"layers": "output", "keep": "local"}]})
    run = await scene.submit(description)
    async with paused(run):
        for path in state_of(scene, "south", run):
            path.unlink()
    await asyncio.to_thread(run.wait)
    assert run.state == "completed", run.view.reason
    assert list(run.model.view.lineage.participants) == sorted(SITES)
    said = [data["reason"] for data in await answers(run, "south") if data.get("reason")]
    assert len(said) == 1, said
    assert "begin" in said[0]


async def test_a_first_model_of_other_entries_ends_the_run_before_its_first_round(scene: Scene) -> None:
    other = {"0.weight": np.zeros((4, 64), np.float32), "0.bias": np.zeros(4, np.float32)}
    digest = await asyncio.to_thread(scene.deployment.project.upload_model, other)
    description = long("fedavg") | {"initial_model": digest}
    run = await scene.submit(description)
    await asyncio.to_thread(run.wait)
    assert (run.state, run.view.round) == ("failed", 0)
    # All say the same, so it is said once.
    assert f"{', '.join(sorted(SITES))} failed (" in run.view.reason, run.view.reason


async def test_a_site_that_was_away_for_rounds_comes_back_and_every_bit_is_as_if_it_had_only_been_absent(
    scene: Scene,
) -> None:
    """A site of kernel-normalized networks hangs for rounds, is killed, and comes back, while processes of the hub
    die."""
    deployment = scene.deployment
    # A site that joins a round later is no absent one: SCAFFOLD's variate is then a mean of more than before.
    await asyncio.to_thread(wait_online, deployment.project, len(SITES))
    run = await scene.submit(REJOINED)
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
    made = partial(Absent, counted=counted)
    twin = await asyncio.to_thread(digest_in_memory, REJOINED, SCHEMA, scene.training, made)
    assert run.view.model_digest == twin
    present = await asyncio.to_thread(digest_in_memory, REJOINED, SCHEMA, scene.training)
    assert present != twin, "whether the site is there makes no difference, so nothing was shown"


def long(algorithm: str, **changes: Any) -> dict[str, Any]:
    """A job that goes on with whoever is left."""
    description = job(algorithm, **changes) | {"rounds": 12, "evaluate": {"every": 0}}
    return description | {"participants": {**description["participants"], "minimum": 1, "quorum": 0.3, "retries": 0}}


def state_of(scene: Scene, site: str, run: Run) -> list[Path]:
    """What a site keeps of a run: the file of its last round."""
    return sorted((scene.deployment.home(site) / "state" / run.id).glob("*.safetensors"))[-1:]


@asynccontextmanager
async def paused(run: Run) -> AsyncIterator[None]:
    """The run rests between two rounds, somewhere after its first, while inside."""
    await reached(run, "round-finished")
    await asyncio.to_thread(run.pause)
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(run.refresh)).state != "paused":  # noqa: ASYNC110 - over HTTP
            await asyncio.sleep(0.05)
    yield
    await asyncio.to_thread(run.resume)


async def answers(run: Run, site: str) -> list[dict[str, Any]]:
    """What a site answered to the run's training tasks."""
    events = await asyncio.to_thread(lambda: list(run.watch()))
    told = [event.data for event in events if event.kind == "task-answered" and event.data["participant"] == site]
    return [data for data in told if data["step"].endswith("-train")]


async def ended(run: Run) -> bool:
    return (await asyncio.to_thread(run.refresh)).state in ("completed", "failed")


async def reached(run: Run, kind: str, **data: Any) -> None:
    """Return at the first event of a kind with these data."""

    def look() -> None:
        for event in run.watch():
            if event.kind == kind and data.items() <= event.data.items():
                return
        raise AssertionError(f"the run ended without {kind}: {run.refresh().view.reason}")

    await asyncio.to_thread(look)
