"""Which jobs a sweep runs, how its values are written, and what a run of it costs."""

from __future__ import annotations

import math
from typing import Any

import pytest

import hanse
from hanse.cli.sweep import parse_over
from hanse.sweeps import Foreseen, Span, plan_trials
from hanse_fabric.errors import HanseError
from hanse_privacy.report import whole_epsilon
from hanse_schemas.job import Job
from unit.hanse.scripted_hub import ScriptedHub, project_view, run_view

JOB = {"rounds": 3, "model": {"name": "mlp"}, "train": {"optimizer": {"name": "sgd", "lr": 0.5}}, "seed": 4}
RATES = {"train.optimizer.lr": [0.01, 0.1], "model.hidden": [[8], [16, 4]]}
PRIVATE = {"placement": "local", "mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0, "delta": 1e-5}


def test_all_combinations_are_jobs_of_their_own() -> None:
    trials = plan_trials(JOB | {"name": "by night", "tags": ["mine"]}, RATES)
    assert [dict(trial.settings) for trial in trials] == [
        {"train.optimizer.lr": rate, "model.hidden": hidden} for rate in (0.01, 0.1) for hidden in ([8], [16, 4])
    ]
    last = trials[-1].job
    assert last["train"] == {"optimizer": {"name": "sgd", "lr": 0.1}}
    assert last["model"] == {"name": "mlp", "hidden": [16, 4]}
    assert last["name"] == "by night: lr=0.1, hidden=[16, 4]"
    assert last["tags"] == ["mine", trials[-1].sweep, trials[-1].trial]
    assert len({trial.sweep for trial in trials}) == 1
    assert len({trial.trial for trial in trials}) == 4


def test_a_job_has_the_same_tag_in_a_larger_sweep_under_another_name_and_another_one_with_another_seed() -> None:
    small = plan_trials(JOB, {"train.optimizer.lr": [0.01, 0.1]})
    large = plan_trials(JOB | {"name": "again"}, {"train.optimizer.lr": [1.0, 0.1, 0.01]})
    assert [trial.trial for trial in large[:0:-1]] == [trial.trial for trial in small]
    assert large[0].sweep == small[0].sweep
    other = plan_trials(JOB | {"seed": 5}, {"train.optimizer.lr": [0.01, 0.1]})
    assert {trial.trial for trial in other}.isdisjoint(trial.trial for trial in small)
    assert other[0].sweep != small[0].sweep


def test_draws_follow_their_seed_and_are_never_the_same_twice() -> None:
    over = {"train.optimizer.lr": Span(1e-4, 1.0, log=True), "train.epochs": Span(1, 5), "train.batch_size": [8, 16]}
    trials = plan_trials(JOB, over, draws=40, seed=3)
    assert trials == plan_trials(JOB, over, draws=40, seed=3)
    assert trials != plan_trials(JOB, over, draws=40, seed=4)
    assert len({trial.trial for trial in trials}) == 40
    rates = [trial.settings["train.optimizer.lr"] for trial in trials]
    assert all(1e-4 <= rate <= 1.0 for rate in rates)
    assert 8 <= sum(rate < 1e-2 for rate in rates) <= 32  # half of the orders of magnitude
    assert {trial.settings["train.epochs"] for trial in trials} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("over", "draws", "message"),
    [
        ({}, None, "one setting at least"),
        ({"name": ["a", "b"]}, None, "over: 'name' is not a setting of a job"),
        ({"train..lr": [1, 2]}, None, "is not a setting of a job"),
        ({"rounds": 3}, None, "is not a list of values"),
        ({"rounds": "12"}, None, "is not a list of values"),
        ({"rounds": [3]}, None, "'1 runs' is not 2 to 1000"),
        ({"rounds": [3, 3]}, None, "each value once"),
        ({"rounds": [1, 0]}, None, "rounds"),
        ({"roundz": [1, 2]}, None, "roundz"),
        ({"rounds.of": [1, 2]}, None, "a section of the job, which this is not"),
        ({"rounds": list(range(1, 40)), "seed": list(range(40))}, None, "'1560 runs' is not 1000 at most"),
        ({"train.optimizer.lr": Span(0.1, 1)}, None, "where runs are not drawn"),
        ({"train.optimizer.lr": Span(1, 0.1)}, 2, "low < high"),
        ({"train.optimizer.lr": Span(0, 1, log=True)}, 2, "0 < low < high"),
        ({"train.optimizer.lr": Span(0, math.inf)}, 2, "low < high"),
        ({"rounds": [1, 2]}, 3, "no more than there are combinations: 2 were found"),
        ({"rounds": [1, 2]}, 1, "is not 2 to 1000"),
    ],
)
def test_what_is_no_sweep_is_refused(over: dict[str, Any], draws: int | None, message: str) -> None:
    with pytest.raises(HanseError, match=message):
        plan_trials(JOB, over, draws=draws)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=0.01,1e-3,2", [0.01, 0.001, 2]),
        ("a.b=sgd, adam", ["sgd", "adam"]),
        ("a.b={name: sgd, lr: 1},null,[8, 4]", [{"name": "sgd", "lr": 1}, None, [8, 4]]),
        ("a.b=true", [True]),
        ("a.b=1e-4..0.1:log", Span(1e-4, 0.1, log=True)),
        ("a.b=1..8", Span(1, 8)),
        ("a.b=0.5..2.5", Span(0.5, 2.5)),
    ],
)
def test_values_are_written_as_in_yaml_and_spans_by_their_ends(text: str, values: Any) -> None:
    assert parse_over(text) == ("a.b", values)


@pytest.mark.parametrize("text", ["a.b", "=1", "a.b=", "a.b=[1", "a.b=x..y"])
def test_what_has_no_values_is_refused(text: str) -> None:
    with pytest.raises(HanseError, match="--over"):
        parse_over(text)


@pytest.mark.parametrize(
    ("more", "epsilon"),
    [
        ({}, 4.0),
        ({"site_epsilon": {"north": 6.0}}, 6.0),
        (
            {"mechanism": "laplace", "metrics": {"epsilon": 0.5, "bounds": {"accuracy": 1.0}}},
            4.0 + 3 * 0.5 + 2 * 0.5,
        ),
        ({"mechanism": "dp_sgd", "metrics": {"epsilon": 0.5, "bounds": {"accuracy": 1.0}}}, None),
        ({"mechanism": "dp_sgd", "epsilon": None, "noise_multiplier": 1.0}, None),
    ],
)
def test_a_runs_cost_is_the_most_that_a_site_is_charged(more: dict[str, Any], epsilon: float | None) -> None:
    job = Job.model_validate(JOB | {"privacy": PRIVATE | more, "evaluate": {"every": 2}})
    assert whole_epsilon(job) == epsilon


def test_a_run_without_privacy_costs_nothing_that_could_be_told() -> None:
    assert whole_epsilon(Job.model_validate(JOB)) is None


def foreseen(hub: ScriptedHub, job: dict[str, Any], *, again: bool = False) -> Foreseen:
    with hanse.connect(hub.url, api_key="hanse_abc_secret") as client:
        return client.projects.get("triage").foresee(job, {"rounds": [2, 3]}, again=again)


def test_a_run_that_was_cancelled_is_an_outcome_unless_it_is_wanted_again(hub: ScriptedHub) -> None:
    former = plan_trials(JOB, {"rounds": [2, 3]})[0]
    hub.answer("GET", "/v1/projects/triage", (200, project_view()))
    hub.answer("POST", "/v1/projects/triage/check", (200, {"valid": True, "warnings": []}))
    listed = [
        run_view("cancelled", run="run000000001", tags=[former.sweep, former.trial]),
        run_view("completed", run="run000000002", tags=["trial:of-another-sweep"]),
    ]
    hub.answer("GET", "/v1/projects/triage/runs", (200, {"runs": listed}))
    found = foreseen(hub, JOB)
    assert {tag: run.run for tag, run in found.there.items()} == {former.trial: "run000000001"}
    assert [trial.settings for trial in found.new] == [{"rounds": 3}]
    assert len(foreseen(hub, JOB, again=True).new) == 2


def test_what_a_hub_of_before_does_not_tell_is_agreed_to_as_any_cost(hub: ScriptedHub) -> None:
    """So is what depends on sites' data. Nothing is submitted without a word."""
    hub.answer("GET", "/v1/projects/triage", (200, project_view()))
    hub.answer("GET", "/v1/projects/triage/runs", (200, {"runs": []}))
    hub.answer("POST", "/v1/projects/triage/check", (200, {"valid": True, "warnings": []}))
    private = JOB | {"privacy": PRIVATE}
    found = foreseen(hub, private)
    assert found.epsilon == math.inf
    assert "how much depends on their data" in found.said
    with hanse.connect(hub.url, api_key="hanse_abc_secret") as client:
        for epsilon in (None, 1000.0, math.nan):
            with pytest.raises(HanseError, match="expected inf at least"):
                client.projects.get("triage").sweep(private, {"rounds": [2, 3]}, epsilon=epsilon)
        assert not hub.calls("POST", "/v1/projects/triage/runs")
        with pytest.raises(HanseError):  # the control: this hub has no more to say, and was asked to run
            client.projects.get("triage").sweep(private, {"rounds": [2, 3]}, epsilon=math.inf)
    assert len(hub.calls("POST", "/v1/projects/triage/runs")) == 1
