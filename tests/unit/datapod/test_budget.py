"""The site's privacy budget in the agent: charged before work, refused beyond it, never twice for one answer."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hanse_datapod.cli import main
from hanse_datapod.home.status import SiteStatus, lines
from hanse_datapod.home.works import FILE
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.policy.site_policy import Policy, load_policy
from hanse_datapod.privacy.books import balances
from hanse_datapod.privacy.budget import WHOLE_SITE, SiteBudget
from hanse_datapod.privacy.charges import numbers_of
from hanse_datapod.privacy.metrics import CoveredMetrics
from hanse_datapod.privacy.reservation import Reservation
from hanse_datapod.privacy.turn_of import turn_of
from hanse_datapod.worker.port import WorkOutcome
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import FindingCode, HiddenFailure, Outcome, SiteCheck, Task, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms, PrivateMetrics
from hanse_fabric.telemetry.catalogue import PRIVACY_BUDGET, PRIVACY_SPENT
from hanse_fabric.tensors.file import write_tensors
from hanse_fabric.tensors.layout import Entry, Layout
from hanse_learning.site.private_terms import terms_of_work
from hanse_privacy.accounting.terms import RoundNoise
from hanse_privacy.ledger import NAME
from hanse_privacy.noise.counts import Change, count_noise
from unit.datapod.masked_actors import masked_task
from unit.datapod.site_actors import Site, task

# Two sensitivities of scale: epsilon 0.5 for each round, and no delta.
LAPLACE = {"placement": "local", "mechanism": "laplace", "clip": 2.0, "noise_multiplier": 4.0}


def terms(**section: Any) -> PrivacyTerms:
    return PrivacyTerms(privacy=Privacy.model_validate(LAPLACE | section), rounds=10, round=1, active=3)


def budgeted(**fields: Any) -> Policy:
    return Policy(privacy=PrivacyPolicy.model_validate({"epsilon": 1.2, "delta": 0} | fields))


async def test_the_worker_gets_the_clip_and_noise_that_were_charged(site: Site) -> None:
    site.policy = budgeted()
    await site.start()
    await site.give(task(privacy=terms()))
    [(result, _)] = await site.results(1)
    assert result.outcome is Outcome.DONE
    assert result.metrics == {}  # the worker reported a loss, which the noise does not cover
    assert site.worker.requests[0].config["privacy"] == {"mechanism": "laplace", "clip": 2.0, "scale": 8.0}


async def test_work_beyond_the_budget_is_refused_before_it_begins_and_what_remains_is_said(site: Site) -> None:
    site.policy = budgeted()
    await site.start()
    for number in (1, 2, 3):
        await site.give(task(f"r{number}-train", round=number, privacy=terms()))
        results = await site.results(number)
    refused = results[-1][0]
    assert (refused.outcome, refused.code) == (Outcome.REFUSED, "policy")
    assert "epsilon 1 of 1.2 is spent" in refused.reason
    assert "0.2 remains" in refused.reason
    assert len(site.worker.requests) == 2


@pytest.mark.parametrize("required", [True, False])
async def test_a_refusal_of_a_charge_that_follows_from_the_examples_has_no_figures_where_these_are_not_told(
    site: Site, required: bool
) -> None:
    """The control is the site that tells how many examples it has anyway."""
    site.policy = budgeted(required=required, epsilon=0.01)
    section = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 0.5}
    await site.start()
    await site.give(task(privacy=PrivacyTerms(privacy=Privacy.model_validate(section), rounds=10, round=1, active=3)))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert "the site's privacy budget forbids it" in result.reason
    assert ("would make it" in result.reason) is not required


def by(mechanism: str, round: int = 1) -> PrivacyTerms:  # noqa: A002
    section = {"placement": "local", "mechanism": mechanism, "noise_multiplier": 4.0}
    return PrivacyTerms(privacy=Privacy.model_validate(section), rounds=10, round=round, active=3)


@pytest.mark.parametrize(("mechanism", "parted"), [("dp_sgd", True), ("dp_sgd", False), ("laplace", True)])
async def test_a_job_that_hides_examples_has_test_data_set_aside_by_keyed_hashes_in_its_whole_run(
    site: Site, caplog: pytest.LogCaptureFixture, mechanism: str, parted: bool
) -> None:
    """Also in an evaluation, which has no terms of its own; and it is charged for the examples that there are then."""
    site.policy = budgeted(epsilon=100.0, delta=1e-5)
    site.worker.parted = parted
    keyed = mechanism == "dp_sgd" and parted
    await site.start()
    for number, asked in enumerate(
        (task("r1-train", privacy=by(mechanism)), task("r1-evaluate", kind=TaskKind.EVALUATE),
         task("r1-train", run="b" * 12)), 1
    ):  # fmt: skip
        await site.give(asked)
        await site.results(number)
    assert [each.split for each in site.worker.requests] == [*["keyed" if keyed else "shuffled"] * 2, "shuffled"]
    if mechanism == "dp_sgd":
        assert site.worker.requests[0].config["privacy"]["batch"] == (9 if parted else 10)
    assert not [record for record in caplog.records if "sets test data aside" in record.message]
    data = {"fit": True, "examples": 8, "test_examples": 2, "device": "cpu", "remarks": [], "parted": parted}
    told = SiteStatus(site.home, site.policy).told() | {"data": data}
    assert any("by a keyed hash of each example" in line for line in lines(told)) is parted


async def test_no_run_hides_examples_and_has_a_shuffle_whatever_was_charged_in_it_before(site: Site) -> None:
    """Not where it is older than this choice, and not where the site's notes of its runs are lost."""
    site.policy, site.worker.parted = budgeted(epsilon=100.0, delta=1e-5), True
    await site.start()
    await site.give(task("r1-train", privacy=by("laplace")))
    await site.results(1)
    await site.give(task("r2-train", round=2, privacy=by("dp_sgd", 2)))
    await site.results(2)
    await site.stop()
    with sqlite3.connect(site.home / FILE) as database:
        assert database.execute("DELETE FROM keyed_runs").rowcount == 1
    database.close()
    await site.start()
    await site.give(task("r3-train", round=3, privacy=by("dp_sgd", 3)))
    await site.results(3)
    await site.stop()
    await site.start()
    await site.give(task("r3-evaluate", round=3, kind=TaskKind.EVALUATE))
    await site.results(4)
    assert [each.split for each in site.worker.requests] == ["shuffled", *["keyed"] * 3]


async def test_a_site_of_which_all_examples_fall_on_one_side_refuses_jobs_that_hide_them_and_says_no_number(
    site: Site,
) -> None:
    site.policy, site.worker.parted = budgeted(epsilon=100.0, delta=1e-5), True
    site.worker.one_sided = HanseError(ErrorCode.SCHEMA_MISMATCH, "data: all fell on one side", found="10 examples")
    await site.start()
    await site.give(task("r1-train", privacy=by("dp_sgd")))
    await site.give(task("r1-train", run="b" * 12, privacy=by("laplace")))
    (refused, _), (done, _) = sorted(await site.results(2), key=lambda each: each[0].run != "a" * 12)
    told = {result.run: (result.outcome, result.reason) for result in (refused, done)}
    assert told["b" * 12][0] is Outcome.DONE
    [(outcome, reason)] = [said for run, said in told.items() if run != "b" * 12]
    assert outcome is Outcome.REFUSED
    assert reason == HiddenFailure.UNFIT.text
    asked = {"kinds": ["train"], "rounds": 2, "model": {"name": "mlp"}, "train": {"steps": 1}}
    await site.give(task("preflight", run="c" * 12, kind=TaskKind.CHECK, round=0, model=None, config=asked,
                         privacy=by("dp_sgd")))  # fmt: skip
    [said] = [result.payload for result, _ in await site.results(3) if result.step == "preflight"]
    assert FindingCode.UNFIT in {finding.code for finding in SiteCheck.decode(said or b"").findings}


async def test_a_refusal_of_a_charge_that_is_the_same_at_every_site_has_its_figures(site: Site) -> None:
    site.policy = budgeted(required=True, epsilon=0.1)
    await site.start()
    await site.give(task(privacy=terms()))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert "would make it" in result.reason


async def test_an_evaluation_by_example_tells_the_noisy_number_of_examples_and_the_worker_cuts_each(site: Site) -> None:
    site.policy = budgeted(required=True, epsilon=3e5)
    asked = {"epsilon": 1e5, "bounds": {"loss": 4.0}}
    section = {"placement": "local", "mechanism": "dp_sgd", "noise_multiplier": 4.0, "metrics": asked}
    given = PrivacyTerms(privacy=Privacy.model_validate(section), rounds=10, round=1, active=3)
    await site.start()
    await site.give(task("r1-evaluate", kind=TaskKind.EVALUATE, privacy=given))
    [(result, _)] = await site.results(1)
    assert site.worker.requests[0].config["privacy"] == {"cut": {"loss": 4.0}}
    assert (result.outcome, result.examples, result.seconds) == (Outcome.DONE, 10, 0.0)
    assert result.metrics["loss"] == pytest.approx(0.5 * 4.0, abs=0.01)  # workers say shares of the bound
    assert result.metrics["loss"] != 0.5 * 4.0


async def test_an_answer_that_the_budget_is_too_small_for_costs_nothing_of_its_parts(site: Site) -> None:
    site.policy = budgeted(epsilon=0.7)
    await site.start()
    await site.give(task(privacy=terms(metrics={"epsilon": 0.3, "bounds": {"loss": 4.0}})))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert "epsilon 0 of 0.7 is spent" in result.reason
    await site.give(task("r2-train", round=2, privacy=terms()))
    assert (await site.results(2))[-1][0].outcome is Outcome.DONE


async def test_a_site_that_was_never_charged_says_that_its_budget_is_too_small(site: Site) -> None:
    site.policy = budgeted(epsilon=0.1)
    await site.start()
    await site.give(task(privacy=terms()))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code, result.ledger) == (Outcome.REFUSED, "policy", None)
    assert "epsilon 0 of 0.1 is spent" in result.reason


async def test_a_restart_that_sends_an_answer_again_charges_nothing(site: Site) -> None:
    site.policy = budgeted()
    for _ in range(2):
        await site.start()
        await site.give(task(privacy=terms()))
        await site.results(1)
        await site.stop()
        site.forget_hub()
    assert [entry["what"] for entry in read_chain(site.home, NAME)] == ["charge", "settled"]


async def test_what_is_spent_and_allowed_is_told_of_the_project_and_of_the_whole_site(site: Site) -> None:
    site.policy = budgeted()
    await site.start()
    asked = task(privacy=terms())
    await site.give(asked)
    await site.results(1)
    spent = {scope: PRIVACY_SPENT.value(project=scope) for scope in (asked.project, WHOLE_SITE)}
    assert spent[WHOLE_SITE] == pytest.approx(0.5)  # without delta, which the project has
    assert 0.499 < spent[asked.project] <= 0.5
    assert PRIVACY_BUDGET.value(project=WHOLE_SITE) == site.policy.privacy.epsilon


async def test_a_round_that_is_discarded_stays_charged_and_its_next_attempt_is_charged_again(site: Site) -> None:
    site.policy = budgeted()
    await site.start()
    for attempt in (1, 2, 3):
        asked = terms().model_copy(update={"attempt": attempt})
        await site.give(task("r1-train" if attempt == 1 else f"r1-train-s{attempt}", privacy=asked))
        results = await site.results(attempt)
    assert [result.outcome for result, _ in results] == [Outcome.DONE, Outcome.DONE, Outcome.REFUSED]
    assert "epsilon 1 of 1.2 is spent" in results[-1][0].reason
    assert [entry["what"] for entry in read_chain(site.home, NAME)].count("charge") == 2


async def test_work_that_fails_is_paid_and_the_hub_hears_a_fixed_code(site: Site) -> None:
    site.policy = budgeted()
    site.worker.error = HanseError(ErrorCode.INVALID_INPUT, "labels: 0 to 4 were expected", found="9")
    await site.start()
    await site.give(task(privacy=terms()))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.reason) == (Outcome.REFUSED, HiddenFailure.UNFIT.text)
    assert [entry["what"] for entry in read_chain(site.home, NAME)] == ["charge", "settled"]


async def test_tasks_without_privacy_and_evaluation_cost_nothing(site: Site) -> None:
    site.policy = budgeted()
    await site.start()
    await site.give(task("r1-train"))
    await site.results(1)
    await site.give(task("r1-evaluate", kind=TaskKind.EVALUATE, privacy=terms()))
    await site.results(2)
    assert not (site.home / f"{NAME}.jsonl").exists()


@pytest.mark.parametrize(
    ("policy", "section", "said"),
    [
        ({"required": True}, None, "privacy.required"),
        ({"required": True}, {"placement": "central"}, "privacy.placements"),
        ({"placements": ["distributed"]}, {}, "privacy.placements"),
    ],
)
async def test_the_policy_says_whose_noise_is_accepted(
    site: Site, policy: dict[str, Any], section: dict[str, Any] | None, said: str
) -> None:
    site.policy = budgeted(**policy)
    await site.start()
    await site.give(task(privacy=None if section is None else terms(**section)))
    [(result, _)] = await site.results(1)
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert said in result.reason


def reserved(home: Path, given: Task, *, examples: int = 1000, **policy: Any) -> dict[str, Any]:
    budget = SiteBudget(home, PrivacyPolicy.model_validate(policy))
    made = budget.reserve(given, examples=examples, model=None)
    budget.close()
    assert made is not None
    return made.work


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


def test_the_policy_file_has_the_budget(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("privacy: {epsilon: 4, projects: {triage: {epsilon: 1, delta: 1.0e-6}}}")
    policy = load_policy(file).privacy
    assert (policy.epsilon, policy.projects["triage"].delta) == (4, 1e-6)
    file.write_text("privacy: {epsilon: -1}")
    with pytest.raises(HanseError, match=r"privacy\.epsilon"):
        load_policy(file)


def test_the_command_shows_what_is_spent_and_what_remains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", "--home", str(tmp_path / "elsewhere")]) == 4
    reserved(tmp_path, task(privacy=terms()))
    file = tmp_path / "policy.yaml"
    file.write_text("privacy: {epsilon: 2, delta: 0, project: {epsilon: 1, delta: 0}}")
    capsys.readouterr()
    assert main(["budget", "--home", str(tmp_path), "--policy", str(file)]) == 0
    assert "triage: epsilon 0.5 is spent at delta 0; allowed: 1, 0.5 remains" in capsys.readouterr().out
    assert main(["budget", "--home", str(tmp_path), "--policy", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["remaining"] for row in shown["balances"]] == [1.5, 0.5]
    (tmp_path / f"{NAME}.jsonl").write_bytes(b"{}\n")
    assert main(["budget", "--home", str(tmp_path)]) == 7


def test_a_site_that_was_never_charged_is_shown_its_whole_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("privacy: {epsilon: 2, delta: 0, projects: {triage: {epsilon: 1, delta: 0}}}")
    command = ["budget", "--home", str(tmp_path), "--policy", str(file)]
    assert main(command) == 0
    assert "triage: epsilon 0 is spent at delta 0; allowed: 1, 1 remains" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    assert [row["remaining"] for row in json.loads(capsys.readouterr().out)["balances"]] == [2, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["policy.yaml"]


def test_a_removed_ledger_is_reported_by_the_command_and_refuses_the_next_charge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reserved(tmp_path, task(privacy=terms()))
    (tmp_path / f"{NAME}.jsonl").unlink()
    assert main(["budget", "--home", str(tmp_path)]) == 7
    assert "privacy.jsonl is missing" in capsys.readouterr().out
    with pytest.raises(HanseError) as caught:
        reserved(tmp_path, task(privacy=terms()))
    assert caught.value.code is ErrorCode.TAMPERED


@pytest.mark.parametrize("epsilon", ["0", "-1", ".nan", ".inf", "much"])
@pytest.mark.parametrize(
    "section", ["epsilon: {}", "project: {{epsilon: {}}}", "projects: {{triage: {{epsilon: {}}}}}"]
)
def test_an_invalid_budget_is_refused_by_name(tmp_path: Path, section: str, epsilon: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"privacy: {{{section.format(epsilon)}}}")
    named = r"not finite in .*line 1.*epsilon: " if epsilon in (".nan", ".inf") else r"privacy\..*epsilon"
    with pytest.raises(HanseError, match=named) as caught:
        load_policy(file)
    assert caught.value.code is ErrorCode.INVALID_INPUT


@pytest.mark.parametrize("placement", ["local", "central"])
def test_private_work_with_more_than_the_update_is_refused(tmp_path: Path, placement: str) -> None:
    section = {"placement": "central", "mechanism": "gaussian"} if placement == "central" else {}
    budget = SiteBudget(tmp_path, PrivacyPolicy())
    made = budget.reserve(task(privacy=terms(**section)), examples=1000, model=None)
    budget.close()
    assert isinstance(made, Reservation)
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
        "mechanism": "dp_ftrl",
        "placement": "distributed",
        "noise_multiplier": 1.0,
        "matrix": {"name": "banded", "bands": 2},
        "min_separation": 2,
    }
    members = ("east", "north", "south")

    def work(*training: str) -> str:
        given = PrivacyTerms(
            privacy=Privacy.model_validate(LAPLACE | section), rounds=10, round=1, active=3, members=members,
            training=training,
        )  # fmt: skip
        found = turn_of(masked_task(privacy=given), tmp_path, "")
        assert found is not None
        return str(found.work)

    assert work(*members) == work(*members)
    assert len({work(*members), work("east", "north"), work("east")}) == 3


def zeros_of(layout: Layout) -> dict[str, np.ndarray]:
    return {entry.name: np.zeros(entry.shape, entry.numpy) for entry in layout}
