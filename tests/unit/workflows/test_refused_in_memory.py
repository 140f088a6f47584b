"""What a hub refuses at submission is refused in memory, and what only a hub can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import PrivacyTerms, Task, TaskKind
from hanse_fabric.plugins import WORKFLOWS, built_in
from hanse_schemas.job import Job
from hanse_workflows import RunFailure, Verbs, Workflow
from hanse_workflows.averaging import federated_averaging
from hanse_workflows.memory import Made, conduct
from hanse_workflows.workflow import workflow_of
from simulation.league import WORKFLOWS as SIMULATED
from unit.workflows.memory_sites import SITES, LinearSite, job_of, sites

CORRELATED: dict[str, Any] = {
    "weighting": "uniform",
    "privacy": {
        "placement": "central", "mechanism": "dp_ftrl", "noise_multiplier": 1.0, "min_separation": 1,
        "matrix": {"name": "banded", "bands": 1},
    },
}  # fmt: skip
JUMPING: dict[str, Any] = {
    "train": {"algorithm": {"name": "fedltn", "jump_start": {"rounds": 1}}},
    "strategy": {
        "reduction": {"name": "overlap_mean", "jump_start": True},
        "optimizer": {"name": "look_ahead", "jump_start": True},
    },
}
MASKED: dict[str, Any] = {"secure_aggregation": {"mode": "compensator"}}


def test_bytes_of_a_first_model_that_the_job_does_not_name_are_refused() -> None:
    with pytest.raises(HanseError, match="initial: '3 bytes' is not absent, for the job names no initial_model"):
        conduct(job_of(), sites(), initial=b"abc")


def test_a_site_with_a_name_that_no_participant_has_is_refused() -> None:
    with pytest.raises(HanseError, match=r"sites: 'Site A' is not a name of lower-case letters"):
        conduct(job_of(), {**sites(), "Site A": LinearSite(9)})


def test_a_job_that_must_preserve_utility_is_refused_where_it_does_not() -> None:
    with pytest.raises(HanseError, match="utility_preserving"):
        conduct(job_of(utility_preserving=True, strategy={"reduction": {"name": "median"}}), sites())


def test_too_few_sites_are_told_at_once() -> None:
    with pytest.raises(RunFailure, match="4 participants are present after 300 s, 5 are needed"):
        conduct(job_of(participants={"minimum": 5}), sites())


def test_noise_of_sites_is_refused_for_no_ledger_stands_behind_it() -> None:
    privacy = {"placement": "local", "mechanism": "gaussian", "epsilon": 1.0}
    with pytest.raises(HanseError, match=r"privacy.placement: 'local' is not central, in a run in memory"):
        conduct(job_of(privacy=privacy), sites())


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_noise_that_would_not_be_in_the_model_is_refused_as_on_a_hub(weighting: str) -> None:
    """A masked sum has no place for the hub's noise: the run ended with a model that had none."""
    privacy = {"placement": "central", "mechanism": "gaussian", "epsilon": 1.0}
    masked = MASKED if weighting == "uniform" else {}
    with pytest.raises(HanseError, match="central") as raised:
        conduct(job_of(privacy=privacy, weighting=weighting, **masked), sites())
    assert raised.value.code is ErrorCode.INVALID_INPUT


def test_noise_that_sites_draw_for_each_other_is_refused_for_they_exchange_nothing_here() -> None:
    privacy = {"placement": "distributed", "mechanism": "laplace", "noise": "oblivious", "epsilon": 1.0}
    job = job_of(privacy=privacy, weighting="uniform", **MASKED)
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
        conduct(job_of(workflow="cyclic_weight_transfer", **MASKED), sites())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"participants": {"minimum": 2, "quorum": 0.5}}, r"participants.quorum: 0.5 is not 1 "),
        ({"participants": {"minimum": 2, "grace": 5.0}}, r"participants.grace: 5.0 is not absent"),
        ({"weighting": "uniform"}, r"weighting: 'uniform' is not examples"),
        (CORRELATED, r"privacy.mechanism: 'dp_ftrl' is not another"),
        (JUMPING, r"train.algorithm.jump_start: 'given' is not absent"),
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


def test_every_registered_workflow_is_known_to_the_simulations_and_called_what_its_function_is() -> None:
    assert {plugin.name for plugin in built_in(WORKFLOWS)} == set(SIMULATED)
    for plugin in built_in(WORKFLOWS):
        loaded = plugin.load()
        assert isinstance(loaded, Workflow)
        assert loaded.name == plugin.name


def test_a_check_that_takes_no_job_is_refused_where_the_workflow_is_made() -> None:
    with pytest.raises(HanseError, match=r"workflow: Workflow\.check\(\) cannot be called as check\(job\)"):
        Workflow(federated_averaging, lambda: None)  # type: ignore[arg-type, misc]


def test_a_function_in_place_of_a_workflow_is_refused_with_what_makes_one_of_it() -> None:
    with pytest.raises(HanseError, match=r"is not a hanse_workflows\.Workflow") as raised:
        conduct(job_of(), sites(), workflow=federated_averaging)  # type: ignore[arg-type]
    assert "Workflow(function)" in raised.value.hint


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
