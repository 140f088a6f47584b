"""A run of several kinds of releases at a site: its first charged task says all of it, and the ledger adds it up by
that, through kills at every step; where the task does not say it, by the filter, as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hanse_datapod.cli import main
from hanse_datapod.policy.privacy import PrivacyPolicy
from hanse_datapod.privacy.books import balances
from hanse_datapod.privacy.budget import SiteBudget
from hanse_datapod.privacy.expected import plan_of
from hanse_fabric.chain import read_chain
from hanse_fabric.errors import ErrorCode, HanseError
from hanse_fabric.messages import Task, TaskKind
from hanse_fabric.messages.privacy import Privacy, PrivacyTerms
from hanse_privacy.accounting.accountant import make_accountant
from hanse_privacy.accounting.events import ReleaseEvent
from hanse_privacy.accounting.plan import ReleasePlan
from hanse_privacy.ledger import NAME, PLAN
from hanse_schemas.job import check_job
from hanse_workflows.preparing import rounds_after
from privacy_oracle import epsilon_of_mixed
from unit.datapod.site_actors import task

EXAMPLES, ROUNDS, EVERY = 1485, 6, 2
METRICS = {"epsilon": 0.1, "bounds": {"loss": 4.0}}
SECTION: dict[str, Any] = {
    "placement": "local", "mechanism": "dp_sgd", "epsilon": 3.0, "preparation": {"share": 0.1}, "metrics": METRICS,
}  # fmt: skip
CONFIG: dict[str, Any] = {"model": {"name": "logistic"}, "train": {"batch_size": 32}, "evaluate": {"every": EVERY}}
COLUMNS = {"prepare": [{"name": "creatinine", "kind": "number", "clip": [20, 800]}]}
FOLLOWS = {"follows": {"train": CONFIG["train"], "evaluate": CONFIG["evaluate"]}}


def asked(kind: TaskKind, number: int, config: dict[str, Any], section: dict[str, Any]) -> Task:
    terms = PrivacyTerms(privacy=Privacy.model_validate(section), rounds=ROUNDS, round=max(1, number), active=3)
    return task(f"r{number}-{kind.value}", kind=kind, round=number, privacy=terms, config=config)


def run_of(section: dict[str, Any], *, follows: bool = True) -> list[Task]:
    """The tasks of a run that are charged, in their order."""
    before = [asked(TaskKind.PREPARE, 0, COLUMNS | (FOLLOWS if follows else {}), section)]
    rounds = []
    for number in range(1, ROUNDS + 1):
        rounds.append(asked(TaskKind.TRAIN, number, CONFIG, section))
        if number % EVERY == 0:
            rounds.append(asked(TaskKind.EVALUATE, number, CONFIG, section))
    return [*(before if "preparation" in section else []), *rounds]


def planned(first: Task, *, examples: int = EXAMPLES, model: Path | None = None) -> ReleasePlan | None:
    """What the first charged task of a run says of all of it."""
    assert first.privacy is not None
    return plan_of(first, first.privacy, PrivacyPolicy(), examples=examples, model=model, units=None)


def played(home: Path, tasks: list[Task], policy: PrivacyPolicy | None = None, **more: Any) -> float:
    """What a site is charged that is killed after each charge, before it is settled, and does the task again."""
    policy = policy or PrivacyPolicy()
    for each in tasks:
        for killed in (True, False):
            budget = SiteBudget(home, policy)
            made = budget.reserve(each, examples=EXAMPLES, model=None, **more)
            if not killed:
                budget.settle(made)
            budget.close()
    return next(row.spent for row in balances(home, policy) if row.scope == "triage")


def true_epsilon(home: Path, delta: float = 1e-5) -> float:
    charges = [entry for entry in read_chain(home, NAME) if entry["what"] == "charge"]
    events = [
        (each["event"]["kind"], each["event"]["amount"], each["event"]["rate"], each["count"]) for each in charges
    ]
    return epsilon_of_mixed(events, delta)


WITHOUT = {name: value for name, value in SECTION.items() if name != "preparation"}
RUNS = {
    "dp_sgd, prepared": SECTION, "dp_sgd": WITHOUT, "normal": WITHOUT | {"mechanism": "gaussian"},
    "normal, prepared": SECTION | {"mechanism": "gaussian"}, "laplace": WITHOUT | {"mechanism": "laplace"},
}  # fmt: skip


@pytest.mark.parametrize("section", RUNS.values(), ids=RUNS.keys())
def test_a_run_costs_what_its_releases_cost_together_though_its_site_is_killed_at_every_step(
    tmp_path: Path, section: dict[str, Any]
) -> None:
    spent = played(tmp_path / "said", run_of(section))
    entries = [entry["what"] for entry in read_chain(tmp_path / "said", NAME)]
    assert (entries[0], entries.count(PLAN)) == (PLAN, 1)
    true = true_epsilon(tmp_path / "said")
    assert true <= spent <= 1.01 * true
    assert spent <= 3.0 + 0.1 * (ROUNDS // EVERY if section["mechanism"] == "dp_sgd" else ROUNDS + ROUNDS // EVERY)


def test_where_a_preparation_does_not_say_what_follows_the_filter_adds_up_as_before(tmp_path: Path) -> None:
    told = played(tmp_path, run_of(SECTION, follows=False))
    assert PLAN not in [entry["what"] for entry in read_chain(tmp_path, NAME)]
    assert told > 1.2 * true_epsilon(tmp_path)


def test_a_run_of_one_kind_has_no_plan(tmp_path: Path) -> None:
    alone = {name: value for name, value in WITHOUT.items() if name != "metrics"}
    played(tmp_path, run_of(alone))
    assert PLAN not in [entry["what"] for entry in read_chain(tmp_path, NAME)]


@pytest.mark.parametrize("evaluate", [{"every": 0}, {"every": "never"}, {"every": -1}])
def test_a_run_that_evaluates_nothing_is_of_one_kind_though_its_metrics_would_have_noise(
    evaluate: dict[str, Any],
) -> None:
    first = asked(TaskKind.TRAIN, 1, CONFIG | {"evaluate": evaluate}, WITHOUT)
    assert planned(first) is None


def test_a_run_goes_to_its_end_by_terms_of_what_its_releases_cost_together_and_a_round_more_does_not(
    tmp_path: Path,
) -> None:
    """By the filter it was refused in its middle."""
    most = 3.0 + 0.1 * (ROUNDS // EVERY)
    tasks = run_of(SECTION)
    assert played(tmp_path, tasks, most=most) <= 1.01 * most
    more = [asked(TaskKind.TRAIN, number, CONFIG, SECTION) for number in range(ROUNDS + 1, 3 * ROUNDS)]
    with pytest.raises(HanseError, match=r"terms\.epsilon"):
        played(tmp_path, more, most=most)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_what_a_site_says_before_a_run_is_what_its_ledger_does(tmp_path: Path, accountant: str) -> None:
    policy = PrivacyPolicy.model_validate({"accountant": accountant})
    cost = played(tmp_path / "unlimited", run_of(SECTION), policy)
    question = asked(TaskKind.TRAIN, 1, CONFIG | COLUMNS | {"kinds": ["prepare", "train", "evaluate"]}, SECTION)
    for least, enough in ((cost * 1.0001, True), (cost * 0.99, False)):
        budget = SiteBudget(
            tmp_path / "asked", PrivacyPolicy.model_validate({"accountant": accountant, "epsilon": least})
        )
        assert budget.affords(question, ROUNDS, examples=EXAMPLES) is enough
        budget.close()


def test_the_hub_tells_a_preparation_with_noise_what_follows_as_sites_read_it() -> None:
    job = check_job(
        {
            "rounds": ROUNDS, "model": CONFIG["model"], "train": CONFIG["train"], "evaluate": CONFIG["evaluate"],
            "participants": {"minimum": 3}, "privacy": SECTION,
        }
    )  # fmt: skip
    told = rounds_after(job)
    assert told["follows"].keys() == FOLLOWS["follows"].keys()
    first = asked(TaskKind.PREPARE, 0, COLUMNS | json.loads(json.dumps(told)), SECTION)
    found = planned(first)
    assert found is not None
    known = planned(run_of(SECTION)[0])
    assert found == known
    assert found.note.startswith("dp_sgd")


@pytest.mark.parametrize(
    ("follows", "read"),
    [
        (None, False), ("all", False), ({"train": {"batch_size": -1}}, True), ({"evaluate": {"counts": 3}}, True),
        ({"train": {"no such": 1}}, True),
    ],
)  # fmt: skip
def test_what_follows_and_cannot_be_read_is_a_plan_that_holds_nothing(follows: Any, *, read: bool) -> None:
    first = asked(TaskKind.PREPARE, 0, COLUMNS | {"follows": follows}, SECTION)
    found = planned(first)
    assert (found is not None) is read
    assert (
        found is None
        or found.reached({ReleaseEvent("gaussian", 3.0): 1}) is found.reached({ReleaseEvent("pure", 1.0): 1}) is None
    )


@pytest.mark.parametrize("examples", [1, 31, 32, 33, EXAMPLES])
def test_whether_there_is_a_plan_does_not_depend_on_how_many_examples_there_are(examples: int) -> None:
    """The ledger's head, which is told, counts its entries."""
    section = {name: value for name, value in SECTION.items() if name != "metrics"}
    assert planned(run_of(section)[0], examples=examples) is not None


def test_noise_by_the_models_size_has_no_plan_without_a_model() -> None:
    section = WITHOUT | {"mechanism": "staircase"}
    assert planned(run_of(section)[0]) is None


def test_the_command_says_by_what_charges_are_added_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played(tmp_path, run_of(WITHOUT | {"mechanism": "gaussian"}))

    def shown(*more: str) -> str:
        assert main(["budget", "--home", str(tmp_path), *more]) == 0
        return capsys.readouterr().out

    assert "no limit; releases of several kinds, by the plan of their run" in shown()
    assert [row["added_by"] for row in json.loads(shown("--json"))["balances"]] == ["plan", "plan"]
    played(tmp_path, [each.model_copy(update={"run": "b" * 12}) for each in run_of(WITHOUT)])
    assert "by a filter, which tells more" in shown()


def test_two_homes_of_one_ledger_say_their_plans_each_and_are_both_charged(tmp_path: Path) -> None:
    section, policy = WITHOUT | {"mechanism": "gaussian"}, PrivacyPolicy(ledger=tmp_path / "ledger")
    played(tmp_path / "one", run_of(section), policy)
    spent = played(tmp_path / "two", run_of(section), policy)
    assert [entry["what"] for entry in read_chain(tmp_path / "ledger", NAME)].count(PLAN) == 2
    true = true_epsilon(tmp_path / "ledger")
    assert true <= spent <= 1.01 * true


def test_renyi_accounting_of_a_site_is_as_it_was(tmp_path: Path) -> None:
    spent = played(tmp_path, run_of(WITHOUT), PrivacyPolicy.model_validate({"accountant": "rdp"}))
    made = make_accountant("rdp")
    for entry in read_chain(tmp_path, NAME):
        if entry["what"] == "charge":
            made.compose(ReleaseEvent.from_json(entry["event"]), entry["count"])
    assert spent == pytest.approx(made.epsilon(1e-5))


@pytest.mark.parametrize("said", [100_001, 10**9])
def test_a_task_of_a_run_of_more_rounds_than_a_job_may_have_is_refused_before_noise_is_reckoned(said: int) -> None:
    """A site reckons the noise of so many rounds before it trains or prepares, for minutes where a hub says 10^9."""
    most = json.loads(asked(TaskKind.TRAIN, 1, CONFIG, WITHOUT).encode())
    most["privacy"]["rounds"] = 100_000
    terms = Task.decode(json.dumps(most).encode()).privacy
    assert terms is not None
    assert terms.rounds == 100_000
    most["privacy"]["rounds"] = said
    with pytest.raises(
        HanseError, match=rf"privacy\.rounds: .*less than or equal to 100000 \(given {said}\)"
    ) as caught:
        Task.decode(json.dumps(most).encode())
    assert caught.value.code is ErrorCode.INVALID_INPUT
