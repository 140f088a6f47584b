"""What a whole run will be charged at a site, before it has begun: how much, how often, and on what it depends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.expected import expected_charges, plan_of
from hanse_fabric.messages import PrivacyTerms, TaskKind
from hanse_fabric.tensors.file import write_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.accounting.plan import ReleasePlan
from hanse_privacy.ledger import Charge
from unit.datapod.private_tasks import correlated, terms
from unit.datapod.site_actors import task

ROUNDS = 7
GIVEN = {"noise_multiplier": None, "epsilon": 3.0}
METRICS = {"metrics": {"epsilon": 0.1, "bounds": {"loss": 4.0}}}


def expected(
    section: dict[str, Any], config: dict[str, Any] | None = None, *, examples: int | None = 1000,
    units: int | None = None,
) -> list[Charge] | None:  # fmt: skip
    return expected_of(terms(**section), config, examples=examples, units=units)


def expected_of(
    given: PrivacyTerms, config: dict[str, Any] | None = None, *, examples: int | None = 1000, units: int | None = None
) -> list[Charge] | None:
    asked = task(privacy=given, config=config or {})
    return expected_charges(asked, given, ROUNDS, PrivacyPolicy(), examples=examples, units=units)


def amounts(charges: list[Charge] | None) -> list[tuple[str, float, int]]:
    assert charges is not None
    return [(charge.event.kind, charge.event.amount, charge.count) for charge in charges]


def test_each_round_is_charged_but_noise_that_is_correlated_over_the_rounds_once() -> None:
    assert amounts(expected({})) == [("laplace", 2.0, ROUNDS)]
    assert [count for _, _, count in amounts(expected_of(correlated()))] == [1]


def test_steps_that_depend_on_examples_are_known_without_them_where_the_job_gives_its_epsilon() -> None:
    """One example, sampled always, stands for all. How many people there are is as little told as the examples."""
    sized = {"mechanism": "dp_sgd"}
    assert expected(sized | {"noise_multiplier": 2.0}, examples=None) is None
    found = expected(sized | GIVEN, {"train": {"batch_size": 1}}, examples=None, units=50)
    assert found is not None
    assert [(charge.event.kind, charge.event.rate, charge.count) for charge in found] == [("gaussian", 1.0, ROUNDS)]


def test_noise_by_the_models_size_is_known_without_a_model_where_the_job_gives_its_epsilon() -> None:
    assert expected({"mechanism": "staircase", "noise_multiplier": 4.0}) is None
    found = expected({"mechanism": "staircase"} | GIVEN)
    assert found is not None
    assert [charge.count for charge in found] == [ROUNDS], "of one number, which stands for all"


def test_sampling_is_by_the_examples_or_the_people_that_there_are() -> None:
    section, config = {"mechanism": "dp_sgd", "noise_multiplier": 2.0}, {"train": {"batch_size": 10}}
    for examples, units, rate in ((1000, None, 0.01), (1000, 50, 0.2)):
        [charge] = expected(section, config, examples=examples, units=units) or []
        assert charge.event.rate == rate


@pytest.mark.parametrize(
    ("evaluate", "times"),
    [
        ({"every": 1}, 7), ({"every": 2}, 4), ({"every": 7}, 1), ({"every": 9}, 1), ({}, 7), (None, 7),
        ({"every": 0}, 0), ({"every": -1}, 0), ({"every": "never"}, 0),
    ],
)  # fmt: skip
def test_evaluations_are_charged_so_often_as_there_are_any(evaluate: dict[str, Any] | None, times: int) -> None:
    """A site's own epsilon for metrics, of dp_sgd: training tells the loss of the model that was sent, too."""
    charged = amounts(expected({"mechanism": "gaussian"} | METRICS, {"evaluate": evaluate}))
    told = [count for kind, amount, count in charged if (kind, amount) == ("pure", 0.1)]
    assert told == [ROUNDS, *([times] if times else [])]


def test_a_run_that_prepares_its_columns_is_charged_for_that_once() -> None:
    columns = {"prepare": [{"name": "age", "kind": "number", "clip": [0, 120]}]}
    section = GIVEN | {"preparation": {"share": 0.1}}
    without = expected(section, columns | {"kinds": ["train"]})
    with_it = expected(section, columns | {"kinds": ["prepare", "train"]})
    assert without is not None
    assert with_it is not None
    assert with_it[: len(without)] == without
    assert [charge.count for charge in with_it[len(without) :]] == [1]


def planned(section: dict[str, Any], *, model: Path | None = None, **fields: Any) -> ReleasePlan | None:
    given = terms(**section)
    asked = task(**{"privacy": given, "config": {}} | fields)
    return plan_of(asked, given, PrivacyPolicy(), examples=1000, model=model, units=None)


def test_noise_by_the_models_size_has_a_plan_by_the_model_that_was_received(tmp_path: Path) -> None:
    model, layout = tmp_path / "model.safetensors", Layout.of([Entry("w", "F32", (3, 5))])
    write_tensors(model, layout, {"w": np.zeros((3, 5), np.float32)})
    section = {"mechanism": "staircase", "noise_multiplier": 4.0} | METRICS
    found = planned(section, model=model)
    assert found is not None
    assert 15 * 10 in [count for _, count in found.releases], "of each number in each of ten rounds"
    assert planned(section) is None
    assert planned({} | METRICS) is not None, "noise that does not go by the model's size needs none"


@pytest.mark.parametrize(
    ("section", "plan"),
    [
        ({"mechanism": "dp_sgd", "noise_multiplier": 2.0}, False),
        ({"mechanism": "gaussian"}, False),
        ({"mechanism": "dp_sgd", "noise_multiplier": 2.0} | METRICS, True),
    ],
)
def test_a_run_of_one_release_a_round_has_no_plan(section: dict[str, Any], *, plan: bool) -> None:
    assert (planned(section) is not None) is plan


def test_a_preparation_says_what_follows_as_far_as_it_says_it() -> None:
    columns = {"prepare": [{"name": "age", "kind": "number", "clip": [0, 120]}]}

    def follows(told: object, **section: Any) -> ReleasePlan | None:
        section = section or GIVEN | METRICS
        config = columns if told is None else columns | {"follows": told}
        return planned(section | {"preparation": {"share": 0.1}}, kind=TaskKind.PREPARE, config=config)

    assert follows(None) is follows("all") is None

    each_round = follows({})
    assert each_round is not None
    assert (ReleaseEvent("pure", 0.1), 20) in each_round.releases, "ten of training, and ten evaluations"
    assert follows({"train": None, "evaluate": 3}) == each_round, "what is no section says nothing"
    every_other = follows({"evaluate": {"every": 2}})
    assert every_other is not None
    assert (ReleaseEvent("pure", 0.1), 15) in every_other.releases
    # Steps of all examples and a preparation are of one kind; that they are would tell how few examples there are.
    assert follows({"train": {"batch_size": 4096}}, mechanism="dp_sgd", **GIVEN) is not None
