"""The site's privacy budget in the agent: charged before work, refused beyond it, never twice for one answer."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from hanse_datapod.home.status import SiteStatus, lines
from hanse_datapod.home.works import FILE
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.policy.site_policy import Policy
from hanse_datapod.privacy.budget import WHOLE_SITE
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import FindingCode, HiddenFailure, Outcome, Result, SiteCheck, Task, TaskKind
from hanse_fabric.messages.privacy import PrivacyTerms
from hanse_fabric.telemetry.catalogue import PRIVACY_BUDGET, PRIVACY_SPENT
from hanse_privacy.ledger import NAME
from unit.datapod.private_tasks import terms
from unit.datapod.site_actors import Site, task


def budgeted(**fields: Any) -> Policy:
    return Policy(privacy=PrivacyPolicy.model_validate({"epsilon": 1.2, "delta": 0} | fields))


async def answer_of(site: Site, asked: Task) -> Result:
    """To the first task of a site, which is started."""
    await site.start()
    await site.give(asked)
    [(result, _)] = await site.results(1)
    return result


async def test_the_worker_gets_the_clip_and_noise_that_were_charged(site: Site) -> None:
    site.policy = budgeted()
    result = await answer_of(site, task(privacy=terms()))
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
    section = {"mechanism": "dp_sgd", "noise_multiplier": 0.5}
    result = await answer_of(site, task(privacy=terms(**section)))
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert "the site's privacy budget forbids it" in result.reason
    assert ("would make it" in result.reason) is not required


def by(mechanism: str, round: int = 1) -> PrivacyTerms:  # noqa: A002
    return terms(mechanism=mechanism).model_copy(update={"round": round})


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
    result = await answer_of(site, task(privacy=terms()))
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert "would make it" in result.reason


async def test_an_evaluation_by_example_tells_the_noisy_number_of_examples_and_the_worker_cuts_each(site: Site) -> None:
    site.policy = budgeted(required=True, epsilon=3e5)
    asked = {"epsilon": 1e5, "bounds": {"loss": 4.0}}
    section = {"mechanism": "dp_sgd", "metrics": asked}
    result = await answer_of(site, task("r1-evaluate", kind=TaskKind.EVALUATE, privacy=terms(**section)))
    assert site.worker.requests[0].config["privacy"] == {"cut": {"loss": 4.0}}
    assert (result.outcome, result.examples, result.seconds) == (Outcome.DONE, 10, 0.0)
    assert result.metrics["loss"] == pytest.approx(0.5 * 4.0, abs=0.01)  # workers say shares of the bound
    assert result.metrics["loss"] != 0.5 * 4.0


async def test_an_answer_that_the_budget_is_too_small_for_costs_nothing_of_its_parts(site: Site) -> None:
    site.policy = budgeted(epsilon=0.7)
    result = await answer_of(site, task(privacy=terms(metrics={"epsilon": 0.3, "bounds": {"loss": 4.0}})))
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert "epsilon 0 of 0.7 is spent" in result.reason
    await site.give(task("r2-train", round=2, privacy=terms()))
    assert (await site.results(2))[-1][0].outcome is Outcome.DONE


async def test_a_site_that_was_never_charged_says_that_its_budget_is_too_small(site: Site) -> None:
    site.policy = budgeted(epsilon=0.1)
    result = await answer_of(site, task(privacy=terms()))
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
    result = await answer_of(site, task(privacy=terms()))
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
    result = await answer_of(site, task(privacy=None if section is None else terms(**section)))
    assert (result.outcome, result.code) == (Outcome.REFUSED, "policy")
    assert said in result.reason
