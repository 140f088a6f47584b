"""What the site's budget charges for which work, and who shares it, without an agent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import balances
from hanse_datapod.privacy.budget import SiteBudget
from hanse_datapod.privacy.charges import numbers_of
from hanse_datapod.privacy.metrics import CoveredMetrics
from hanse_datapod.privacy.reservation import Reservation
from hanse_datapod.privacy.turn_of import turn_of
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import HiddenFailure, Task, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms, PrivateMetrics
from hanse_fabric.tensors.file import write_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_learning.site.private_terms import terms_of_work
from hanse_privacy.accounting.terms import RoundNoise
from hanse_privacy.ledger import NAME
from hanse_privacy.noise.counts import Change, count_noise
from unit.datapod.masked_actors import masked_task
from unit.datapod.private_tasks import LAPLACE, reservation, reserved, terms
from unit.datapod.site_actors import task


def test_dp_sgd_is_told_its_steps_and_the_rate_of_this_sites_data(tmp_path: Path) -> None:
    section = {"mechanism": "dp_sgd", "noise_multiplier": 1.5, "clip": 2.0}
    config = {"model": {"name": "mlp"}, "train": {"epochs": 2, "batch_size": 40}}
    work = reserved(tmp_path, task(privacy=terms(**section), config=config))
    assert work == {"mechanism": "dp_sgd", "clip": 2.0, "scale": 3.0, "steps": 50, "batch": 40, "rate": 0.04}
    [entry] = list(read_chain(tmp_path, NAME))
    assert (entry["count"], entry["event"]) == (50, {"kind": "gaussian", "amount": 1.5, "rate": 0.04})


@pytest.mark.parametrize("units", [None, 200])
def test_the_ledger_says_whom_the_noise_of_steps_hides(tmp_path: Path, units: int | None) -> None:
    section, config = {"mechanism": "dp_sgd", "noise_multiplier": 1.5, "clip": 2.0}, {"train": {"batch_size": 40}}
    budget = SiteBudget(tmp_path, PrivacyPolicy())
    budget.reserve(task(privacy=terms(**section), config=config), examples=1000, model=None, units=units)
    budget.close()
    [entry] = list(read_chain(tmp_path, NAME))
    of_people = ", for whoever has examples, with all of them" if units else ""
    assert entry["note"] == f"dp_sgd, local: 1.5 per clip of 2{of_people}"


def test_a_site_is_charged_for_the_noise_of_a_sum_and_its_worker_adds_none(tmp_path: Path) -> None:
    shares = {"placement": "distributed", "mechanism": "discrete_laplace", "noise": "distributed-gamma"}
    assert reserved(tmp_path, task(privacy=terms(**shares)))["scale"] == 0.0
    central = {"placement": "central", "mechanism": "gaussian"}
    assert reserved(tmp_path, task("r2-train", privacy=terms(**central))) == {}
    charged = [(entry["event"]["kind"], entry["event"]["amount"]) for entry in read_chain(tmp_path, NAME)]
    # Rounding to the ring's grid has its part of delta; noise of the hub is rounded to no ring.
    assert charged == [("pure", 0.5), ("chance", 2.0**-64), ("gaussian", 2.0)]


def test_two_homes_with_the_same_data_share_a_ledger(tmp_path: Path) -> None:
    shared = {"epsilon": 0.7, "delta": 0, "ledger": tmp_path / "shared"}
    reserved(tmp_path / "one", task(privacy=terms()), **shared)
    with pytest.raises(HanseError, match="whole site"):
        reserved(tmp_path / "two", task("r2-train", project="other", privacy=terms()), **shared)


@pytest.mark.parametrize("placement", ["local", "central"])
def test_private_work_with_more_than_the_update_is_refused(tmp_path: Path, placement: str) -> None:
    section = {"placement": "central", "mechanism": "gaussian"} if placement == "central" else {}
    made = reservation(tmp_path, task(privacy=terms(**section)))
    outcome = WorkOutcome(tmp_path / "update", 10, {"loss": 0.5, "steps": 3.0}, 0.01, info={"n": 1.0}, note="told")
    with_extras = replace(outcome, extras={"control": tmp_path / "control"})
    if placement == "central":
        # Noise on the sum does not cover this site's other numbers; `masked_answer` checks those.
        assert made.keep_covered(with_extras) == with_extras
        return
    with pytest.raises(HanseError, match="control") as caught:
        made.keep_covered(with_extras)
    assert caught.value.code is ErrorCode.POLICY
    covered = made.keep_covered(outcome)
    assert (covered.metrics, covered.info, covered.note) == ({}, {}, "")


@pytest.mark.parametrize("by_example", [True, False])
def test_an_evaluation_that_fails_is_noise_alone_where_it_would_tell_no_noisy_number_of_examples(
    by_example: bool,
) -> None:
    asked = PrivateMetrics.model_construct(bounds={"loss": 1.0})
    made, given = Reservation((), {}, CoveredMetrics(asked, by_example)), task("r1-evaluate", kind=TaskKind.EVALUATE)
    failed = HanseError(ErrorCode.of(HiddenFailure.FAILED.value), "the worker failed")
    assert made.counts is by_example
    if by_example:
        with pytest.raises(HanseError, match="the worker failed"):
            made.without_answer(given, failed, 12)
    else:
        assert made.without_answer(given, failed, 12) == WorkOutcome(None, 12, {})


EXAMPLES = 1485


PREPARED = {"mechanism": "dp_sgd", "noise_multiplier": None, "epsilon": 3.0, "preparation": {"share": 0.1}}


def played(home: Path, rounds: int, **most: float) -> float:
    """What a run with a preparation has cost, in the ledger of a site that was there from its beginning to its end."""
    budget = SiteBudget(home, PrivacyPolicy())
    for number in range(rounds + 1):
        given = asked_before(TaskKind.TRAIN if number else TaskKind.PREPARE, number, rounds)
        made = budget.reserve(given, examples=EXAMPLES, model=None, most=most.get("most"))
        budget.settle(made)
    budget.close()
    return next(row.spent for row in balances(home, PrivacyPolicy()) if row.scope == "triage")


def asked_before(kind: TaskKind, number: int, rounds: int) -> Task:
    """A task of such a run, which says what the run will ask."""
    section = Privacy.model_validate(LAPLACE | PREPARED | {"clip": 1.0})
    return task(
        f"r{number}-{kind.value}", kind=kind, round=number,
        privacy=PrivacyTerms(privacy=section, rounds=rounds, round=max(1, number), active=3),
        config={
            "train": {"batch_size": 32}, "kinds": ["prepare", "train"], "follows": {"train": {"batch_size": 32}},
            "prepare": [{"name": "creatinine", "kind": "number", "clip": [20, 800]}],
        },
    )  # fmt: skip


def test_what_a_site_says_before_a_run_with_a_preparation_is_what_its_ledger_does(tmp_path: Path) -> None:
    """Samples beside a preparation: before the ledger knew the run's plan, it charged more than the run's epsilon."""
    rounds, question = 20, asked_before(TaskKind.TRAIN, 1, 20)
    cost = played(tmp_path / "unlimited", rounds)
    assert 2.7 < cost <= 3.0

    def said(examples: int | None, most: float | None, **policy: Any) -> bool | None:
        budget = SiteBudget(tmp_path / "asked", PrivacyPolicy.model_validate(policy))
        try:
            return budget.affords(question, rounds, examples=examples, most=most)
        finally:
            budget.close()

    for least in (cost * 1.0001, 2.6):
        enough = least >= cost
        assert said(EXAMPLES, least) is said(EXAMPLES, None, epsilon=least) is enough
        # It depends on how many examples there are, but where the rounds alone are too much.
        assert said(None, least) is said(None, None, epsilon=least) is (None if enough else False)
    assert said(None, 2.0) is said(None, None, epsilon=2.0) is False
    assert said(None, None) is True
    assert played(tmp_path / "enough", rounds, most=cost * 1.0001) == pytest.approx(cost)
    with pytest.raises(HanseError, match=r"terms\.epsilon"):
        played(tmp_path / "short", rounds, most=2.6)


def test_a_preparation_is_charged_once(tmp_path: Path) -> None:
    reserved(tmp_path, asked_before(TaskKind.PREPARE, 0, 20), examples=EXAMPLES)
    [charge] = [entry for entry in read_chain(tmp_path, NAME) if entry["what"] == "charge"]
    assert (charge["count"], charge["note"]) == (1, "preparation, local")


def test_homes_that_share_a_ledger_are_each_charged_for_one_task_of_a_name(tmp_path: Path) -> None:
    policy = PrivacyPolicy(ledger=tmp_path / "ledger")
    for home in ("east", "west"):
        budget = SiteBudget(tmp_path / home, policy)
        assert budget.reserve(task(privacy=terms()), examples=1000, model=None) is not None
        budget.close()
    assert [entry["what"] for entry in read_chain(tmp_path / "ledger", NAME)].count("charge") == 2


def test_each_masked_session_of_a_step_is_a_release_of_its_own(tmp_path: Path) -> None:
    budget, works, given = SiteBudget(tmp_path, PrivacyPolicy()), [], masked_task()
    assert given.masking is not None
    for session in ("r1-train", "r1-train-s2", "r1-train"):
        asked = given.model_copy(
            update={"privacy": terms(), "masking": given.masking.model_copy(update={"session": session})}
        )
        made = budget.reserve(asked, examples=1000, model=None)
        assert made is not None
        works.append([charge.work for charge in made.charges])
    budget.close()
    assert works[0] == works[2] != works[1]


def test_dp_sgd_is_charged_by_people_where_the_schema_says_whose_each_example_is() -> None:
    section = {"mechanism": "dp_sgd", "noise_multiplier": 1.0}

    def charged(units: int | None) -> tuple[RoundNoise, dict[str, Any]]:
        config = {"train": {"batch_size": 50}}
        return terms_of_work(terms(**section), "north", config, examples=10_000, coordinates=None, units=units)

    rows, people = charged(None), charged(200)
    assert (rows[0].event.rate, rows[0].count, rows[0].unit) == (0.005, 200, "example")
    assert (people[0].event.rate, people[0].count, people[0].unit) == (0.25, 4, "unit")
    assert (people[1]["by_unit"], people[1]["batch"]) == (True, 50)
    assert "by_unit" not in rows[1]


def test_metrics_that_hide_one_row_are_refused_where_a_person_may_have_many(tmp_path: Path) -> None:
    metrics = {"epsilon": 1.0, "bounds": {"loss": 2.0}}
    asked = task(kind=TaskKind.EVALUATE, privacy=terms(mechanism="dp_sgd", noise_multiplier=1.0, metrics=metrics))
    budget = SiteBudget(tmp_path, PrivacyPolicy())
    assert budget.reserve(asked, examples=100, model=None) is not None
    with pytest.raises(HanseError, match="none with dp_sgd for units"):
        budget.reserve(asked, examples=100, model=None, units=20)
    # Noise that hides the whole site hides each person, too.
    whole = task("r2-evaluate", kind=TaskKind.EVALUATE, privacy=terms(metrics=metrics))
    assert budget.reserve(whole, examples=100, model=None, units=20) is not None


def test_counts_hide_a_person_with_many_rows_and_are_refused_to_nobody(tmp_path: Path) -> None:
    metrics = {"epsilon": 1.0, "rows": 3}
    counted = {"names": ["f1"], "task": "classification", "classes": 2, "bins": 16, "scale": 3.0, "rows": 3}
    asked = task(
        kind=TaskKind.EVALUATE, privacy=terms(mechanism="dp_sgd", noise_multiplier=1.0, metrics=metrics),
        config={"evaluate": {"counts": counted}},
    )  # fmt: skip
    budget = SiteBudget(tmp_path, PrivacyPolicy())
    made = budget.reserve(asked, examples=100, model=None, units=20)
    assert made is not None
    [charge] = made.charges
    assert (charge.event.kind, charge.event.amount, charge.count) == ("pure", 1.0, 1)
    assert charge.note == "counts for f1: epsilon 1"


@pytest.mark.parametrize("kind", [TaskKind.INITIALIZE, TaskKind.SHARE, TaskKind.UNMASK])
def test_what_tells_nothing_of_the_data_costs_nothing(tmp_path: Path, kind: TaskKind) -> None:
    """The first model is of the seed alone, and a protocol's messages are of keys and masks."""
    budget = SiteBudget(tmp_path, PrivacyPolicy())
    asked = task(kind=kind, privacy=terms(metrics={"epsilon": 1.0, "bounds": {"loss": 2.0}}))
    assert budget.reserve(asked, examples=100, model=None) is None


@pytest.mark.parametrize(("hidden", "required"), [(True, False), (False, True), (False, False)])
def test_what_remains_is_told_until_it_follows_from_a_number_of_examples_that_nobody_may_hear(
    tmp_path: Path, hidden: bool, required: bool
) -> None:
    """Nor is it said whether a run would be afforded: whoever asks often enough would close in on what remains.
    A site that requires noise tells nobody how many examples it has."""
    budget = SiteBudget(tmp_path, PrivacyPolicy(epsilon=20.0, required=required), hidden=hidden)

    def told() -> tuple[bool, bool | None]:
        left = budget.remaining("triage")
        return left is not None and 0 < left < 20.0, budget.affords(task(privacy=terms()), 1, examples=None)

    budget.reserve(task(privacy=terms()), examples=1000, model=None)
    assert told() == (True, True)
    of_examples = task("r2-train", privacy=terms(mechanism="dp_sgd", noise_multiplier=2.0))
    budget.reserve(of_examples, examples=1000, model=None)
    assert told() == ((False, None) if hidden or required else (True, True))
    budget.close()


def test_a_sites_own_noise_is_by_its_accountant_and_its_share_of_a_sum_by_that_of_all() -> None:
    own = {"mechanism": "gaussian", "noise_multiplier": None, "epsilon": 2.0, "delta": 1e-5}
    shared = own | {"mechanism": "discrete_gaussian", "placement": "distributed"}

    def multiplier(section: dict[str, Any], accountant: Any) -> float:
        noise, _ = terms_of_work(terms(**section), "north", {}, examples=100, coordinates=None, accountant=accountant)
        return noise.multiplier

    assert multiplier(own, "pld") < 0.95 * multiplier(own, "rdp")
    # Shares make one noise, by one accountant for all; whoever counts otherwise counts the noise that there is.
    assert multiplier(shared, "rdp") == multiplier(shared, "pld") == multiplier(own, "pld")
    counts = {"epsilon": 1.0, "delta": 1e-5}
    sections = [terms(**section).privacy for section in (own, shared)]
    alone, together = [
        {count_noise(each, Change(1e6, 1e6), active=3, accountant=name, **counts).event for name in ("pld", "rdp")}
        for each in sections
    ]
    assert (len(alone), len(together)) == (2, 1)


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
def test_sites_that_share_noise_have_no_epsilon_each(mechanism: str) -> None:
    noise = {"noise": "distributed-gamma"} if "laplace" in mechanism else {}
    section = {"mechanism": mechanism, "placement": "distributed", "site_epsilon": {"north": 2.0}, **noise}
    with pytest.raises(HanseError, match="site_epsilon"):
        terms_of_work(terms(**section), "north", {}, examples=100, coordinates=None)
    with pytest.raises(HanseError, match="site_epsilon"):
        count_noise(terms(**section).privacy, Change(1e6, 1e6), active=3, multiplier=1.0)


def test_training_without_a_train_section_is_charged_for_the_defaults(tmp_path: Path) -> None:
    section = {"mechanism": "dp_sgd", "noise_multiplier": 1.5, "clip": 2.0}
    bare = reserved(tmp_path / "a", task(privacy=terms(**section), config={"model": {"name": "mlp"}}))
    empty = reserved(tmp_path / "b", task(privacy=terms(**section), config={"model": {"name": "mlp"}, "train": {}}))
    assert bare == empty
    assert bare["steps"] >= 1


def test_staircase_noise_is_charged_for_every_number_of_the_model_that_was_received(tmp_path: Path) -> None:
    section = {"mechanism": "staircase", "noise_multiplier": 4.0}
    model = tmp_path / "model.safetensors"
    write_tensors(model, layout := Layout.of([Entry("w", "F32", (3, 5)), Entry("b", "F64", (2,))]), zeros_of(layout))
    noise, told = terms_of_work(terms(**section), "north", {}, examples=100, coordinates=lambda: numbers_of(model))
    assert (noise.count, told["mechanism"]) == (17, "staircase")
    with pytest.raises(HanseError, match="unknown size") as caught:
        terms_of_work(terms(**section), "north", {}, examples=100, coordinates=None)
    assert caught.value.code is ErrorCode.INVALID_INPUT
    laplace, _ = terms_of_work(
        terms(), "north", {}, examples=100, coordinates=lambda: numbers_of(tmp_path / "of no account")
    )
    assert laplace.count == 1


def test_a_task_is_charged_for_the_numbers_of_the_very_model_that_came_with_it(tmp_path: Path) -> None:
    model, section = tmp_path / "model.safetensors", {"mechanism": "staircase", "noise_multiplier": 4.0}
    write_tensors(model, layout := Layout.of([Entry("w", "F32", (3, 5))]), zeros_of(layout))
    budget = SiteBudget(tmp_path / "home", PrivacyPolicy())
    made = budget.reserve(task(privacy=terms(**section)), examples=100, model=model)
    assert made is not None
    assert [charge.count for charge in made.charges] == [15]
    with pytest.raises(HanseError, match="unknown size"):
        budget.reserve(task("r2-train", privacy=terms(**section)), examples=100, model=None)
    assert budget.reserve(task("r3-train"), examples=100, model=model) is None, "it has no privacy terms"
    budget.close()


def test_a_turn_of_shared_noise_is_other_work_where_others_train(tmp_path: Path) -> None:
    section = {
        "mechanism": "dp_ftrl", "placement": "distributed", "noise_multiplier": 1.0, "min_separation": 2,
        "matrix": {"name": "banded", "bands": 2},
    }  # fmt: skip
    members = ("east", "north", "south")

    def work(*training: str) -> str:
        given = terms(**section).model_copy(update={"members": members, "training": training})
        found = turn_of(masked_task(privacy=given), tmp_path, "")
        assert found is not None
        return str(found.work)

    assert work(*members) == work(*members)
    assert len({work(*members), work("east", "north"), work("east")}) == 3


def zeros_of(layout: Layout) -> dict[str, np.ndarray]:
    return {entry.name: np.zeros(entry.shape, entry.numpy) for entry in layout}
