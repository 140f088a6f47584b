"""A run in one process ends in the bits of the true services, keeps its keys, and is taken up where it broke off."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import PrivacyTerms, Task, TaskKind
from hanse_schemas.job import Job, check_job
from hanse_workflows import RunFailure, Verbs, Workflow, first_model, gather, reduce
from hanse_workflows.averaging import federated_averaging
from hanse_workflows.memory import Journal, Made, conduct
from hanse_workflows.round_asks import training
from hanse_workflows.round_end import RoundEnds
from hanse_workflows.round_state import RoundState
from hanse_workflows.rounds import train
from hanse_workflows.workflow import workflow_of
from installed_package import WINSORIZED, WINSORIZED_ENTRY, install
from simulation.played import play
from unit.workflows.memory_sites import LinearSite, encoded

SITES = 4
JOB: dict[str, Any] = {
    "rounds": 3, "model": {"name": "linear"}, "seed": 7, "participants": {"minimum": SITES, "deadline": 600.0},
}  # fmt: skip
JOBS: dict[str, dict[str, Any]] = {
    "plain": {},
    "masked": {"secure_aggregation": {"mode": "compensator"}},
    "a share of the sites": {"participants": {"minimum": 2, "fraction": 0.5, "deadline": 600.0}},
    "a server optimizer": {"strategy": {"optimizer": {"name": "adam", "lr": 0.02}}},
    "a median": {"strategy": {"reduction": {"name": "median"}}},
    "clipped updates": {"strategy": {"reduction": {"name": "norm_clipping", "norm": 0.2}}},
    "stopped early": {"rounds": 9, "stop": {"metric": "loss", "mode": "min", "target": 1.0}},
    "cyclic": {"workflow": "cyclic_weight_transfer"},
}


def job_of(**changes: Any) -> Job:
    return check_job({**JOB, **changes})


def sites() -> dict[str, LinearSite]:
    return {f"site-{number}": LinearSite(number) for number in range(SITES)}


@pytest.mark.parametrize("name", JOBS)
def test_a_run_in_memory_ends_in_the_bits_of_the_true_services(name: str, tmp_path: Path) -> None:
    job = {**JOB, **JOBS[name]}
    simulated = play(tmp_path, job, sites=SITES)
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


def test_a_run_that_was_over_is_told_again_from_its_journal() -> None:
    journal = Journal()
    first = conduct(job_of(), sites(), journal=journal)
    assert conduct(job_of(), sites(), journal=journal) == first


def test_bytes_of_a_first_model_that_the_job_does_not_name_are_refused() -> None:
    with pytest.raises(HanseError, match="initial: '3 bytes' is not absent, for the job names no initial_model"):
        conduct(job_of(), sites(), initial=b"abc")


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


async def careless(run: Verbs) -> None:
    """Trains at two sites of one round under the same keys."""
    model = await first_model(run)
    for name in await run.participants("r1-participants"):
        asked = replace(training(run.job, (name,), 1, model), needed=1)
        answers = (await gather(run, "r1-train", asked)).answers
        model = (await reduce(run, "r1-reduce", round=1, answers=answers, model=model, needed=1)).model


def test_a_key_that_is_used_twice_ends_the_run() -> None:
    with pytest.raises(RunFailure, match="step r1-train: the workflow has used this key already") as raised:
        conduct(job_of(workflow="careless"), sites(), workflow=Workflow(careless))
    assert raised.value.code is ErrorCode.STEP_CHANGED


def test_another_job_over_the_journal_of_a_run_is_told_apart() -> None:
    journal = Journal()
    conduct(job_of(), sites(), journal=journal)
    with pytest.raises(RunFailure, match="the run's journal has it with fingerprint") as raised:
        conduct(job_of(seed=8), sites(), journal=journal)
    assert raised.value.code is ErrorCode.STEP_CHANGED


def test_a_site_that_fails_is_named_with_its_reason() -> None:
    class Failing(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            if task.step.startswith("r2-train"):
                raise HanseError(ErrorCode.TRAINING_FAILED, "the loss is not finite")
            return super().work(task, objects)

    with pytest.raises(RunFailure, match=r"site-1 failed \(the loss is not finite\)") as raised:
        conduct(job_of(), {**sites(), "site-1": Failing(1)})
    assert raised.value.code is ErrorCode.QUORUM


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"metrics": {"loss": float("nan")}}, r"metrics.loss: .* finite"),
        ({"examples": -3}, r"examples: .* \(given -3\)"),
    ],
)
def test_an_answer_that_is_no_result_is_a_failure_of_its_site(answer: dict[str, Any], reason: str) -> None:
    class Wrong(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            return replace(super().work(task, objects), **answer)

    with pytest.raises(RunFailure, match=f"site-1 failed \\({reason}"):
        conduct(job_of(), {**sites(), "site-1": Wrong(1)})


def test_a_metric_however_large_leaves_the_mean_finite() -> None:
    class Loud(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            return replace(super().work(task, objects), metrics={"loss": 1.7e308})

    run = conduct(job_of(), {name: Loud(number) for number, name in enumerate(sites())})
    assert run.metrics["loss"] == 1.7e308


def test_a_site_with_a_name_that_no_participant_has_is_refused() -> None:
    with pytest.raises(HanseError, match=r"sites: 'Site A' is not a name of lower-case letters"):
        conduct(job_of(), {**sites(), "Site A": LinearSite(9)})


def test_a_job_that_must_preserve_utility_is_refused_where_it_does_not() -> None:
    with pytest.raises(HanseError, match="utility_preserving"):
        conduct(job_of(utility_preserving=True, **JOBS["a median"]), sites())


@pytest.mark.parametrize("key", ["R1", "r1_train", "", "r" * 65, "r1\n"])
def test_a_key_that_a_hub_would_not_take_is_refused(key: str) -> None:
    async def conduct_it(run: Verbs) -> None:
        await run.participants(key)

    with pytest.raises(RunFailure, match="a key has 1 to 64 lower-case letters, digits and hyphens"):
        conduct(job_of(), sites(), workflow=Workflow(conduct_it))


@pytest.mark.parametrize("outcome", [{"pair": (1, 2)}, {"by": {1: 2}}, {"loss": float("inf")}, {"names": {"a"}}])
def test_an_outcome_that_a_replay_would_read_otherwise_is_refused(outcome: dict[str, Any]) -> None:
    async def once(run: Verbs) -> None:
        async def do() -> dict[str, Any]:
            return outcome

        await run.once("mine", {}, do)

    with pytest.raises(RunFailure, match="step mine: its outcome is not the same after a replay"):
        conduct(job_of(), sites(), workflow=Workflow(once))


@pytest.mark.parametrize("asked", [{"rate": float("nan")}, {"what": object()}, {"mixed": {1, "a"}}])
def test_a_question_without_a_fingerprint_is_refused(asked: dict[str, Any]) -> None:
    async def once(run: Verbs) -> None:
        await run.once("mine", asked, NotImplemented)

    with pytest.raises(RunFailure, match="what a step asks has no fingerprint: "):
        conduct(job_of(), sites(), workflow=Workflow(once))


def test_a_run_goes_on_from_the_model_that_another_has_made() -> None:
    first = conduct(job_of(), sites())
    further = job_of(initial_model=first.digest)
    assert conduct(further, sites(), initial=first.model).digest == conduct(job_of(rounds=6), sites()).digest
    with pytest.raises(RunFailure, match="the given bytes are not those of"):
        conduct(further, sites(), initial=conduct(job_of(seed=8), sites()).model)
    with pytest.raises(RunFailure, match="no bytes are given for"):
        conduct(further, sites())


def test_too_few_sites_are_told_at_once() -> None:
    with pytest.raises(RunFailure, match="the job's minimum is 5"):
        conduct(job_of(participants={"minimum": 5}), sites())


def test_noise_of_sites_is_refused_for_no_ledger_stands_behind_it() -> None:
    privacy = {"placement": "local", "mechanism": "gaussian", "epsilon": 1.0}
    with pytest.raises(HanseError, match=r"privacy.placement: 'local' is not central, in a run in memory"):
        conduct(job_of(privacy=privacy), sites())


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_noise_that_would_not_be_in_the_model_is_refused_as_on_a_hub(weighting: str) -> None:
    """A masked sum has no place for the hub's noise: the run ended with a model that had none."""
    privacy = {"placement": "central", "mechanism": "gaussian", "epsilon": 1.0}
    masked = JOBS["masked"] if weighting == "uniform" else {}
    with pytest.raises(HanseError, match="central") as raised:
        conduct(job_of(privacy=privacy, weighting=weighting, **masked), sites())
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_noise_that_sites_draw_for_each_other_is_refused_for_they_exchange_nothing_here() -> None:
    privacy = {"placement": "distributed", "mechanism": "laplace", "noise": "oblivious", "epsilon": 1.0}
    job = job_of(privacy=privacy, weighting="uniform", **JOBS["masked"])
    with pytest.raises(RunFailure, match="sites exchange keys or noise in it, which a run in memory does not"):
        conduct(job, sites(), sites_add_noise=True)


def test_sites_that_add_their_noise_are_told_what_noise_the_job_wants() -> None:
    """The caller stands for these sites: a rehearsal, in which nothing leaves."""
    asked: list[PrivacyTerms | None] = []

    class Noisy(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            if task.kind is TaskKind.TRAIN:
                asked.append(task.privacy)
            return super().work(task, objects)

    job = job_of(privacy={"placement": "local", "mechanism": "gaussian", "epsilon": 1.0})
    conduct(job, {name: Noisy(number) for number, name in enumerate(sites())}, sites_add_noise=True)
    assert [terms and (terms.round, terms.active) for terms in asked] == [
        (n, SITES) for n in (1, 2, 3) for _ in sites()
    ]


def test_a_workflow_that_is_not_installed_is_refused_with_those_that_are() -> None:
    with pytest.raises(HanseError, match=r"workflow: 'federated_magic' is no workflow .*cyclic_weight_transfer"):
        conduct(job_of(workflow="federated_magic"), sites())


def test_cyclic_transfer_refuses_masks_for_a_sum_of_one_is_no_secret() -> None:
    with pytest.raises(HanseError, match=r"secure_aggregation.mode: 'compensator' is not absent"):
        conduct(job_of(workflow="cyclic_weight_transfer", **JOBS["masked"]), sites())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"participants": {"minimum": 2, "quorum": 0.5}}, r"participants.quorum: 0.5 is not 1 "),
        ({"utility_preserving": True}, r"utility_preserving: True is not false"),
        ({"strategy": {"reduction": {"name": "krum", "byzantine": 1}}}, r"krum takes 5 updates at least"),
        (
            {
                "model": {"name": "mlp", "hidden": [3], "batch_norm": True},
                "train": {"algorithm": {"name": "fedtan"}},
            },
            r"train.algorithm.name: 'fedtan' is not one without sums among sites",
        ),
    ],
)
def test_cyclic_transfer_refuses_what_needs_several_sites_at_once(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HanseError, match=message) as raised:
        workflow_of(job_of(workflow="cyclic_weight_transfer", **changes))
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_a_workflow_that_is_no_async_function_is_refused_where_it_is_made() -> None:
    with pytest.raises(HanseError, match="is not an async function over `Verbs`"):
        Workflow(lambda _: None)  # type: ignore[arg-type, return-value]


PAIRWISE = {"secure_aggregation": {"mode": "pairwise", "threshold": 3}, "weighting": "uniform"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "perceptron"}}, r"model: .*perceptron"),
        ({"train": {"epochs": 0}}, r"train: epochs: "),
        ({"strategy": {"reduction": {"name": "krum", "byzantine": 1}}}, r"krum takes 5 updates at least"),
        ({"strategy": {"reduction": {"name": "fednova"}}, "train": {"optimizer": {"name": "adam"}}}, r"fednova with"),
        ({"secure_aggregation": {"mode": "compensator", "bits": 32, "bound": 1e9}}, r"secure_aggregation.bound"),
        (PAIRWISE | {"participants": {"minimum": 6}}, r"threshold: 3 is not more than half of the 6 participants"),
        (PAIRWISE | {"participants": {"minimum": 3}}, r"threshold: 3 is not more than half of the 6 participants"),
    ],
)
def test_what_a_hub_refuses_at_submission_is_refused_in_memory(changes: dict[str, Any], message: str) -> None:
    six = {f"site-{number}": LinearSite(number) for number in range(6)}
    with pytest.raises(HanseError, match=message):
        conduct(job_of(**changes), six)


@pytest.mark.parametrize("digest", ["a" * 64, "b" * 64])
def test_code_that_is_not_the_jobs_is_a_failure_of_its_site(digest: str) -> None:
    class Coded(LinearSite):
        def work(self, task: Task, objects: Mapping[str, bytes]) -> Made:
            return replace(super().work(task, objects), code_digest=digest)

    job = job_of(code={"name": "ours", "digest": "a" * 64})
    coded = {name: Coded(number) for number, name in enumerate(sites())}
    if digest == job.code.digest:  # type: ignore[union-attr]
        lineage = conduct(job, coded).lineage
        assert lineage is not None
        assert lineage.code_digests == (digest,)
        return
    with pytest.raises(RunFailure, match=f"code_digest: {digest} is not that of the job's code, {'a' * 64}"):
        conduct(job, coded)


def test_lineage_names_the_workflow_that_has_run() -> None:
    async def mine(run: Verbs) -> None:
        await federated_averaging(run)

    for workflow, name in ((None, "federated_averaging"), (Workflow(mine), "mine")):
        lineage = conduct(job_of(), sites(), workflow=workflow).lineage
        assert lineage is not None
        assert lineage.workflow == name


def test_a_workflow_that_has_the_name_of_an_installed_one_is_refused() -> None:
    async def cyclic_weight_transfer(run: Verbs) -> None:
        raise AssertionError(run)

    with pytest.raises(HanseError, match=r"workflow: 'cyclic_weight_transfer' is not a name of its own, for workflow "):
        conduct(job_of(), sites(), workflow=Workflow(cyclic_weight_transfer))


def test_a_job_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Job] = []
    monkeypatch.setattr("hanse_workflows.averaging.workflow", Workflow(federated_averaging, checked.append))
    conduct(job_of(), sites())
    assert len(checked) == 1


def test_what_speaks_against_a_first_model_is_told_as_on_a_hub() -> None:
    first, told = conduct(job_of(), sites()), list[str]()
    conduct(
        job_of(initial_model=first.digest), sites(), initial=first.model,
        told=lambda kind, _, data: told.append(str(data.get("warning"))) if kind == "note" else None,
    )  # fmt: skip
    assert len(told) == 1
    assert "so it is not the linear that the job describes" in told[0]


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
