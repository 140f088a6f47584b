"""A run in one process ends in the bits of the true services, and is taken up where it broke off."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import invalid
from hanse_fabric.messages import Task, TaskKind
from hanse_schemas.job import check_job
from hanse_workflows import RunFailure, Verbs, Workflow, first_model
from hanse_workflows.averaging import federated_averaging
from hanse_workflows.memory import Journal, Made, conduct
from hanse_workflows.round_asks import training
from hanse_workflows.round_end import RoundEnds
from hanse_workflows.round_state import RoundState
from hanse_workflows.rounds import train
from installed_package import WINSORIZED, WINSORIZED_ENTRY, install
from simulation.played import play
from simulation.trainer import Trainer
from unit.workflows.memory_sites import JOB, SITES, LinearSite, encoded, job_of, sites

JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "masked": {"secure_aggregation": {"mode": "compensator"}},
    "masked and rotated": {
        "secure_aggregation": {"mode": "compensator", "bits": 16, "rotate": True},
        "weighting": "uniform",
    },
    "masked, a part of the parameters": {
        "secure_aggregation": {"mode": "compensator"},
        "codec": {"up": [{"name": "random_k", "fraction": 0.5}]},
    },
    "masked and rotated, a part": {
        "secure_aggregation": {"mode": "compensator", "bits": 16, "rotate": True},
        "codec": {"up": [{"name": "random_k", "fraction": 0.5}]},
        "weighting": "uniform",
    },
    "masked, with a mask of signs": {
        "secure_aggregation": {"mode": "compensator"},
        "strategy": {"sign_mask": {"tau": 0.9}, "optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.9}},
    },
    "masked in 16 bits, with a mask of signs": {
        "secure_aggregation": {"mode": "compensator", "bits": 16, "rotate": True},
        "weighting": "uniform",
        "strategy": {"sign_mask": {"tau": 0.9}},
    },
    "masked in 16 bits": {"secure_aggregation": {"mode": "compensator", "bits": 16}, "weighting": "uniform"},
    "a share of the sites": {"participants": {"minimum": 2, "fraction": 0.5, "deadline": 600.0}},
    "a server optimizer": {"strategy": {"optimizer": {"name": "adam", "lr": 0.02}}},
    "a median": {"strategy": {"reduction": {"name": "median"}}},
    "clipped updates": {"strategy": {"reduction": {"name": "norm_clipping", "norm": 0.2}}},
    "stopped early": {"rounds": 9, "stop": {"metric": "loss", "mode": "min", "target": 1.0}},
    "the best one kept": {
        "rounds": 9,
        "stop": {"metric": "loss", "patience": 2},
        "keep": "best",
        "checkpoint_every": 0,
        "strategy": {"optimizer": {"name": "adam", "lr": 0.5}},
    },
    "cyclic": {"workflow": "cyclic_weight_transfer"},
}


@pytest.mark.parametrize("name", JOBS)
def test_a_run_in_memory_ends_in_the_bits_of_the_true_services(name: str, tmp_path: Path) -> None:
    # Evaluations that nothing follows from are one, at the end.
    job = {**JOB, **({} if "stop" in JOBS[name] else {"evaluate": {"every": 3}}), **JOBS[name]}
    simulated = play(tmp_path, job, sites=SITES, worker=lambda clock, number: Trainer(clock, number, 0.1))
    assert conduct(check_job(job), sites()).digest == simulated.record.model_digest


def test_all_jobs_make_different_models() -> None:
    """The control: digests tell the jobs apart. Masked sums are those of the ring, which rounds."""
    digests = {name: conduct(job_of(**changes), sites()).digest for name, changes in JOBS.items()}
    assert len(set(digests.values())) == len(digests)


def test_a_run_that_broke_off_anywhere_goes_on_at_the_step_that_was_open() -> None:
    whole = conduct(job_of(), sites()).digest
    for last in range(1 + 3 * 2 * SITES):  # one site makes the first model; all train and evaluate in three rounds
        journal = Journal()
        tired = sites()
        broken = {name: Breaking(site, last) for name, site in tired.items()}
        Breaking.left = last
        with pytest.raises(KeyboardInterrupt):
            conduct(job_of(), broken, journal=journal)
        done_before = {step for site in tired.values() for step in site.done} & journal.outcomes.keys()
        for site in tired.values():
            site.done.clear()
        assert conduct(job_of(), tired, journal=journal).digest == whole
        assert not done_before & {step for site in tired.values() for step in site.done}


class WideSite(LinearSite):
    """A site with a model that is too large to be inside a reference."""

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        made = Made(encoded(np.full(100_000, self.weight)), 1, {"loss": 0.0})
        return replace(made, update=None) if task.kind is TaskKind.EVALUATE else made

    weight = 0.5


def test_a_run_of_a_large_model_that_broke_off_finds_its_objects_again() -> None:
    wide = {name: WideSite(0) for name in sites()}
    whole = conduct(job_of(), wide)
    journal = Journal()
    Breaking.left = 1 + 3 * SITES  # within the second round
    with pytest.raises(KeyboardInterrupt):
        conduct(job_of(), {name: Breaking(site, 0) for name, site in wide.items()}, journal=journal)
    assert conduct(job_of(), wide, journal=journal) == whole


@pytest.mark.parametrize("published", [False, True])
def test_a_workflow_trains_in_every_round_from_the_model_that_it_began_with(published: bool) -> None:
    async def from_the_first(run: Verbs) -> None:
        model, everybody, ends = await first_model(run), await run.participants("p"), RoundEnds(run, None)
        for number in range(1, run.job.rounds + 1):
            trained = await train(run, None, training(run.job, everybody, number, model), RoundState())
            await ends.end(number, everybody, trained, RoundState())
            if number == 1 and published:
                model = trained.reduction.model

    wide = {name: WideSite(0) for name in sites()}
    job = job_of(checkpoint_every=1 if published else 0)
    assert conduct(job, wide, workflow=Workflow(from_the_first)).model is not None


def test_a_site_that_fails_in_memory_says_what_to_do_as_it_does_on_a_hub() -> None:
    class Refusing(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            if task.kind is TaskKind.TRAIN:
                raise invalid("top_k.k", 300, "at most 4", hint="give a fraction instead")
            return super().work(task, objects)

    with pytest.raises(RunFailure, match=r"top_k\.k: 300 is not at most 4 \(give a fraction instead\)"):
        conduct(job_of(), {f"site-{number}": Refusing(number) for number in range(SITES)})


def test_a_run_that_was_over_is_told_again_from_its_journal() -> None:
    journal = Journal()
    first = conduct(job_of(), sites(), journal=journal)
    assert conduct(job_of(), sites(), journal=journal) == first


class Breaking:
    """A site whose process is interrupted when so many tasks are done, at whichever site."""

    left = 0

    def __init__(self, site: LinearSite, last: int) -> None:
        self._site = site

    def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
        if Breaking.left == 0:
            raise KeyboardInterrupt
        Breaking.left -= 1
        return self._site.work(task, objects)


def test_ctrl_c_ends_a_run_within_the_task_that_is_under_way() -> None:
    class Interrupted(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError(f"went on with {task.step}")

    # A program that a shell has started in the background ignores the signal: here it is as in the foreground.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            conduct(job_of(), {name: Interrupted(0) for name in sites()})
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_in_a_notebook_is_conducted_while_its_event_loop_waits() -> None:
    async def cell() -> str | None:
        digest = conduct(job_of(), sites()).digest
        await asyncio.sleep(0)  # the notebook's own loop goes on
        return digest

    assert asyncio.run(cell()) == conduct(job_of(), sites()).digest


def test_a_run_goes_on_from_the_model_that_another_has_made() -> None:
    first = conduct(job_of(), sites())
    further = job_of(initial_model=first.digest)
    assert conduct(further, sites(), initial=first.model).digest == conduct(job_of(rounds=6), sites()).digest
    with pytest.raises(RunFailure, match="the given bytes are not those of"):
        conduct(further, sites(), initial=conduct(job_of(seed=8), sites()).model)
    with pytest.raises(RunFailure, match="no bytes are given for"):
        conduct(further, sites())


def test_lineage_names_the_workflow_that_has_run() -> None:
    async def mine(run: Verbs) -> None:
        await federated_averaging(run)

    for workflow, name in ((None, "federated_averaging"), (Workflow(mine), "mine")):
        lineage = conduct(job_of(), sites(), workflow=workflow).lineage
        assert lineage is not None
        assert lineage.workflow == name


def test_a_run_has_one_digest_of_a_plug_in_though_its_file_changes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is what this process has loaded. Another process that loads the changed file has another digest."""
    folder = install(tmp_path / "site", "winsorized", {"winsorized": WINSORIZED}, WINSORIZED_ENTRY)
    monkeypatch.syspath_prepend(folder)

    class Upgrading(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            (folder / "winsorized.py").write_text(WINSORIZED + f"\n# {task.step}\n")
            return super().work(task, objects)

    found: list[dict[str, str] | None] = []
    conduct(
        job_of(strategy={"reduction": {"name": "winsorized_mean"}}),
        {name: Upgrading(number) for number, name in enumerate(sites())},
        published=lambda _, lineage: found.append(lineage.plugins),
    )
    assert len(found) == 3
    assert found[0]
    assert found == [found[0]] * 3
